"""Fits of binary and ordinal items alike: solvers, selections and what warnings name."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf
from fastmf.estimators.pseudo_likelihood import _base

X = np.random.default_rng(0).integers(0, 2, (200, 4))
KINDS = (mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine)


@pytest.mark.parametrize("kind", KINDS)
def test_the_solver_follows_the_number_of_parameters(kind, monkeypatch):
    for solver, largest in (("newton", 10), ("lbfgs", 9)):
        monkeypatch.setattr(_base, "MAX_NEWTON_PARAMETERS", largest)
        chosen, expected = kind().fit(X), kind(solver=solver).fit(X)
        assert chosen.history_.tolist() == expected.history_.tolist()
        np.testing.assert_array_equal(chosen.couplings_, expected.couplings_)
    monkeypatch.setattr(_base, "MAX_HESSIAN_PARAMETERS", 9)
    with pytest.raises(ValueError, match=r"up to 9 parameters .* got 10: take solver 'lbfgs'"):
        kind(solver="newton").fit(X)


@pytest.mark.parametrize("kind", KINDS)
def test_options_that_exclude_each_other(kind):
    with pytest.raises(ValueError, match="rule='and' is for l1='ebic'"):
        kind(rule="and").fit(X)
    with pytest.raises(ValueError, match="l1='cv' needs complete rows"):
        kind(l1="cv", missing="em").fit(X)


@pytest.mark.parametrize("kind, what", [(KINDS[0], "units"), (KINDS[1], "items")])
def test_warnings_name_the_first_items(kind, what, monkeypatch):
    monkeypatch.setattr(_base, "MAX_NAMED", 2)
    rows = pd.DataFrame(np.repeat(X[:, :1], 3, axis=1), columns=["a", "b", "c"])
    with pytest.warns(ConvergenceWarning, match=rf"\({what} a, b, \.\.\.\)"):
        kind().fit(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_iterations_that_run_out_are_told(kind):
    with pytest.warns(ConvergenceWarning, match=r"stopped after 1 iterations of 1 .*: raise max_"):
        kind(max_iter=1, solver="lbfgs").fit(X)
