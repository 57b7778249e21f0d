import numpy as np
import pytest
from populations import all_states, features
from scipy import stats

from fastmf.inference.sampling.discrete import probabilities
from fastmf.learning.pseudo_likelihood.binary import PseudoLikelihood, firth
from fastmf.learning.pseudo_likelihood.fit import newton
from fastmf.learning.pseudo_likelihood.godambe import Godambe, adjusted, survival
from fastmf.models import BoltzmannMachine
from fastmf.priors import Ising


def test_two_units_have_the_errors_of_a_contingency_table():
    """For two units pseudo-likelihood is likelihood: J is a quarter of the log-odds ratio."""
    cells = np.array([30.0, 12.0, 25.0, 50.0])
    objective = PseudoLikelihood(all_states(2), cells)
    parameters = newton(objective, objective.independent(), tol=1e-8).parameters
    signs = np.prod(all_states(2), axis=1)
    assert parameters[2] == pytest.approx(signs @ np.log(cells) / 4, rel=1e-10)
    contrasts = np.vstack([all_states(2).T, signs]) / 4
    expected = contrasts @ np.diag(1 / cells) @ contrasts.T
    np.testing.assert_allclose(Godambe(objective, parameters).covariance(), expected, rtol=1e-8)


def by_closed_testing(p, local):
    """Largest p-value of any set of hypotheses that holds this one."""
    out = np.zeros(len(p))
    for subset in range(1, 2 ** len(p)):
        members = [i for i in range(len(p)) if subset >> i & 1]
        for i in members:
            out[i] = max(out[i], local(p[members]))
    return out


def test_adjusted_p_values():
    p = np.array([0.04, 0.001, 0.3, 0.02, 0.9])
    bonferroni_of_all = by_closed_testing(p, lambda q: min(1, len(q) * q.min()))
    np.testing.assert_allclose(adjusted(p, "holm"), bonferroni_of_all)
    np.testing.assert_allclose(adjusted(p, "bonferroni"), np.minimum(5 * p, 1))
    np.testing.assert_allclose(
        adjusted(p, "benjamini_hochberg"), [0.2 / 3, 0.005, 0.375, 0.05, 0.9]
    )
    np.testing.assert_allclose(
        adjusted(p, "benjamini_yekutieli"),
        np.minimum(adjusted(p, "benjamini_hochberg") * (1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5), 1),
    )
    np.testing.assert_array_equal(adjusted(p, "none"), p)
    assert len(adjusted(p[:0], "holm")) == 0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("how", ["firth", "short of the maximum", "ridge"])
def test_errors_are_the_sandwich_about_the_mean_score(how, weighted):
    """Where the mean score is not l2 times the parameters, too; H and J by NumPy."""
    rng = np.random.default_rng(2)
    states = np.cumprod(np.where(rng.random((25, 4)) < 0.8, 1.0, -1.0), axis=1)
    weights = rng.integers(1, 4, 25).astype(float) if weighted else np.ones(25)
    l2 = 0.1 if how == "ridge" else 0.0
    objective = PseudoLikelihood(states, weights, l2)
    start = objective.independent()
    parameters = {
        "firth": lambda: firth(objective, start),
        "short of the maximum": lambda: newton(objective, start, max_iter=1),
        "ridge": lambda: newton(objective, start),
    }[how]().parameters
    Z = features(states) * states[:, :, None]
    tanh = np.tanh(Z @ parameters)
    H = np.einsum("i,ij,ijp,ijq->pq", weights, 1 - tanh**2, Z, Z) / weights.sum() + l2 * np.eye(10)
    scores = np.einsum("ij,ijp->ip", states - tanh, Z)
    J = np.cov(scores.T, aweights=weights, bias=True)
    expected = np.linalg.inv(H) @ J @ np.linalg.inv(H) / weights.sum()
    godambe = Godambe(objective, parameters)
    np.testing.assert_allclose(godambe.covariance(), expected, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(objective.score_covariance(parameters), J, atol=1e-13)
    along = objective.score_variances(parameters, np.eye(10))
    np.testing.assert_allclose(along, J.diagonal(), atol=1e-13)
    some = godambe.standard_errors_without_matrices(np.arange(10))
    np.testing.assert_allclose(some, np.sqrt(expected.diagonal()), rtol=1e-4)
    mean = np.average(scores, axis=0, weights=weights)
    assert abs(np.outer(mean, mean)).max() > 1e-3 * abs(J).max()


def test_a_singular_hessian_is_reported():
    states = np.repeat(all_states(2), 2, axis=1)
    objective = PseudoLikelihood(states, np.ones(4))
    with pytest.raises(ValueError, match="nearly singular"):
        Godambe(objective, np.zeros(10)).standard_errors_without_matrices(np.array([5]))


def test_a_hessian_that_is_not_positive_definite_is_reported():
    """Of rows that are all equal nothing but sums of parameters is known."""
    objective = PseudoLikelihood(np.ones((1, 2)), np.ones(1))
    message = r"cannot be computed.*not positive definite"
    with pytest.raises(np.linalg.LinAlgError, match=message):
        Godambe(objective, np.array([0.3, 0.2, 0.1])).covariance()


def test_for_two_units_the_ratio_test_is_the_likelihood_ratio_test_near_independence():
    """For two units the log-pseudo-likelihood is that of x given y and of y given x."""
    cells = 1e4 * np.array([[0.3, 0.2], [0.3 + 1e-3, 0.2 - 1e-3]])
    objective = PseudoLikelihood(all_states(2), cells.reshape(-1))
    parameters = newton(objective, objective.independent()).parameters
    found = Godambe(objective, parameters).likelihood_ratio_test([[0, 1]])
    expected = cells.sum(0) * cells.sum(1)[:, None] / cells.sum()
    likelihood_ratio = 2 * (cells * np.log(cells / expected)).sum()
    assert found.statistic == pytest.approx(2 * likelihood_ratio, rel=1e-9)
    assert found.weights == pytest.approx(2, rel=1e-3)
    assert found.p_value == pytest.approx(stats.chi2.sf(likelihood_ratio, 1), rel=1e-3)
    np.testing.assert_allclose(np.tanh(found.parameters[:2]), objective.mean, atol=1e-12)
    assert found.parameters[2] == 0


@pytest.mark.slow
@pytest.mark.parametrize("everything", [False, True])
def test_size_of_the_ratio_test_under_the_hypothesis(everything):
    """200 samples: the fractions of p-values below p lie within 3.5 of their standard errors."""
    rng = np.random.default_rng(8)
    J = np.zeros((5, 5)) if everything else np.diag([0.4, 0.6, 0.0, 0.5], 1)
    model = BoltzmannMachine(J + J.T, Ising(np.array([0.2, -0.1, 0.3, 0.0, 0.4])))
    probability = probabilities(model)
    index = np.triu_indices(5, 1)
    pairs = np.transpose(index)[np.full(10, True) if everything else J[index] == 0]
    p_values, naive = [], []
    for _ in range(200):
        objective = PseudoLikelihood(all_states(5), rng.multinomial(600, probability) + 1e-9)
        parameters = newton(objective, objective.independent()).parameters
        found = Godambe(objective, parameters).likelihood_ratio_test(pairs)
        p_values.append(found.p_value)
        naive.append(stats.chi2.sf(found.statistic, len(pairs)))
    p_values = np.array(p_values)
    for p in (0.05, 0.2, 0.5):
        assert np.mean(p_values < p) == pytest.approx(p, abs=3.5 * np.sqrt(p * (1 - p) / 200))
    # Without the weights the test rejects far too often.
    assert np.mean(np.array(naive) < 0.05) > 0.3


# --- chi squares ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 10, 190, 800, 5886])
@pytest.mark.parametrize("weight", [1e-8, 0.7, 1e5])
def test_equal_weights_are_one_chi_squared_variable(n, weight):
    for p in (0.999, 0.5, 0.05, 1e-50):
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
