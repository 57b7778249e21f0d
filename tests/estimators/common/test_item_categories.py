"""Categories of ordinal items, and their order."""

import numpy as np
import pytest

import fastmf as mf

RNG = np.random.default_rng(0)


def fitted(X, **options):
    return mf.OrdinalMachine(l2=0.1, l2_field=0.1, **options).fit(X)


@pytest.mark.parametrize("options, codes, expected", [
    ({}, [1, 2, 4], [1, 2, 3, 4]), ({"n_categories": 4}, [1, 2, 4], [1, 2, 3, 4]),
    ({"n_categories": 5}, [1, 2, 4], [1, 2, 3, 4, 5]),
    ({"n_categories": 5}, [0, 2], [0, 1, 2, 3, 4]),
    ({"n_categories": [5, 5]}, [0, 4], [0, 1, 2, 3, 4]), ({}, [-2.0, 0.0, 2.0], [-2, -1, 0, 1, 2]),
    ({}, [False, True], [False, True]),
])  # fmt: skip
def test_codes(options, codes, expected):
    machine = fitted(RNG.choice(codes, (60, 2)), **options)
    assert [known.tolist() for known in machine.categories_] == [expected] * 2


def test_strings_of_numbers_are_in_their_order():
    machine = fitted(RNG.choice(["2", "10", "1"], (60, 2)))
    assert machine.categories_[0].tolist() == ["1", "2", "10"]


def test_other_strings_are_in_alphabetical_order_which_warns():
    with pytest.warns(UserWarning, match="2 columns .* such as 'high', 'low', 'mid'") as caught:
        machine = fitted(RNG.choice(["low", "mid", "high"], (60, 2)))
    assert len(caught) == 1
    assert machine.categories_[0].tolist() == ["high", "low", "mid"]
    assert fitted(RNG.choice(["yes", "no"], (60, 2))).categories_[0].tolist() == ["no", "yes"]


@pytest.mark.parametrize(
    ("X", "options", "error", "message"),
    [
        ([[0.5, 1], [1, 0]], {}, ValueError, "integer codes or strings, got 0.5"),
        ([[1, 1], [1, 0]], {}, ValueError, "single value 1"),
        ([[1, 1], [500, 0]], {}, ValueError, "at most 254 categories"),
        ([[1, 1], [0, 0]], {"n_categories": 1}, ValueError, "n_categories"),
        ([[1, 1], [0, 0]], {"n_categories": [2, 2, 2]}, TypeError, "n_categories"),
        ([["a", "b"], ["b", "a"]], {"n_categories": 2}, TypeError, "None for strings"),
        ([[1, 3], [0, 0]], {"n_categories": 2}, ValueError, "got 3"),
    ],
)
def test_refusals(X, options, error, message):
    with pytest.raises(error, match=message):
        fitted(np.array(X), **options)


def test_codes_of_minus_and_plus_one_are_two_categories():
    X = np.where(np.random.default_rng(0).random((200, 3)) < [0.3, 0.5, 0.6], 1, -1)
    machine = mf.OrdinalMachine().fit(X)
    assert [known.tolist() for known in machine.categories_] == [[-1, 1]] * 3
    binary = mf.FullyVisibleBoltzmannMachine().fit(X)
    np.testing.assert_allclose(machine.couplings_, 4 * binary.couplings_, atol=1e-6)
    assert set(np.unique(machine.sample(20, random_state=0))) == {-1, 1}
    scores = np.array([[-1, 0], [0, 1], [1, -1], [0, 0], [1, 1], [-1, -1]])
    assert mf.OrdinalMachine(l2=0.1, l2_field=0.1).fit(scores).n_categories_.tolist() == [3, 3]
