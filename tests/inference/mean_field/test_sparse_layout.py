"""Layouts of sparse couplings: colours, chunks, and tables that are whole."""

import numpy as np
import pytest
from scipy import sparse

from fastmf.inference.mean_field import _sparse_layout
from fastmf.inference.mean_field._layouts import layout_of
from fastmf.inference.mean_field._sparse_layout import SparseLayout, colours_of, whole_tables
from fastmf.priors._groups import column_sizes
from tests.inference.mean_field.test_sparse_sweeps import MACHINES, SIZES, group_machines
from tests.models.test_couplings import spins


def test_colours():
    couplings, _ = spins(np.random.default_rng(0), 40, 0.2)
    colours = colours_of(sparse.csr_array(couplings))
    rows, columns = np.nonzero(couplings)
    assert (colours[rows] != colours[columns]).all()
    assert colours.max() <= (couplings != 0).sum(0).max()
    side = np.arange(36).reshape(6, 6)
    edges = np.hstack(
        [[side[:, 1:].ravel(), side[:, :-1].ravel()], [side[1:].ravel(), side[:-1].ravel()]]
    )
    grid = sparse.coo_array((np.ones(edges.shape[1]), edges), shape=(36, 36))
    assert set(colours_of(sparse.csr_array(grid + grid.T))) == {0, 1}


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize("chunk", [1, 4, 2048])
def test_chunks_hold_whole_columns_that_are_not_coupled(monkeypatch, kind, chunk):
    monkeypatch.setattr(_sparse_layout, "CHUNK_UNITS", chunk)
    machine = MACHINES[kind]()[1]
    layout = SparseLayout(machine, 2, "blocked")
    dense, seen = layout.couplings.toarray(), []
    ends = {0, *np.cumsum(column_sizes(layout.prior))}
    for chunks in layout.colours:
        units = np.concatenate([np.arange(first, last) for first, last, _ in chunks])
        assert not dense[np.ix_(units, units)].any()
        assert {*chunks[:, 0], *chunks[:, 1]} <= ends
        seen += units.tolist()
    assert sorted(seen) == list(range(machine.n_units))
    np.testing.assert_array_equal(
        dense, machine.couplings.toarray()[np.ix_(layout.units, layout.units)]
    )
    numbers = np.concatenate(layout.colours)[:, 2]
    assert sorted(numbers) == list(range(layout.n_chunks))


def test_arrays_come_back_in_the_order_of_the_model():
    layout = SparseLayout(MACHINES["mixed"]()[1], 2, "blocked")
    x = np.random.default_rng(0).normal(size=(2, layout.n_units))
    whole = layout.join((x,), np.zeros_like(x))
    np.testing.assert_array_equal(layout.split(whole), x)
    assert not np.array_equal(whole, x)


def test_tables_are_whole():
    machine = group_machines()[1]
    couplings = machine.couplings.copy()
    couplings.data[[0, 5]] = 0
    couplings.eliminate_zeros()
    whole = whole_tables(couplings, np.array(SIZES))
    np.testing.assert_array_equal(whole.toarray(), couplings.toarray())
    assert whole.nnz == machine.couplings.nnz and whole.has_sorted_indices


def test_it_is_kept_for_its_model_alone():
    first, second = (MACHINES["spins"](0.3, seed)[1] for seed in (0, 1))
    layout = layout_of(first, 2, "blocked")
    assert layout_of(first, 2, "blocked") is layout
    assert layout_of(second, 2, "blocked") is not layout
