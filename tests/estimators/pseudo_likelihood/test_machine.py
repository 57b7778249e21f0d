"""Machines of binary, ordinal and categorical items alike."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf
from fastmf.estimators.pseudo_likelihood import pairwise_machines

X = np.random.default_rng(0).integers(0, 2, (60, 4))
ROWS = np.random.default_rng(0).integers(0, 2, (200, 4))
KINDS = (mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine, mf.PottsMachine)
PAIRWISE = KINDS[:2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name, value, error", [
    ("l2", -1.0, ValueError), ("tol", np.nan, ValueError), ("max_iter", 0, ValueError),
    ("n_threads", 0, ValueError),
])  # fmt: skip
def test_options_are_checked(kind, name, value, error):
    with pytest.raises(error, match=name):
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


@pytest.mark.parametrize("kind", PAIRWISE)
def test_options_that_exclude_each_other(kind):
    with pytest.raises(ValueError, match="l1='cv' needs complete rows"):
        kind(l1="cv", missing="em").fit(ROWS)


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


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_numbers_of_rows(kind):
    counts = np.random.default_rng(0).integers(0, 4, 200)
    weighted, *others = (
        kind(tol=1e-8).fit(*data)
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
        (mf.PottsMachine, {"missing": "em"} | CHAIN),
        (mf.PottsMachine, {"missing": "available"} | CHAIN),
    ],
)
def test_two_categories_are_binary_units(kind, options):
    rng = np.random.default_rng(1)
    rows = (1 + np.cumprod(np.where(rng.random((300, 4)) < 0.7, 1.0, -1.0), axis=1)) / 2
    if options:
        rows[rng.random(rows.shape) < 0.1] = np.nan
    binary = mf.FullyVisibleBoltzmannMachine(tol=1e-9, **options).fit(rows)
    machine = kind(tol=1e-12, **options).fit(rows)
    assert machine.converged_ and machine.existence_.exists
    atol = 1e-5 if options else 1e-8  # where values are missing, steps of EM end the fit
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
    if not options:
        np.testing.assert_allclose(machine.score(rows), binary.score(rows), rtol=1e-9)
        tests = [m.likelihood_ratio_test([[0, 1]]).p_value for m in (machine, binary)]
        np.testing.assert_allclose(*tests, rtol=1e-4)
