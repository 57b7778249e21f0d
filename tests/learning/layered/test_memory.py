"""The tables of terms and couplings say where in memory the gradient's parts are."""

import numpy as np
import pytest
from kernel_cases import Size, case

import fastmf as mf
from fastmf._jit.argument_types import Int64, Workers, argument_types, type_of
from fastmf._jit.intrinsics import view
from fastmf.kernels.linear.product import panel_width
from fastmf.kernels.mean_field.rows import MEAN, VAR, A
from fastmf.kernels.training import arguments as types
from fastmf.kernels.training.statistics import N_TERM_ROWS, POWER, STRIDE, UNITS
from fastmf.learning.layered.memory import Couplings, gradient_of, tasks_of, terms_of

# The layers of a machine of 6, 4 and 3 units: even layers come first.
BOUNDS = [slice(0, 6), slice(9, 13), slice(6, 9)]
N_DATA, N_STARTS = 5, 7


@pytest.fixture
def moments():
    """Data, of which the lowest units have no variance, and solutions of the model."""
    rng = np.random.default_rng(0)
    memory = rng.normal(size=(N_DATA + 4 * N_STARTS, 13))
    others = rng.normal(size=(3, N_DATA, 13))
    data = types.Moments(memory[:N_DATA], *others)
    return data, memory[N_DATA:].reshape(4, N_STARTS, 13)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_terms_are_those_of_the_gradient(moments, order):
    data, state = moments
    terms = [terms_of(k, data, state, order) for k in range(2)]
    found = gradient_of(terms, BOUNDS, np.dtype(float))
    rng = np.random.default_rng(1)
    for k, (first, last) in enumerate(zip([0, *found.ends[:-1]], found.ends, strict=True)):
        table, (below, above) = found.table[first:last], BOUNDS[k : k + 2]
        w = rng.normal(size=(below.stop - below.start, above.stop - above.start))

        def average(rows, below=below, above=above):
            return rows[:, below].T @ rows[:, above] / len(rows)

        expected = average(data.mean) - average(state[MEAN])
        if order >= 2:
            expected += w * ((average(data.var) if k else 0) - average(state[VAR]))
        if order == 3:
            expected += w**2 / 2 * ((average(data.a) if k else 0) - average(state[A]))
        total, row = 0, int(found.table[:first, N_TERM_ROWS].sum())
        for term in table:
            n_rows, stride = term[N_TERM_ROWS], term[STRIDE]
            here = slice(row, row + n_rows)
            lower = [view(term[UNITS] + r * stride * 8, (len(w),), w) for r in range(n_rows)]
            hidden = [view(at, (n,), w) for at, n in found.hidden[here, :2]]
            upper = found.scales[here, None] * np.array(hidden)
            total = total + w ** term[POWER] * (np.array(lower).T @ upper)
            row += n_rows
        np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-14)
        assert (np.diff(table[:, POWER]) <= 0).all()


def test_packed_rows_of_the_terms_of_one_matrix_follow_one_another(moments):
    terms = [terms_of(k, *moments, 2) for k in range(2)]
    found = gradient_of(terms, BOUNDS, np.dtype(float))
    for first, last in ((0, found.ends[0]), (found.ends[0], found.ends[1])):
        table = found.table[first:last]
        assert len(np.unique(table[:, types.RIGHTS])) == 1
        begins = np.cumsum([0, *table[:, N_TERM_ROWS]])
        assert table[:, types.FIRST_RIGHT].tolist() == begins[:-1].tolist()
        assert (table[:, types.N_RIGHTS] == begins[-1]).all()
        start, last_row = found.table[:first, N_TERM_ROWS].sum(), begins[-1]
        rows = found.hidden[start : start + last_row]
        width = panel_width(np.dtype(float))
        places = table[0, types.RIGHTS] + 8 * width * np.arange(last_row)
        np.testing.assert_array_equal(rows[:, types.PACKED], places)
        assert (rows[:, types.PANEL_BYTES] == 8 * width * last_row).all()
    assert found.n_rows == 2 * (N_DATA + N_STARTS)


def test_couplings_are_taken_over_and_given_back():
    rng = np.random.default_rng(0)
    weights = tuple(rng.normal(size=shape) for shape in ((6, 4), (4, 3)))
    machine = mf.DBM(weights, tuple(mf.Bernoulli(np.zeros(n)) for n in (6, 4, 3)))
    couplings = Couplings(machine, [2, 5])
    velocity = [rng.normal(size=w.shape) for w in weights]
    couplings.load(weights, velocity)
    for found, expected in zip(couplings.copies(), (weights, velocity), strict=True):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    table = couplings.table
    np.testing.assert_array_equal(
        view(table[1, types.WEIGHT_MATRIX], (4, 3), weights[1]), weights[1]
    )
    assert table[:, types.FIRST_TERM].tolist() == [0, 2]
    assert table[:, types.END_TERM].tolist() == [2, 5]
    with pytest.raises(ValueError, match="read-only"):
        couplings.copies()[0][0][0, 0] = 1.0


def test_tasks_take_all_units_of_each_layer():
    tasks = tasks_of([0, 9, 6], [6, 4, 3], 4)
    assert tasks.tolist() == [[0, 0, 4], [0, 4, 2], [1, 9, 4], [2, 6, 3]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["tap", "pcd", "sparse", "sparse_pcd", "mixed_units", "deep"])
def test_all_steps_have_arguments_of_the_same_types(kind, dtype):
    """Kernels are compiled for those of the annotations: for any others they would be once more."""
    found = case(f"training.train.train-{kind}").build(Size(14, 9, 4), dtype)
    kinds = types.Batches, types.Parameters, (types.Solver,) * 2, types.Settings, types.Statistics
    expected = argument_types(dtype, *kinds, Workers[types.Scratch], Int64[3], Int64[1])
    assert tuple(map(type_of, found)) == expected
    memory = types.Scratch(*(part[0] for part in found[5]))
    assert (type_of(memory),) == argument_types(dtype, types.Scratch)
