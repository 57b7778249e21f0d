"""Flat states and blocks of positions."""

import numpy as np
import pytest
from potts_data import random_parameters, random_rows

from fastmf._jit.vectors import lanes_of
from fastmf.kernels.pseudo_likelihood.potts import LOW_FIELD
from fastmf.learning.pseudo_likelihood.potts.layout import PottsLayout
from fastmf.learning.pseudo_likelihood.potts.tree import spanning_order

SIZES = [[3, 4, 2, 5], [20] * 7, [2] * 40, [200, 3]]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_parameters_come_back_from_blocks(sizes, dtype):
    layout = PottsLayout(sizes, dtype)
    J, h = (x.astype(dtype).astype(float) for x in random_parameters(sizes))
    np.testing.assert_array_equal(layout.couplings_from_blocks(layout.couplings_to_blocks(J)), J)
    field = layout.field_to_blocks(h)
    np.testing.assert_array_equal(layout.vector_from_blocks(field), h)
    assert (np.delete(field.reshape(-1), layout.place) == dtype(LOW_FIELD)).all()
    assert np.delete(layout.vector_to_blocks(h).reshape(-1), layout.place).any() == 0


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_blocks_are_whole_vectors_aligned(sizes, dtype):
    layout = PottsLayout(sizes, dtype)
    assert layout.width % lanes_of(dtype) == 0
    assert layout.n_blocks * layout.n_positions >= len(sizes)
    assert len(set(layout.place)) == layout.n_states
    assert layout.field_to_blocks(0.0).ctypes.data % (lanes_of(dtype) * layout.dtype.itemsize) == 0


def test_twenty_letters_in_single_precision_are_not_padded():
    layout = PottsLayout([20] * 160, np.float32)
    assert layout.width == 20 * layout.n_positions


def test_rows_follow_from_the_changes_to_their_parents():
    sizes = [3, 4, 2, 5, 3, 3, 4]
    labels, weights = random_rows(sizes, missing=0.2)
    order, parents, groups = spanning_order(labels)
    layout = PottsLayout(sizes)
    rows = layout.rows(labels[order], weights[order], parents, groups)
    sources = np.zeros((len(labels), layout.n_blocks * layout.width))
    for s, parent in enumerate(parents):
        begin, middle, end = *rows.spans[s], rows.spans[s + 1, 0]
        sources[s] = 0 if parent < 0 else sources[parent]
        np.subtract.at(sources[s], rows.changes[begin:middle], 1)
        np.add.at(sources[s], rows.changes[middle:end], 1)
    for s, row in enumerate(labels[order]):
        present = np.flatnonzero(row >= 0)
        expected = np.zeros(sources.shape[1])
        expected[layout.place[layout.first[present] + row[present]]] = 1
        np.testing.assert_array_equal(sources[s], expected)


def test_zero_sum_is_by_position():
    layout = PottsLayout([2, 3])
    np.testing.assert_allclose(layout.zero_sum(np.array([1.0, 3, 1, 2, 6])), [-1, 1, -2, -1, 3])
