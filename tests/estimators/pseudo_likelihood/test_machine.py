"""Machines of binary, ordinal and categorical items alike."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from populations import all_states
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf
from fastmf.estimators.pseudo_likelihood import pairwise_machines

X = np.random.default_rng(0).integers(0, 2, (60, 4))
ROWS = np.random.default_rng(0).integers(0, 2, (200, 4))
SOLVERS = ("auto", "bslm", "newton", "lbfgs")
KINDS = (mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine, mf.PottsMachine)
PAIRWISE = KINDS[:2]
# Every solver of binary machines with every penalty that it has.
PENALISED = [
    *({"solver": solver} | l2 for solver in SOLVERS for l2 in ({}, {"l2": 0.02})),
    *({"solver": solver, "l1": 0.02} for solver in ("auto", "bslm", "lbfgs")),
    {"solver": "firth"},
]
BINARY = [partial(mf.FullyVisibleBoltzmannMachine, **options) for options in PENALISED]
SIZES = [3, 4, 2, 3]
RIDGE = {"l2": 0.05, "l2_field": 0.02}
POTTS = [
    partial(mf.PottsMachine, n_states=SIZES, **options) for options in (
        {"tol": 1e-8}, {"solver": "newton"}, RIDGE, RIDGE | {"solver": "asymmetric"},
        {"solver": "naive_mean_field"},
    )
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name, value", [
    ("l2", -1.0), ("tol", np.nan), ("max_iter", 0), ("n_threads", 0), ("solver", "magic")
])  # fmt: skip
def test_options_are_checked(kind, name, value):
    with pytest.raises(ValueError, match=name):
        kind(**{name: value}).fit(X)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_draws_and_files(kind, tmp_path):
    machine = kind(l2=0.1).fit(X)
    assert machine.score(X) == machine.score_samples(X).mean()
    np.testing.assert_allclose(machine.sample(4000, random_state=0).mean(0), X.mean(0), atol=0.05)
    machine.save(tmp_path / "machine.npz")
    again = kind.load(tmp_path / "machine.npz")
    assert again.existence_ == machine.existence_
    assert (again.n_missing_, again.n_dropped_) == (0, 0)
    np.testing.assert_array_equal(again.history_, machine.history_)
    np.testing.assert_array_equal(again.score_samples(X), machine.score_samples(X))
    np.testing.assert_array_equal(again.standard_errors()[0], machine.standard_errors()[0])
    assert again.get_params() == machine.get_params()


@pytest.mark.parametrize("kind", [mf.OrdinalMachine, mf.PottsMachine])
def test_missing_values_become_the_most_probable_ones(kind):
    machine = kind(l2=0.1).fit(X)
    lacking = X.astype(float)
    lacking[np.arange(60), np.arange(60) % 4] = np.nan
    others = np.where(np.isnan(lacking), 0, lacking).astype(int)
    given = machine.conditional_proba(others).reshape(60, 4, 2).argmax(-1)
    np.testing.assert_array_equal(machine.impute(lacking), np.where(np.isnan(lacking), given, X))


@pytest.mark.parametrize("kind", PAIRWISE)
def test_the_solver_follows_the_number_of_parameters(kind, monkeypatch):
    for solver, largest in (("newton", 10), ("lbfgs", 9)):
        monkeypatch.setattr(pairwise_machines, "MAX_NEWTON_PARAMETERS", largest)
        chosen, expected = kind().fit(ROWS), kind(solver=solver).fit(ROWS)
        assert chosen.history_.tolist() == expected.history_.tolist()
        np.testing.assert_array_equal(chosen.couplings_, expected.couplings_)
    monkeypatch.setattr(pairwise_machines, "MAX_HESSIAN_PARAMETERS", 9)
    with pytest.raises(ValueError, match=r"up to 9 parameters .* got 10: take solver 'lbfgs'"):
        kind(solver="newton").fit(ROWS)


@pytest.mark.parametrize("kind, options, message", [
    *((kind, {"l1": "cv", "missing": "em"}, "l1='cv' needs complete rows") for kind in PAIRWISE),
    *((kind, {"l1": 1.0, "solver": "newton"}, "l1 needs") for kind in PAIRWISE),
    *((KINDS[0], {"missing": "available", "solver": solver}, "missing='available' needs solver")
      for solver in ("bslm", "firth")),
    *((KINDS[0], {"graph": [[0, 1]], "solver": solver}, "graph needs solver")
      for solver in ("bslm", "firth")),
    (KINDS[0], {"missing": "available", "l1": "ebic"}, "needs complete rows"),
    (KINDS[0], {"solver": "firth", "l2": 0.1}, "firth"),
    (KINDS[0], {"solver": "bslm", "l1": "cv"}, "l1='cv' needs solver"),
])  # fmt: skip
def test_options_that_exclude_each_other(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options).fit(ROWS)


@pytest.mark.parametrize("kind, what", [(PAIRWISE[0], "units"), (PAIRWISE[1], "items")])
def test_warnings_name_the_first_items(kind, what):
    rows = pd.DataFrame(np.repeat(ROWS[:, :1], 12, axis=1), columns=list("abcdefghijkl"))
    with pytest.warns(ConvergenceWarning, match=rf"\({what} a, b, .*, j, \.\.\.\)"):
        kind().fit(rows)


@pytest.mark.parametrize("kind", PAIRWISE)
def test_iterations_that_run_out_are_told(kind):
    with pytest.warns(ConvergenceWarning, match=r"stopped after 1 iterations of 1 .*: raise max_"):
        kind(max_iter=1, solver="lbfgs").fit(ROWS)


@pytest.mark.parametrize("kind", PAIRWISE)
@pytest.mark.parametrize(
    "labels, message",
    [
        (range(3), "one label for each of 60 rows"),
        (["a", None] + 58 * ["b"], "no missing labels, got one in row 1"),
        (np.ma.masked_array(np.arange(60), np.arange(60) == 2), "labels, got one in row 2"),
        ([1.0, 2.0, np.nan] + 57 * [1.0], "no missing labels, got one in row 2"),
        (60 * ["a"], "at least two"),
    ],
)
def test_labels_of_clusters_are_checked(kind, labels, message):
    with pytest.raises(ValueError, match=message):
        kind().fit(X, clusters=np.asanyarray(labels))


@pytest.mark.parametrize("make", BINARY)
def test_balanced_designs_have_converged(make):
    """Every state equally often: the maximum is where every named start is."""
    for d in (1, 2, 3):
        for max_iter, weight in ((None, None), (1, np.full(2**d, 5.0)), (3, np.full(2**d, 0.1))):
            found = make(max_iter=max_iter)
            found.fit((all_states(d) + 1) / 2, sample_weight=weight)
            assert found.converged_ and found.existence_.exists
            assert found.n_iter_ == len(found.history_) == 1
            assert abs(found.couplings_).max() < 1e-12 and abs(found.field_).max() < 1e-12


# Firth's penalty depends on the total weight.
@pytest.mark.parametrize("make, sizes, n", [
    *((make, [2] * 4, 300) for make in BINARY[:-1]), *((make, SIZES, 300) for make in POTTS),
    (partial(mf.PottsMachine, n_states=21, **RIDGE), [21] * 6, 6),
])  # fmt: skip
def test_weights_count_only_relative_to_each_other(make, sizes, n):
    """Weights may add up to anything; the last case has few rows and many states."""
    rng = np.random.default_rng(0)
    rows, weights = rng.integers(0, sizes, (n, len(sizes))), rng.random(n) + 0.1
    first = make().fit(rows, sample_weight=weights)
    for factor in (2.0**-40, 2.0**40, 1 / weights.sum(), 1e-12, 1e12):
        found = make().fit(rows, sample_weight=factor * weights)
        tolerance = 0 if factor in (2.0**-40, 2.0**40) else 1e-9
        np.testing.assert_allclose(found.couplings_, first.couplings_, rtol=0, atol=tolerance)
        np.testing.assert_allclose(found.field_, first.field_, rtol=0, atol=tolerance)
        assert found.converged_ and found.n_iter_ == first.n_iter_
        np.testing.assert_allclose(found.history_ / factor, first.history_, rtol=1e-9)
        assert found.score(rows) == pytest.approx(first.score(rows))


@pytest.mark.parametrize("make", [
    *BINARY, partial(mf.OrdinalMachine, tol=1e-8), partial(mf.PottsMachine, tol=1e-8)
])  # fmt: skip
def test_weights_are_numbers_of_rows(make):
    """A row of weight zero is absent, and one of weight three is there three times."""
    counts = np.random.default_rng(0).integers(0, 4, 200)
    weighted, *others = (
        make().fit(*data)
        for data in (
            (ROWS, None, counts), (np.repeat(ROWS, counts, axis=0),),
            (ROWS[counts > 0], None, counts[counts > 0]),
        )
    )  # fmt: skip
    for machine in others:
        np.testing.assert_allclose(machine.couplings_, weighted.couplings_, atol=1e-8)
        np.testing.assert_allclose(machine.history_[-1], weighted.history_[-1], rtol=1e-9)


CHAIN = {"graph": [(0, 1), (1, 2), (2, 3)]}


@pytest.mark.parametrize(
    "kind, options",
    [
        *((kind, options) for kind in KINDS[1:] for options in ({}, {"missing": "em"})),
        (mf.PottsMachine, CHAIN),
        (mf.PottsMachine, {"missing": "em"} | CHAIN),
        (mf.PottsMachine, {"missing": "available"} | CHAIN),
    ],
)
def test_two_categories_are_binary_units(kind, options):
    rng = np.random.default_rng(1)
    rows = (1 + np.cumprod(np.where(rng.random((300, 4)) < 0.7, 1.0, -1.0), axis=1)) / 2
    if "missing" in options:
        rows[rng.random(rows.shape) < 0.1] = np.nan
    binary = mf.FullyVisibleBoltzmannMachine(tol=1e-9, **options).fit(rows)
    machine = kind(tol=1e-12, **options).fit(rows)
    assert machine.converged_ and machine.existence_.exists
    # Where values are missing, steps of EM end the fit.
    atol = 1e-5 if "missing" in options else 1e-8
    if kind is mf.OrdinalMachine:
        factor, couplings, errors = 4, machine.couplings_, machine.standard_errors()[0]
        field = 2 * binary.field_ - 2 * binary.couplings_.sum(1)
        np.testing.assert_allclose(np.concatenate(machine.thresholds_), field, atol=atol)
    else:
        factor, parts = 1, (machine.in_gauge("zero-sum"), machine.standard_errors("zero-sum"))
        (couplings, field), (errors, _) = parts
        couplings, errors = couplings[:, 1, :, 1], errors[:, 1, :, 1]
        np.testing.assert_allclose(field[:, 1], binary.field_, atol=1e-6)
        np.testing.assert_allclose(parts[1][1][:, 1], binary.standard_errors()[1], rtol=1e-4)
    np.testing.assert_allclose(couplings, factor * binary.couplings_, atol=atol)
    np.testing.assert_allclose(errors, factor * binary.standard_errors()[0], rtol=1e-4, atol=1e-8)
    if "missing" not in options:
        np.testing.assert_allclose(machine.score(rows), binary.score(rows), rtol=1e-9)
        tests = [m.likelihood_ratio_test([[0, 1]]).p_value for m in (machine, binary)]
        np.testing.assert_allclose(*tests, rtol=1e-4)
