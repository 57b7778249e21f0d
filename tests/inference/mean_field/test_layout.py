"""Layouts: every coupling of the model is in the packed arrays, every unit in one block."""

import itertools

import numpy as np
import pytest

import fastmf as mf
from fastmf.inference.mean_field._layout import MAX_WORKER_ROWS, Layout, rows_per_worker
from fastmf.kernels.linear.product import TILE_ROWS, panel_width
from fastmf.reference.linear.product import unpacked

SIZES = 70, 31, 12, 5


def machine(kind, dtype=np.float64):
    rng = np.random.default_rng(0)
    if kind == "fully visible":
        upper = np.triu(rng.normal(size=(70, 70)), 1).astype(dtype)
        return mf.BoltzmannMachine(upper + upper.T, mf.Ising(np.zeros(70, dtype)))
    sizes = SIZES[:2] if kind == "rbm" else SIZES
    weights = [rng.normal(size=pair).astype(dtype) for pair in itertools.pairwise(sizes)]
    priors = [mf.Bernoulli(rng.normal(size=n).astype(dtype)) for n in sizes]
    return mf.RBM(weights[0], *priors) if kind == "rbm" else mf.DBM(tuple(weights), tuple(priors))


def dense(model, layout):
    """The coupling matrix of all units, in the order of the layout."""
    if isinstance(model, mf.BoltzmannMachine):
        return model.couplings
    J = np.zeros((layout.n_units, layout.n_units), model.dtype)
    for weights, below, above in zip(
        model.couplings, layout.bounds, layout.bounds[1:], strict=False
    ):
        J[below, above] = weights
    return J + J.T


KINDS = pytest.mark.parametrize("kind", ["rbm", "dbm", "fully visible"])


@KINDS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_packed_couplings_are_those_of_the_model(kind, dtype):
    model = machine(kind, dtype)
    layout = Layout(model, 3, "blocked")
    J = dense(model, layout)
    for layer in layout.layers.of_model:
        units = slice(layer.start, layer.start + layer.n_units)
        n_source = layer.couplings.shape[1]
        source = slice(layer.source, layer.source + n_source)
        # All couplings of the layer are between these units.
        assert (np.delete(J[:, units], np.r_[source], axis=0) == 0).all()
        for power, packed in enumerate((layer.couplings, layer.squares, layer.cubes), 1):
            expected = J[source, units] ** power
            np.testing.assert_allclose(unpacked(packed, layer.n_units), expected, rtol=1e-6)


@KINDS
@pytest.mark.parametrize("schedule", ["blocked", "sequential"])
def test_a_sweep_updates_every_unit_once(kind, schedule):
    layout = Layout(machine(kind), 2, schedule)
    width = panel_width(np.float64)
    updated = []
    for k, first, last in layout.blocks:
        layer = layout.layers.of_model[k]
        units = range(first * width, min(last * width, layer.n_units))
        assert 0 < len(units) <= layout.max_columns
        updated += [layer.start + i for i in units]
    assert sorted(updated) == list(range(layout.n_units))


def test_orders_below_need_no_powers():
    squares = [Layout(machine("rbm"), order, "blocked").layers.of_model[0] for order in (1, 2)]
    assert [len(layer.squares) > 0 for layer in squares] == [False, True]
    assert [len(layer.cubes) for layer in squares] == [0, 0]


def test_joining_and_splitting():
    layout = Layout(machine("dbm"), 1, "blocked")
    parts = [np.full((2, n), float(n)) for n in SIZES]
    whole = layout.join(parts, np.zeros((2, sum(SIZES))))
    for part, again in zip(parts, layout.split(whole), strict=True):
        np.testing.assert_array_equal(again, part)
    kept = layout.join([None, parts[1], None, None], np.full((2, sum(SIZES)), -1.0))
    assert (kept == -1).sum() == 2 * (sum(SIZES) - SIZES[1])


@pytest.mark.parametrize("n_rows", [1, 2, 7, 60, 100, 1000])
@pytest.mark.parametrize("n_workers", [1, 2, 5])
def test_rows_per_worker(n_rows, n_workers):
    n_workers = min(n_rows, n_workers)
    rows = rows_per_worker(n_rows, n_workers)
    assert 1 <= rows <= -(-n_rows // n_workers)
    assert rows < MAX_WORKER_ROWS + TILE_ROWS  # in whole tiles


def test_few_rows_are_iterated_in_one_round():
    few, many = 4 * TILE_ROWS - 2, 8 * TILE_ROWS
    assert rows_per_worker(few, 2) == few // 2
    assert rows_per_worker(many, 2) <= many // 4
