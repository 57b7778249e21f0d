import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from fastmf.learning.pseudo_likelihood.godambe import CouplingTests
from fastmf.plotting import coupling_network

# Three units: 0-1 positive and strong, 0-2 negative and weak, 1-2 not significant.
ONES = np.ones(3)
TESTS = CouplingTests(
    np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([2.0, -1.0, 5.0]), ONES, ONES,
    np.array([1e-9, 1e-3, 0.5]), np.array([1e-8, 2e-3, 0.9]),
)  # fmt: skip


def test_significant_couplings_are_drawn_by_sign_and_strength():
    (ax,) = coupling_network(TESTS, names=["a", "b", "c"]).axes
    weak, strong = ax.lines
    assert strong.get_linewidth() == 2 * weak.get_linewidth() == 4
    assert to_rgb(strong.get_color()) == to_rgb("C3") != to_rgb(weak.get_color())
    at = ax.collections[0].get_offsets()
    np.testing.assert_allclose(np.transpose(strong.get_data()), at[[0, 1]])
    np.testing.assert_allclose(np.transpose(weak.get_data()), at[[0, 2]])
    np.testing.assert_allclose(np.hypot(*at.T), 1)
    assert [text.get_text() for text in ax.texts] == ["a", "b", "c"]
    assert ax.get_title().startswith("2 of 3 couplings")


def test_the_level_decides():
    ax = Figure().add_subplot()
    assert coupling_network(TESTS, level=1e-6, ax=ax) is ax.figure
    assert len(ax.lines) == 1
    assert len(coupling_network(TESTS, level=1e-12).axes[0].lines) == 0


def test_bad_arguments():
    with pytest.raises(ValueError, match="level must be"):
        coupling_network(TESTS, level=0)
    with pytest.raises(ValueError, match="all 3 units, got 2"):
        coupling_network(TESTS, names=["a", "b"])
    with pytest.raises(ValueError, match="at least one coupling"):
        coupling_network(CouplingTests(*(np.zeros(0) for _ in TESTS)))
