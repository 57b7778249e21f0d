"""Cases of `tree_annealing`: rows that lack columns of spins, or of groups of states."""

import numpy as np

from fastmf.kernels.sampling.spanning_tree import TreeProblem
from fastmf.kernels.sampling.tree_annealing import TreeSettings, tree_annealing_work
from kernel_cases.case import Case, chosen, with_options


def annealing_arguments(size, dtype, rows=None, *, n_states=2, scale=0.5, chain=0.0):
    """Arguments of `tree_annealing`: couplings of a chain, and normal ones between all columns."""
    n = min(size.n_visible, 30)
    rng, sizes = np.random.default_rng(11), np.full(n, n_states)
    sizes[1::2] = 2
    column = np.repeat(np.arange(n), sizes)
    couplings = scale * rng.normal(size=(len(column), len(column)))
    neighbours = abs(column[:, None] - column) == 1
    couplings = couplings + couplings.T + chain * neighbours * rng.choice([-1, 1], couplings.shape)
    couplings = np.triu(couplings) + np.triu(couplings).T
    couplings[column[:, None] == column] = 0
    offsets = np.append(0, np.cumsum(sizes))
    strength = np.add.reduceat(np.add.reduceat(abs(couplings), offsets[:-1]), offsets[:-1], axis=1)
    rows, missing = chosen(rows, size.n_rows), rng.random((size.n_rows, n)) < 0.6
    missing[:, 0] = True
    fields = rng.normal(size=(size.n_rows, len(column)))[rows]
    problem = TreeProblem(couplings, strength, offsets)
    settings = TreeSettings(np.uint64(5), 1, 2, 2, 4, 0.004)
    n_particles = np.full(len(rows), 60)
    work = tree_annealing_work(problem, missing[rows], n_particles, settings)
    out = np.zeros((len(rows), len(column))), np.zeros(len(rows))
    return problem, fields, missing[rows], n_particles, settings, *out, work


def _found(arguments):
    return {"means": arguments[5], "errors": arguments[6]}


CASES = [
    Case(
        "sampling.tree_annealing.tree_annealing",
        name,
        with_options(annealing_arguments, **options),
        _found,
        {"float64": 1e-9},
        large=name == "spins",
        dtypes=("float64",),
    )
    for name, options in (
        ("spins", {"scale": 0.3}),
        ("near-tree", {"scale": 0.02, "chain": 1.0}),
        ("groups", {"n_states": 4}),
        ("frozen", {"n_states": 3, "scale": 3.0}),
        ("tree", {"scale": 0.0, "chain": 0.0}),
    )
]
