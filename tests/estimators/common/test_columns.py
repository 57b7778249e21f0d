"""Categories of columns, as the machines of binary, ordinal and categorical items learn them."""

from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf

RNG = np.random.default_rng(0)
SPINS = np.where(RNG.random((6, 3)) < 0.5, -1.0, 1.0)
NONE, NAN = None, np.nan


def binary(X):
    return mf.FullyVisibleBoltzmannMachine(l2=0.1).fit(X)


def ordinal(X, n_categories=None):
    return mf.OrdinalMachine(n_categories=n_categories, l2=0.1, l2_field=0.1).fit(X)


def potts(X, n_states=None):
    return mf.PottsMachine(n_states=n_states, l2=0.1, l2_field=0.1).fit(X)


def rows(*values):
    """Values of two columns, each of which has all of them."""
    return np.stack([values, values[::-1]], axis=1)


# --- learned --------------------------------------------------------------------------------------

PAIRS = [(-1.0, 1.0), (0.0, 1.0), (1, 2), (False, True), ("no", "yes"), (-7, 2.5)]
DECLARED = pd.DataFrame({
    "a": pd.Categorical(["no", "yes"], ["yes", "no"]), "b": ["no", "yes"], "c": ["f", "m"],
})  # fmt: skip


@pytest.mark.parametrize("fit, X, options, expected", [
    *((binary, np.array(pair)[(SPINS > 0).astype(int)], (), [pair] * 3) for pair in PAIRS),
    (binary, np.full((2, 2), -1.0), (), [(-1, 1)] * 2),  # data of one value
    (binary, np.full((2, 2), 0.0), (), [(0, 1)] * 2),
    (binary, np.full((2, 2), 1.0), (), [(-1, 1)] * 2),
    (binary, [["no", "m"], ["yes", "f"], ["no", "f"]], (), [("no", "yes"), ("f", "m")]),
    (binary, [[0, 1], [1, 2]], (), [(0, 1), (1, 2)]),
    (binary, [["no", "no"], ["yes", "no"]], (), [("no", "yes")] * 2),
    (binary, DECLARED, (), [("yes", "no"), ("no", "yes"), ("f", "m")]),
    (ordinal, rows(1, 2, 4), (), [(1, 2, 3, 4)] * 2),
    (ordinal, rows(1, 2, 4), (4,), [(1, 2, 3, 4)] * 2),
    (ordinal, rows(1, 2, 4), (5,), [(1, 2, 3, 4, 5)] * 2),
    (ordinal, rows(0, 2), (5,), [(0, 1, 2, 3, 4)] * 2),
    (ordinal, rows(0, 4), ([5, 5],), [(0, 1, 2, 3, 4)] * 2),
    (ordinal, rows(-2.0, 0.0, 2.0), (), [(-2, -1, 0, 1, 2)] * 2),
    (ordinal, rows(-1, 0, 1), (), [(-1, 0, 1)] * 2),
    (ordinal, rows(False, True), (), [(False, True)] * 2),
    (ordinal, rows("2", "10", "1"), (), [("1", "2", "10")] * 2),
    (ordinal, rows("yes", "no"), (), [("no", "yes")] * 2),
    (potts, [[0, 1, 2], [0, -1, 0]], (), [(0, 1, 2)] * 3),  # states that do not occur
    (potts, [[0], [0]], (), [(0, 1)]),
    (potts, [[1, 1, 3], [2, -1, NAN]], (), [(1, 2, 3)] * 3),
    (potts, [[1], [1]], (), [(1, 2)]),
    (potts, [[10, 30], [20, 10]], (), [(10, 20, 30)] * 2),
    (potts, [[10, 300], [20, 100]], (), [(10, 20), (100, 300)]),
    (potts, [["A", "C"], ["-", "A"]], (), [("-", "A", "C")] * 2),  # letters of one alphabet
    (potts, [["m", "no"], ["f", "yes"]], (), [("f", "m"), ("no", "yes")]),
    (potts, [[0], [253]], (), [tuple(range(254))]),
])  # fmt: skip
def test_categories_follow_from_the_data(fit, X, options, expected):
    machine = fit(X, *options)
    assert [tuple(values.tolist()) for values in machine.categories_] == expected


def test_strings_in_alphabetical_order_warn():
    with pytest.warns(UserWarning, match=" order, such as 'high', 'low', 'mid'") as caught:
        machine = ordinal(rows("low", "mid", "high"))
    assert len(caught) == 1
    assert machine.categories_[0].tolist() == ["high", "low", "mid"]


@pytest.mark.parametrize("listed, silent", [
    (["low", "mid", "high"], False), (None, False), ([3, 1, 2], True), (["10", "2", "1"], True),
])  # fmt: skip
def test_categories_without_an_order_are_sorted_as_numbers_or_warn(listed, silent):
    values = ["low", "mid", "high"] if listed is None else listed
    frame = pd.DataFrame(rows(*values)).astype(pd.CategoricalDtype(listed))
    with nullcontext() if silent else pytest.warns(UserWarning, match="nothing says how"):
        machine = ordinal(frame)
    expected = sorted(values, key=float) if silent else listed or sorted(values)
    assert [values.tolist() for values in machine.categories_] == [expected] * len(frame.columns)
    ordered = pd.CategoricalDtype(values, ordered=True)
    assert ordinal(frame.astype(ordered)).categories_[0].tolist() == values


def test_missing_labels_are_the_same_in_all_forms():
    expected = potts([[0, -1], [2, -5], [1, 2]])
    assert expected.n_missing_ == 2
    for X in ([[0.0, NAN], [2.0, -3.0], [1, 2]], [["a", NONE], ["c", NAN], ["b", "c"]]):
        machine = potts(np.array(X, object) if X[0][1] is None else X)
        np.testing.assert_array_equal(machine.couplings_, expected.couplings_)
        assert machine.n_missing_ == 2


def test_codes_of_minus_and_plus_one_are_two_categories():
    X = np.where(np.random.default_rng(0).random((200, 3)) < [0.3, 0.5, 0.6], 1, -1)
    machine = mf.OrdinalMachine().fit(X)
    couplings = mf.FullyVisibleBoltzmannMachine().fit(X).couplings_
    np.testing.assert_allclose(machine.couplings_, 4 * couplings, atol=1e-6)
    assert set(np.unique(machine.sample(20, random_state=0))) == {-1, 1}


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fit, X, options, error, message",
    [
        (binary, [[1.0, 0.5]] * 2, (), ValueError,
         r"in \{-1, 1\}, or all in \{0, 1\}, .* got 0.5 in column 1"),
        (binary, [[1.0, 1.0], [0.0, -1.0]], (), ValueError, "got -1, 0, 1 in col.*OrdinalMachine"),
        (binary, [[2.0, 2.0]] * 2, (), ValueError, "got 2 in column 0, which is constant"),
        (binary, [[0, 1], [1, 2], [2, 2]], (), ValueError, "got 0, 1, 2 in column 0"),
        (binary, [["a"], ["b"], ["c"]], (), ValueError, "got 'a', 'b', 'c' in column 0"),
        (binary, [["a", "x"], ["b", "x"]], (), ValueError, "got 'x' in column 1, which is const"),
        (ordinal, [[0.5, 1], [1, 0]], (), ValueError, "integer codes or strings, got 0.5"),
        (ordinal, [[1, 1], [1, 0]], (), ValueError, "single value 1"),
        (ordinal, [[1, 1], [500, 0]], (), ValueError, "at most 254 categories"),
        (ordinal, [[1, 1], [0, 0]], (1,), ValueError, "n_categories"),
        (ordinal, [[1, 1], [0, 0]], ([2, 2, 2],), TypeError, "n_categories"),
        (ordinal, [["a", "b"], ["b", "a"]], (2,), TypeError, "None for strings"),
        (ordinal, [[1, 3], [0, 0]], (2,), ValueError, "got 3"),
        (potts, [[0.5, 1.0]], (), ValueError, "integer labels .*0.5"),
        (potts, np.array([[0, 1000]], np.uint16), (), ValueError, "at most 254"),
        (potts, [[1, 255]], (), ValueError, "at most 254"),
        (potts, [[0, 254]], (), ValueError, "at most 254"),
        (potts, 1000 + 2 * np.arange(300)[:, None], (), ValueError, "at most 254 categories"),
        (potts, [["x", "a"], ["x", "b"]], (), ValueError, "column 0 has the single value 'x'"),
        (potts, [[1, "a"], ["b", "a"]], (), TypeError, "strings and numbers in column 0"),
        (potts, [[NONE, "a"], [NONE, "b"]], (), ValueError, "none in column 0"),
        (potts, 2 * (SPINS > 0) - 1, (), ValueError, "got 1 alone beside missing ones.*recoded"),
        (potts, [[0, 1, 0]], ([2, 2],), TypeError, "one for each of 3 columns"),
        (potts, [[0, 1, 0]], ([2, 2, 1],), ValueError, r"in \[2, "),
        (potts, [[0, 1, 0]], (255,), ValueError, r"in \[2, "),
        (potts, [[0, 1, 0]], (2.5,), TypeError, "n_states"),
        (potts, [[0, 1, 0]], ("three",), TypeError, "n_states"),
    ],
)  # fmt: skip
def test_refusals(fit, X, options, error, message):
    mixed = isinstance(X, list) and len({type(value) for row in X for value in row}) > 1
    with pytest.raises(error, match=message):
        fit(np.array(X, object if mixed and str in map(type, X[0]) else None), *options)


@pytest.mark.parametrize("X, new, message", [
    ([[1, 6], [3, 2]], [[1, 0]], "in column 1 one of 1, 2, 3, 4, 5, 6: got 0 in row 0"),
    ([[0, 2]], [[7, 0]], "in column 0 one of 0, 1, 2: got 7"),
    ([[10, 30], [20, 10]], [[10, 15]], "one of 10, 20, 30: got 15"),
])  # fmt: skip
def test_labels_that_fit_has_not_seen(X, new, message):
    machine = potts(X)
    with pytest.raises(ValueError, match=message):
        machine.score_samples(new)


# --- positions ------------------------------------------------------------------------------------


def test_a_single_position_has_no_couplings():
    machine = mf.PottsMachine().fit(np.array([[0], [1], [1]]))
    for report in (machine.edge_inclusion, machine.likelihood_ratio_test):
        with pytest.raises(ValueError, match=r"no couplings|pairs"):
            report()


def test_a_missing_label_is_named_where_it_separates():
    X = np.random.default_rng(0).integers(0, 2, (100, 4)).astype(float)
    X[3, 2] = np.nan
    with pytest.warns(ConvergenceWarning, match=r"1 labels are missing.*missing='em'"):
        mf.PottsMachine().fit(X)
    assert mf.PottsMachine(missing="em").fit(X).converged_
