"""Log-likelihoods of held-out sequences under Potts machines, by penalty, in nats a position.

Held out are clusters of sequences of at least 80 % identity to one another, or the sequences of a
FASTA file; both parts are weighted at that identity, and log Z is annealed from both ends. Writes
held_out.csv into the folder --output.
"""

import time
from pathlib import Path

import experiment
import numpy as np
import sequences
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

import fastmf as mf
from fastmf.datasets import load_alignment, sequence_weights
from fastmf.evaluation import annealed_importance_sampling

IDENTITY, SHARE, SMALLEST_L2_FIELD = 0.8, 0.25, 1e-4


def main(argv=None):
    made = experiment.Parser(
        __doc__, "seed", "data", "output",
        quick={"family": "chain", "splits": 1, "l2": [0.03], "chains": 50, "steps": 80},
        l2=([0.03], "penalties of couplings"), splits=(1, "splits, of the seeds from --seed on"),
        solver=("likelihood", "of PottsMachine"), chains=(200, "of annealing"), steps=500,
        inner=(False, "hold out a quarter of the training rows of --test in place of its rows"),
    )  # fmt: skip
    made.add_argument("family", nargs="?", default="RF00379", help="[RF00379]")
    made.add_argument("--test", type=Path, metavar="FASTA", help="sequences held out")
    options = made.parse_args(argv)
    folder = experiment.folder(options, "held-out-sequences")
    rows = []
    for seed in range(options.seed, options.seed + options.splits):
        train, test = parts(options, seed)
        for l2 in options.l2:
            row = {"split": seed, "rows": len(train), "test_rows": len(test)}
            rows.append(row | held_out(train, test, l2, options))
            print(*(f"{name} {value}" for name, value in rows[-1].items()), sep="  ", flush=True)
    experiment.table_of(folder / "held_out.csv", rows)


def parts(options, seed):
    """Distinct sequences to learn from, and to test."""
    if options.family == "chain":
        return divided(sequences.chain().X, seed)
    family = sequences.FAMILIES[options.family]
    path = experiment.in_folder(options.data, f"sequences/{family.file}")
    X = distinct(load_alignment(path, family.alphabet, family.focus).X)
    if options.test is None:
        return divided(X, seed)
    test = distinct(load_alignment(options.test, family.alphabet).X)
    held_out = set(map(bytes, test))
    train = X[[bytes(row) not in held_out for row in X]]
    return divided(train, seed) if options.inner else (train, test)


def distinct(X):
    """Rows without repetitions, in their order."""
    return X[np.sort(np.unique(X, axis=0, return_index=True)[1])]


def divided(X, seed):
    """Hold out whole clusters, by single linkage, of a quarter of all rows at most."""
    one_hot = (X[:, :, None] == np.arange(X.max() + 1)).reshape(len(X), -1).astype(np.float32)
    similar = one_hot @ one_hot.T >= IDENTITY * X.shape[1]
    cluster = connected_components(coo_array(similar), directed=False)[1]
    order = np.random.default_rng(seed).permutation(cluster.max() + 1)
    sizes = np.bincount(cluster)[order]
    chosen = np.isin(cluster, order[np.cumsum(sizes) <= SHARE * len(X)])
    return X[~chosen], X[chosen]


def held_out(train, test, l2, options):
    """Fit, and bracket the weighted mean log-likelihoods of both parts; a position each."""
    weights, start = sequence_weights(train, IDENTITY), time.process_time()
    fields = SMALLEST_L2_FIELD if options.solver == "likelihood" else l2
    machine = mf.PottsMachine(
        n_states=int(train.max()) + 1, l2=l2, l2_field=fields, solver=options.solver
    ).fit(train, sample_weight=weights)
    seconds = time.process_time() - start
    annealed = annealed_importance_sampling(
        machine.model_, options.chains, options.steps, rng=0, tolerance=np.inf
    )
    of_test = sequence_weights(test, IDENTITY)
    value = -np.average(machine.energy(test), weights=of_test)
    results = {
        "lower": value - annealed.reverse,
        "upper": value - annealed.log_partition,
        "error": np.hypot(annealed.error, annealed.reverse_error),
        "train": -np.average(machine.energy(train), weights=weights) - annealed.log_partition,
    }
    sizes = {"effective": weights.sum(), "test_effective": of_test.sum()}
    sizes = {name: round(float(size)) for name, size in sizes.items()}
    results = {name: round(float(x) / train.shape[1], 4) for name, x in results.items()}
    return sizes | {"solver": options.solver, "l2": l2} | results | {"seconds": round(seconds)}


if __name__ == "__main__":
    experiment.run(main)
