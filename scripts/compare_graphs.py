#!/usr/bin/env python3
"""The third table of SPEED.md: sparse graphs beside packages for graphical models.

The same graphs in one process and to the same accuracy, which is checked; see compare_peers.py for
how times are taken. Peers have their own graphs built and compiled before; the last column says how
long building took. The time of fastmf includes what it derives from the model in each call.

PGMax 0.6.1 does not run with new versions of JAX: `pip install --no-deps pgmax` beside "jax<0.5".
"""

import os
import time
from functools import partial
from importlib.util import find_spec

import numpy as np
from scipy.sparse import coo_array
from speed_page import line, run, show
from timing import interleaved, with_own_blas

import fastmf as mf

MARKERS = "<!-- graphs table: begin -->", "<!-- graphs table: end -->"
GRIDS, MAX_GRIDS, STRIP, TREE = (100, 300), (100, 30), (6, 12), 200
SWEEPS = 25
SPIN = np.array([-1.0, 1.0])


def grid(n_rows, n_columns):
    """Edges between neighbours of a grid."""
    unit = np.arange(n_rows * n_columns).reshape(n_rows, n_columns)
    across, down = (unit[:, :-1], unit[:, 1:]), (unit[:-1], unit[1:])
    return np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in (across, down)])


def tree(n_units):
    """Edges of a tree in which each unit is joined to a random one before it."""
    rng = np.random.default_rng(0)
    return np.array([(rng.integers(k), k) for k in range(1, n_units)])


def spins(edges):
    """Spins with random couplings on these edges, and the couplings.

    Parallel sweeps without damping converge on grids of such couplings.
    """
    rng, n = np.random.default_rng(1), edges.max() + 1
    couplings, field = rng.normal(scale=0.3, size=len(edges)), rng.normal(scale=0.3, size=n)
    half = coo_array((couplings, edges.T), shape=(n, n))
    return mf.BoltzmannMachine((half + half.T).tocsr(), mf.Ising(field)), couplings


def installed(package):
    """Whether a package is installed, with a message if not."""
    is_installed = find_spec(package) is not None
    if not is_installed:
        print(f"{package} is left out: it is not installed")
    return is_installed


def built(make):
    """What a function makes, and the seconds that it takes."""
    start = time.perf_counter()
    return make(), time.perf_counter() - start


# --- propagation --------------------------------------------------------------------------------


def pgmax(edges, couplings, field, double, **options):
    """Belief propagation of PGMax as one compiled function, for the log-odds of the beliefs.

    Temperature 1 is sum-product, 0 max-product. Its messages start uniform, and are all sent at
    once.
    """
    import jax
    from jax.experimental import enable_x64
    from pgmax import fgraph, fgroup, infer, vgroup

    with enable_x64(double):
        units = vgroup.NDVarArray(num_states=2, shape=field.shape)
        group = fgroup.PairwiseFactorGroup(
            variables_for_factors=[[units[i], units[j]] for i, j in edges.tolist()],
            log_potential_matrix=couplings[:, None, None] * np.outer(SPIN, SPIN),
        )
        graph = fgraph.FactorGraph(variable_groups=[units])
        graph.add_factors(group)
        inferer = infer.build_inferer(graph.bp_state, backend="bp")
        arrays = inferer.init(evidence_updates={units: field[:, None] * SPIN})

    @jax.jit
    def beliefs(arrays):
        log_potentials = inferer.get_beliefs(inferer.run(arrays, **options))[units]
        return log_potentials[:, 1] - log_potentials[:, 0]

    def solve():
        with enable_x64(double):
            return np.asarray(beliefs(arrays))

    return solve


def sum_product(repeats):
    """Marginals of grids after this many sweeps, which both have converged by then."""
    if not installed("pgmax"):
        return
    for side in GRIDS:
        edges = grid(side, side)
        model, couplings = spins(edges)
        ours = partial(mf.belief_propagation, model, max_iter=SWEEPS, tol=0, damping=0.0,
                       n_threads=1)  # fmt: skip
        mean, solvers, notes = ours().mean, {"ours": ours}, {}
        for double in (False, True):
            name = f"PGMax, float{64 if double else 32}"
            make = partial(pgmax, edges, couplings, model.prior.field, double,
                           num_iters=SWEEPS, damping=0.0, temperature=1.0)  # fmt: skip
            solvers[name], seconds = built(make)
            gap = abs(np.tanh(solvers[name]() / 2) - mean).max() / 2
            assert gap < 1e-3, f"{name} differs by {gap}"
            notes[name] = f"marginals differ by {gap:.1g} at most; its graph built in " + show(
                seconds
            )
        times = interleaved(solvers, repeats)
        task = f"{SWEEPS} sweeps of sum-product, Ising grid {side} x {side}, float64"
        for name, note in notes.items():
            yield line(task, times["ours"], times[name], name, note)


def max_product(repeats):
    """The most probable state of a grid: after the same sweeps, and as ours is by default.

    By default it sweeps until messages converge or cycle, and improves the state, which takes
    much longer than the sweeps.
    """
    if not installed("pgmax"):
        return
    sweeps = dict(max_iter=SWEEPS, search=False)
    names = f"{SWEEPS} sweeps of max-product", "most probable state, default options"
    for side, options, name in zip(MAX_GRIDS, (sweeps, {}), names, strict=True):
        edges = grid(side, side)
        model, couplings = spins(edges)
        field = model.prior.field
        ours = partial(mf.most_probable, model, n_threads=1, **options)
        peer, seconds = built(
            partial(pgmax, edges, couplings, field, False,
                    num_iters=SWEEPS, damping=0.5, temperature=0.0)
        )  # fmt: skip
        values = [
            states @ field + couplings @ states[edges].prod(1)
            for states in (ours().assignment, np.where(peer() > 0, 1.0, -1.0))
        ]
        times = interleaved({"ours": ours, "PGMax": peer}, repeats)
        note = "log-weight of the state {:.6g} beside {:.6g}; ".format(*values)
        note += f"its graph built in {show(seconds)}"
        task = f"{name}, Ising grid {side} x {side}"
        yield line(task, times["ours"], times["PGMax"], f"PGMax, float32, {SWEEPS} sweeps", note)


# --- elimination --------------------------------------------------------------------------------


def by_junction_tree(junction_tree):
    """Probabilities of state 1 of all units from pgmpy's `BeliefPropagation`, calibrated anew."""
    junction_tree.calibrate()
    probability = {}
    for clique, table in junction_tree.get_clique_beliefs().items():
        for unit in clique:
            if unit not in probability:
                summed = [k for k in clique if k != unit]
                values = table.marginalize(summed, inplace=False).values if summed else table.values
                probability[unit] = values[1] / values.sum()
    return np.array([probability[k] for k in range(len(probability))])


def elimination(repeats):
    """Exact marginals of all units."""
    if not installed("pgmpy"):
        return
    from pgmpy.inference import BeliefPropagation

    graphs = {"Ising grid {} x {}".format(*STRIP): grid(*STRIP)}
    graphs[f"random tree of {TREE} spins"] = tree(TREE)
    for name, edges in graphs.items():
        model, _ = spins(edges)
        junction_tree, seconds = built(partial(BeliefPropagation, mf.convert.to_pgmpy(model)))
        solvers = {
            "ours": partial(mf.exact, model),
            "pgmpy": partial(by_junction_tree, junction_tree),
        }
        np.testing.assert_allclose(solvers["pgmpy"](), (1 + solvers["ours"]().mean) / 2, atol=1e-10)
        times = interleaved(solvers, repeats)
        note = f"its junction tree built in {show(seconds)}"
        task = f"exact marginals, {name}"
        yield line(task, times["ours"], times["pgmpy"], "pgmpy, junction tree", note)


SECTIONS = {
    "sum_product": sum_product,
    "max_product": max_product,
    "elimination": elimination,
}


def main():
    """Measure, print the table, and write it to the page if asked to."""
    # Read when JAX starts.
    one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ.setdefault("XLA_FLAGS", one)
    run(__doc__, SECTIONS, MARKERS, ("numba", "numpy", "scipy", "jax", "pgmax", "pgmpy"))


if __name__ == "__main__":
    with_own_blas(main)
