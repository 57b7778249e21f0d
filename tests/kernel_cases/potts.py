"""Cases of Potts machines: positions with different numbers of states, some of them absent."""

from functools import partial

import numpy as np

from fastmf._common.memory import aligned
from fastmf.kernels.pseudo_likelihood.potts import LOW_FIELD, workspaces
from fastmf.learning.pseudo_likelihood.potts.objective import PottsLayout, spanning_order
from kernel_cases.case import Case


def layout_and_rows(size, dtype, n_states):
    """A layout, and similar rows of labels with weights."""
    rng = np.random.default_rng(7)
    sizes = 2 + np.arange(size.n_visible // 3) * 5 % (n_states - 1)
    sizes[0] = n_states
    layout = PottsLayout(sizes, dtype)
    labels = rng.integers(0, sizes, (4 * size.n_rows, len(sizes)))
    kept = rng.random(labels.shape) < rng.random((len(labels), 1))
    labels = np.where(kept, labels[0], labels)
    labels[rng.random(labels.shape) < 0.1] = -1
    weights = rng.random(len(labels)) + 0.1
    # Two forests of rows with trees of their own.
    half = len(labels) // 2
    order, parents = np.concatenate(
        [np.stack(spanning_order(labels[s])[:2]) for s in (slice(half), slice(half, None))], axis=1
    )
    order[half:] += half
    parents[half:] += np.where(parents[half:] < 0, 0, half)
    forests = np.array([0, half, len(labels)])
    return layout, layout.rows(labels[order], weights, parents, forests)


def parameters(layout, rng):
    """Couplings and fields in blocks; the fields of the first position are far apart."""
    n = layout.n_states
    couplings = rng.normal(size=(n, n)) / np.sqrt(n)
    field = rng.normal(size=n)
    field[: layout.sizes[0]] *= 30
    return layout.couplings_to_blocks(couplings), layout.to_blocks(field, LOW_FIELD)


def value_arguments(size, dtype, *, n_states):
    """Arguments of `value_and_gradient`."""
    layout, rows = layout_and_rows(size, dtype, n_states)
    tables, field = parameters(layout, np.random.default_rng(8))
    memory = workspaces(8, int(np.diff(rows.forests).max()), layout.width, layout.dtype)
    values = np.full((len(rows.labels), len(layout.bounds) - 1), np.nan)
    outputs = aligned(tables.shape, dtype), np.empty_like(field), values
    return rows, tables, field, memory, np.zeros(2, np.int64), *outputs


_CLOSE = {"float64": 1e-11, "float32": 3e-4}
CASES = [
    *(
        Case("pseudo_likelihood.potts.value_and_gradient", name,
             partial(value_arguments, n_states=n_states),
             ("gradient", "field_gradient", "values"), _CLOSE, large=name == "proteins")
        for name, n_states in (("proteins", 20), ("spins", 2), ("codons", 100))
    ),
]  # fmt: skip
