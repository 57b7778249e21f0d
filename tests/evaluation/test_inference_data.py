import sys

import numpy as np
import pytest

import fastmf as mf
from fastmf.evaluation import gibbs_chains, to_inference_data

DRAWS = {"visible": np.arange(24.0).reshape(2, 4, 3), "energy": np.arange(8.0).reshape(2, 4)}


def test_arrays_have_names_of_dimensions_and_columns():
    pytest.importorskip("arviz_base")
    data = to_inference_data(DRAWS, names={"visible": np.array(["a", "b", "c"])})
    visible = data.posterior["visible"]
    assert visible.dims == ("chain", "draw", "visible_unit")
    np.testing.assert_array_equal(visible, DRAWS["visible"])
    np.testing.assert_array_equal(visible.sel(visible_unit="b"), DRAWS["visible"][..., 1])
    assert data.posterior["energy"].dims == ("chain", "draw")


def test_diagnostics_of_a_machine_that_mixes():
    """Means agree with enumeration to the errors that ArviZ estimates from the effective size."""
    pytest.importorskip("arviz_base")
    stats = pytest.importorskip("arviz_stats")
    rng = np.random.default_rng(0)
    weights, zeros = rng.normal(size=(4, 3)) / 2, np.zeros(4)
    model = mf.RBM(weights, mf.Ising(zeros + 0.2), mf.Ising(zeros[:3]))
    data = to_inference_data(gibbs_chains(model, 4, 1000, rng=1))
    found = {name: getattr(stats, name)(data) for name in ("rhat", "ess", "mcse")}
    for name, mean in zip(("visible", "hidden"), mf.exact(model).mean, strict=True):
        assert (found["rhat"][name] < 1.01).all() and (found["ess"][name] > 400).all()
        error = abs(data.posterior[name].mean(("chain", "draw")) - mean)
        assert (error < 4 * found["mcse"][name]).all()


@pytest.mark.parametrize(
    "draws, names, match",
    [
        ({}, None, "must be a dict of arrays"),
        (np.zeros((2, 3)), None, "must be a dict of arrays"),
        ({"a": np.zeros(3)}, None, r"shape \(n_chains, n_draws, ...\), got a \(3,\)"),
        ({"a": np.zeros((2, 3)), "b": np.zeros((2, 4))}, None, "got a .* b"),
        (DRAWS, {"visible": ["a"]}, "there are {'visible': 3}, got 1 names"),
        (DRAWS, {"hidden": ["a"]}, "names\\['hidden'\\] must name"),
        (DRAWS, {"energy": ["a"]}, "names\\['energy'\\] must name"),
    ],
)
def test_bad_arguments(draws, names, match):
    with pytest.raises(ValueError, match=match):
        to_inference_data(draws, names=names)


def test_without_arviz_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with pytest.raises(ImportError, match=r"pip install 'fastmf\[arviz\]'"):
        to_inference_data(DRAWS)
