"""Warnings point at the line of the program that called, on every path of calls."""

import inspect
import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import fastmf as mf
from fastmf._common.warning import warn_user
from fastmf.learning.evidence import robust_solution

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 4))
Y = X[:, :2] + 3 * RNG.normal(size=(30, 2))
SPINS = np.where(X > 0, 1, -1)
WIDE = RNG.normal(size=(30, 12))
SEPARATED = np.repeat(SPINS[:, :1], 3, axis=1)
DEEP = mf.DeepBoltzmannMachine((2, 2), n_epochs=1, pretraining_epochs=0, random_state=0)
RBM = mf.RBM(np.full((4, 3), 2.0), mf.Bernoulli(np.zeros(4)), mf.Bernoulli(np.zeros(3)))
CALLS = {
    "regressor": lambda: mf.SpikeSlabRegressor().fit(WIDE, Y[:, 0]),
    "classifier": lambda: mf.SpikeSlabClassifier().fit(X, X[:, 0] > 0),
    "pipeline": lambda: make_pipeline(mf.SpikeSlabRegressor()).fit(WIDE, Y[:, 0]),
    "existence": lambda: mf.FullyVisibleBoltzmannMachine().fit(SEPARATED),
    "Potts": lambda: mf.PottsMachine().fit(SEPARATED > 0),
    "annealing": lambda: mf.evaluation.annealed_importance_sampling(RBM, 2, 1, rng=0),
}


def where(call):
    """Files and lines of the warnings of a call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return {(entry.filename, entry.lineno) for entry in caught}


@pytest.mark.parametrize("name", CALLS)
def test_the_line_is_that_of_the_caller(name, monkeypatch):
    solve = partial(robust_solution, max_iter=1)
    monkeypatch.setattr("fastmf.estimators.sparse_regression._spike_slab.robust_solution", solve)
    line = inspect.getsourcelines(CALLS[name])[1]
    assert where(CALLS[name]) == {(__file__, line)}


def test_the_line_is_that_of_the_caller_at_the_top_of_a_module():
    source = "import fastmf as mf\nimport numpy as np\nX = np.ones((4, 3))\n\n" + (
        "mf.FullyVisibleBoltzmannMachine().fit(X)\n"
    )
    code = compile(source, "program.py", "exec")
    assert where(lambda: exec(code, {"__name__": "__main__"})) == {("program.py", 5)}


def test_wrapped_methods_point_at_the_caller_too(monkeypatch):
    """scikit-learn wraps `transform`."""
    machine = clone(DEEP).fit(SPINS > 0)
    posterior = "fastmf.estimators.layered._machine.posterior"
    found = mf.tap(RBM, np.zeros((2, 4)), max_iter=1)
    monkeypatch.setattr(posterior, lambda *_, **__: type("Found", (), {"solutions": found}))
    call = lambda: machine.transform((SPINS > 0)[:2])  # noqa: E731
    assert where(call) == {(__file__, inspect.getsourcelines(call)[1])}


def test_without_a_caller_outside_the_package_itself_is_named(monkeypatch):
    monkeypatch.setattr("fastmf._common.warning._is_inner", lambda frame: True)
    inner = {"warn_user": warn_user}
    exec(compile("def call():\n    warn_user('look')", "inner.py", "exec"), inner)
    assert where(inner["call"]) == {("inner.py", 2)}
