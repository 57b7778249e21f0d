import numpy as np
import pytest
from scipy import stats

from fastmf.learning.pseudo_likelihood.chi_squares import survival


@pytest.mark.parametrize("n", [1, 2, 3, 10, 190, 800, 5886])
@pytest.mark.parametrize("weight", [1e-8, 0.7, 1e5])
def test_equal_weights_are_one_chi_squared_variable(n, weight):
    for p in (0.999, 0.6, 0.5, 0.3, 0.05, 1e-6, 1e-50):
        x = stats.chi2.isf(p, n)
        assert survival(weight * x, np.full(n, weight)) == pytest.approx(p, rel=1e-8)


@pytest.mark.parametrize("n", [1, 2, 5, 30, 1000, 5886])
@pytest.mark.parametrize("ratio", [0.99, 1 - 1e-6, 1.0, 1 + 1e-6, 1.01])
def test_near_the_mean_of_the_variable(n, ratio):
    """Where the saddle point is nearest to the pole, and the two tails meet."""
    expected = stats.chi2.sf(ratio * n, n)
    assert survival(ratio * n, np.ones(n)) == pytest.approx(expected, rel=1e-11)


def test_pairs_of_equal_weights_are_exponential():
    """Sums of exponentials: the survival function is a mixture of theirs (partial fractions)."""
    means = np.array([4.0, 1.0, 0.3])
    coefficients = [np.prod([m / (m - other) for other in means if other != m]) for m in means]
    for x in (0.1, 2.0, 5.29, 5.3, 5.31, 30.0, 300.0):
        expected = coefficients @ np.exp(-x / means)
        assert survival(x, np.repeat(means / 2, 2)) == pytest.approx(expected, rel=1e-10)


def test_ends():
    assert survival(0.0, [1.0, 2.0]) == survival(-1.0, [1.0]) == 1
    assert survival(1e-12, [1.0, 0.5, 0.1]) == pytest.approx(1)
    assert survival(1e4, [1.0, 1e-9]) == survival(1e300, np.ones(50)) == 0
    assert survival(1e-300, np.ones(50)) == 1
    # A weight next to nothing changes nothing.
    assert survival(3.0, [1.0, 1e-12]) == pytest.approx(stats.chi2.sf(3.0, 1), rel=1e-6)
