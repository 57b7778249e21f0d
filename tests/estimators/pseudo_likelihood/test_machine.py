"""Machines of binary, ordinal and categorical items alike: options, scores, missing values."""

import numpy as np
import pytest

import fastmf as mf

X = np.random.default_rng(0).integers(0, 2, (60, 4))
KINDS = (mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine, mf.PottsMachine)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name, value, error",
    [
        ("l2", -1.0, ValueError),
        ("tol", np.nan, ValueError),
        ("max_iter", 0, ValueError),
        ("n_threads", 0, ValueError),
        ("verbose", 2, TypeError),
    ],
)
def test_options_are_checked(kind, name, value, error):
    with pytest.raises(error, match=name):
        kind(**{name: value}).fit(X)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_draws_and_files(kind, tmp_path):
    machine = kind(l2=0.1).fit(X)
    assert machine.score(X) == machine.score_samples(X).mean()
    draws = machine.sample(4000, random_state=0)
    np.testing.assert_allclose(draws.mean(0), X.mean(0), atol=0.05)
    machine.save(tmp_path / "machine.npz")
    again = kind.load(tmp_path / "machine.npz")
    assert again.existence_ == machine.existence_
    assert (again.n_missing_, again.n_dropped_) == (0, 0)
    np.testing.assert_array_equal(again.history_, machine.history_)
    np.testing.assert_array_equal(again.score_samples(X), machine.score_samples(X))


@pytest.mark.parametrize("kind", [mf.OrdinalMachine, mf.PottsMachine])
def test_missing_values_become_the_most_probable_ones(kind):
    machine = kind(l2=0.1).fit(X)
    lacking = X.astype(float)
    lacking[np.arange(60), np.arange(60) % 4] = np.nan
    others = np.where(np.isnan(lacking), 0, lacking).astype(int)
    given = machine.conditional_proba(others).reshape(60, 4, 2).argmax(-1)
    expected = np.where(np.isnan(lacking), given, X)
    np.testing.assert_array_equal(machine.impute(lacking), expected)
