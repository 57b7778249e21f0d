"""Measure how often `reliable` detects wrong answers and rejects right ones, without exact sums.

python scripts/reliability.py            the table of docs/project/design.md
python scripts/reliability.py --quick    few machines, for a test of the script

Random machines are small enough for exact sums, which `reliable` may not use. An answer is wrong if
the error of its log-partition exceeds 1 nat, or errors of means exceed 0.05 of the range of a unit
on average or 0.2 for any unit; it is right within half of these limits. Other answers are ignored.
"""

import itertools
import time
from collections import defaultdict
from functools import partial

import numpy as np
from timing import grid, parser, symmetric

import fastmf as mf
from fastmf.inference.checks.judge import reasons_of
from fastmf.inference.fixed_point import Question

NATS, AVERAGE, LARGEST = 1.0, 0.05, 0.2


def fields(rng, n):
    return rng.choice([0.0, 0.1, 0.3, 1.0]) * rng.normal(size=n)


def rbm(rng, visible=(8, 15), hidden=(6, 11), sparse=False):
    n, m = rng.integers(*visible), rng.integers(*hidden)
    units = rng.choice([mf.Ising, mf.Bernoulli])
    strength = np.exp(rng.uniform(np.log(0.3), np.log(3.0))) * (1 + (units is mf.Bernoulli))
    weights = rng.normal(size=(n, m))
    if sparse:
        share = rng.uniform(0.15, 0.4)
        weights = weights * (rng.random((n, m)) < share) * strength
    else:
        weights = weights * strength / np.sqrt((n + m) / 2) * 1.5
    centre = rng.random() < 0.5 and units is mf.Bernoulli
    a, c = fields(rng, n), fields(rng, m)
    if centre:
        a, c = a - weights.sum(1) / 2, c - weights.sum(0) / 2
    return mf.RBM(weights, units(a), units(c))


def random_edges(rng, n, smallest, largest):
    i, j = np.triu_indices(n, 1)
    coupled = rng.random(len(i)) < rng.uniform(smallest, largest)
    return np.stack([i[coupled], j[coupled]], 1)


def sherrington_kirkpatrick(rng):
    n = rng.integers(10, 16)
    beta = np.exp(rng.uniform(np.log(0.2), np.log(3.0)))
    couplings = symmetric(beta * rng.normal(size=n * (n - 1) // 2) / np.sqrt(n), n)
    return mf.BoltzmannMachine(couplings, mf.Ising(fields(rng, n)))


def curie_weiss(rng):
    n = rng.integers(10, 17)
    couplings = symmetric(rng.uniform(0.3, 3.0) / n, n)
    return mf.BoltzmannMachine(couplings, mf.Ising(np.full(n, rng.choice([0.0, 0.005, 0.02, 0.1]))))


def lattice(rng):
    sides = rng.integers(3, 6), rng.integers(3, 7)
    edges, n = grid(*sides), np.prod(sides)
    signs = np.ones(len(edges)) if rng.random() < 0.5 else rng.choice([-1.0, 1.0], len(edges))
    couplings = symmetric(signs * rng.uniform(0.1, 1.2), n, edges)
    return mf.BoltzmannMachine(couplings, mf.Ising(fields(rng, n)))


def sparse_graph(rng):
    n = rng.integers(12, 19)
    edges = random_edges(rng, n, 2 / n, 5 / n)
    values = rng.uniform(0.3, 2.0) * rng.normal(size=len(edges))
    return mf.BoltzmannMachine(symmetric(values, n, edges), mf.Ising(fields(rng, n)))


def deep(rng):
    sizes = rng.integers(5, 9, 3)
    units = rng.choice([mf.Ising, mf.Bernoulli])
    scale = np.exp(rng.uniform(np.log(0.2), np.log(2.0))) * (1 + (units is mf.Bernoulli))
    weights = [scale * rng.normal(size=pair) / 2 for pair in itertools.pairwise(sizes)]
    return mf.DBM(weights, [units(fields(rng, n)) for n in sizes])


def potts_rbm(rng):
    groups, q, m = rng.integers(3, 6), rng.integers(3, 5), rng.integers(4, 8)
    weights = rng.uniform(0.3, 3.0) * rng.normal(size=(groups * q, m))
    visible = mf.Categorical(fields(rng, groups * q).reshape(groups, q))
    return mf.RBM(weights, visible, mf.Bernoulli(fields(rng, m)))


def potts(tables, rng):
    if rng.random() < 0.5:
        n = 2 * rng.integers(3, 5)
        edges = grid(2, n // 2)
    else:
        n = rng.integers(5, 8)
        edges = random_edges(rng, n, 0.4, 1.0)
    q = rng.integers(3, 5)
    couplings = np.zeros((n, q, n, q))
    for (i, j), table in zip(edges, tables(rng, len(edges), q), strict=True):
        couplings[i, :, j], couplings[j, :, i] = table, table.T
    prior = mf.Categorical(fields(rng, n * q).reshape(n, q))
    return mf.BoltzmannMachine(couplings.reshape(n * q, n * q), prior)


# Couplings of pairs of groups, (n_edges, q, q).
TABLES = {
    "random": lambda rng, n, q: rng.uniform(0.2, 2.0) * rng.normal(size=(n, q, q)),
    "ferromagnetic": lambda rng, n, q: rng.uniform(0.1, 2.0) * np.tile(np.eye(q), (n, 1, 1)),
}


def clock_tables(rng, n, q):
    angle = 2 * np.pi * np.arange(q) / q
    shift = rng.choice([0.0, 1.0]) * rng.uniform(0, 2 * np.pi, (n, 1, 1))
    return rng.uniform(0.2, 2.5) * np.cos(angle[:, None] - angle + shift)


def binomial(rng):
    trials, n = rng.integers(2, 5), rng.integers(5, 8)
    scale = rng.uniform(0.1, 1.5) / trials
    if rng.random() < 0.5:
        m = rng.integers(3, 7)
        weights = scale * rng.normal(size=(n, m)) * 2 + rng.choice([0.0, scale / 2])
        a, c = fields(rng, n) - trials * weights.sum(1) / 4, fields(rng, m)
        c = c - trials * weights.sum(0) / 2
        return mf.RBM(weights, mf.Binomial(a, trials), mf.Bernoulli(c))
    values = scale * rng.normal(size=n * (n - 1) // 2) + rng.choice([0.0, scale / 2])
    couplings = symmetric(values, n)
    field = fields(rng, n) - trials * couplings.sum(1) / 2
    return mf.BoltzmannMachine(couplings, mf.Binomial(field, trials))


ENSEMBLES = {
    "two values": {
        "random_rbm": rbm, "sparse_rbm": partial(rbm, sparse=True),
        "sherrington_kirkpatrick": sherrington_kirkpatrick, "curie_weiss": curie_weiss,
        "lattice": lattice, "sparse_graph": sparse_graph, "deep": deep,
    },
    "many values": {
        "potts_rbm": potts_rbm, "potts_graph": partial(potts, TABLES["random"]),
        "ferromagnetic_potts": partial(potts, TABLES["ferromagnetic"]),
        "clock": partial(potts, clock_tables), "binomial": binomial,
    },
    "large layers": {
        "large_rbm": lambda rng: rbm(rng, (20, 61), (15, 18), sparse=rng.random() < 0.5)
    },
}  # fmt: skip


def layers(x):
    return np.concatenate(x) if isinstance(x, tuple) else x


def ranges_of(model):
    parts = []
    for prior in model.layers:
        width = 2.0 if isinstance(prior, mf.Ising) else getattr(prior, "n", 1.0)
        parts.append(np.broadcast_to(width, prior.moments(0.0, 0.0)[0].shape))
    return np.concatenate(parts)


SOLVERS = {
    "tap": mf.tap,
    "relaxed_bp": mf.relaxed_bp,
    "adaptive_tap": mf.adaptive_tap,
    "belief_propagation": mf.belief_propagation,
    "tap, order 1": partial(mf.tap, order=1),
}


def measured(solve, models):
    """Yield error, reason (None: unknown), and CPU seconds of solver and judge, for each model."""
    for model, right, width in models:
        start = time.process_time()
        try:
            answer = solve(model)
        except ValueError:  # the solver does not support categorical units
            continue
        solved = time.process_time()
        if not answer.converged:
            continue
        question = answer.__dict__["_check"]
        if not isinstance(question, Question):  # exact for a forest
            continue
        reasons = reasons_of(answer, question, exact_sums=False)
        end = time.process_time()
        # Largest ratio of an error to its limit: wrong beyond 1, right up to 1/2.
        off = abs(layers(answer.mean) - layers(right.mean)) / width
        nats = abs(answer.log_partition - right.log_partition)
        error = max(nats / NATS, off.mean() / AVERAGE, off.max() / LARGEST)
        yield error, None if reasons is None else reasons[0], solved - start, end - solved


def row_of(solver, kind, results):
    error = np.array([r[0] for r in results])
    judged = [r[1] is not None for r in results]
    flagged = np.array([bool(r[1]) for r in results])
    wrong, right = error > 1, error <= 0.5
    caught, false = (100 * flagged[part].sum() / max(part.sum(), 1) for part in (wrong, right))
    ms = [1e3 * np.median([r[k] for r in results]) for k in (2, 3)]
    return (
        f"| {solver} | {kind} | {wrong.sum()}, {right.sum()} | {caught:.1f} % "
        f"| {false:.1f} % | {ms[0]:.1f} + {ms[1]:.1f} |"
        + ("" if all(judged) else f" {judged.count(False)} unknown")
    )


def main():
    command_line = parser(__doc__)
    command_line.add_argument("--quick", action="store_true", help="three machines of each kind")
    options = command_line.parse_args()
    print("| solver | units | wrong, correct | detected | false alarms | ms: solve, check |")
    print("|---|---|---|---|---|---|")
    for kind, ensembles in ENSEMBLES.items():
        results = defaultdict(list)
        for ensemble, draw in ensembles.items():
            rng, models = np.random.default_rng([0, *ensemble.encode()]), []
            for _ in range(3 if options.quick else 100):
                model = draw(rng)
                flat = model.bipartite() if isinstance(model, mf.DBM) else model
                models.append((flat, mf.exact(flat), ranges_of(flat)))
            for name, solve in SOLVERS.items():
                results[name] += measured(solve, models)
        for name, rows in results.items():
            if rows:
                print(row_of(name, kind, rows), flush=True)


if __name__ == "__main__":
    main()
