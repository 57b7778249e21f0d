"""Fields, initial messages and assignments of belief propagation, checked."""

import numpy as np
import pytest
from bp_models import loopy

import fastmf as mf
from fastmf.inference.bp._binary_units import BinaryUnits
from fastmf.inference.bp._options import BPOptions
from fastmf.inference.bp._starts import checked_fields, checked_init, checked_restarts

UNITS = BinaryUnits(loopy(prior=mf.Ising), (None, None))


@pytest.mark.parametrize("shape, n_rows", [((9,), None), ((1, 9), 1), ((4, 9), 4)])
def test_rows_of_fields(shape, n_rows):
    parts, found = checked_fields(UNITS.model, (np.ones(shape), None))
    assert found == n_rows and parts[0].shape == shape and parts[1] is None


@pytest.mark.parametrize(
    "init, algorithm, error, match",
    [
        (np.zeros((2, 2)), "sum", ValueError, r"init must have shape \(9, 7\) or"),
        (np.zeros((9, 7)), "mixed", ValueError, r"init must have shape \(9,\) or"),
        (np.zeros((0, 9, 7)), "sum", ValueError, "at least one row"),
        (np.full((9, 7), np.nan), "max", ValueError, "finite"),
        (np.full((9, 7), "x"), "sum", TypeError, "real numbers"),
        (np.zeros((2, 9, 7)), "sum", ValueError, "rows differ: field 3, init 2"),
    ],
)
def test_bad_init(init, algorithm, error, match):
    with pytest.raises(error, match=match):
        checked_init(init, algorithm, UNITS, 3)


def test_an_earlier_result_as_init():
    result = mf.belief_propagation(UNITS.model, max_iter=3)
    with pytest.raises(ValueError, match="messages=True"):
        checked_init(result, "sum", UNITS, None)
    result = mf.belief_propagation(UNITS.model, max_iter=3, messages=True)
    init, n_rows = checked_init(result, "sum", UNITS, None)
    assert init is result.messages and n_rows is None
    init, _ = checked_init(result, "mixed", UNITS, None)
    np.testing.assert_array_equal(init, result.assignment[0] > 0)


def test_initial_messages_are_clipped_to_their_range():
    """Messages lie between 1 and exp(weight): others are moved to the nearest end."""
    w = 4 * UNITS.model.weights  # of {0, 1} units
    large = 100 * np.sign(w)
    options = {"max_iter": 1, "tol": 0}
    clipped = mf.belief_propagation(UNITS.model, init=w, **options)
    found = mf.belief_propagation(UNITS.model, init=large, **options)
    for x, y in zip(found.mean, clipped.mean, strict=True):
        np.testing.assert_array_equal(x, y)


def test_restarts_and_starts():
    options = BPOptions(algorithm="max", n_restarts=2)
    assert checked_restarts(options, None, UNITS, 0, False) == (2, None)
    with pytest.raises(ValueError, match="rng"):
        checked_restarts(options, None, UNITS, None, False)
    with pytest.raises(ValueError, match="n_restarts and starts need"):
        checked_restarts(options, None, UNITS, 0, True)
    with pytest.raises(ValueError, match="one of them"):
        checked_restarts(options, np.ones((1, 9)), UNITS, 0, False)
    starts = np.where(np.random.default_rng(0).random((3, 9)) < 0.5, -1.0, 1.0)
    n_restarts, found = checked_restarts(BPOptions(algorithm="max"), starts, UNITS, None, False)
    assert n_restarts == 3
    np.testing.assert_array_equal(found, starts == 1)
