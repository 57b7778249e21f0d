#!/usr/bin/env python3
"""Gap between both ends of annealed importance sampling on a trained machine, seed by seed.

Reads a machine (a model of `model.save`, or a saved estimator's `model_`), and estimates its
log-partition with each seed, forward and reverse, doubling the steps up to --max-steps. Each seed
is a line of the CSV file --output: a run that was interrupted goes on with the seeds that are not
in it. Prints the table, and on how many seeds the ends closed.
"""

import csv
import time
import warnings
from pathlib import Path

import experiment
import numpy as np

import fastmf as mf
from fastmf.datasets import load_mnist

EPILOG = """\
examples:
  python scripts/experiments/annealing.py --quick /tmp/rbm.npz
      does it run?
  python scripts/experiments/annealing.py --train 20 rbm.npz
      first train a machine of 784 x 500 units on MNIST for 20 epochs by persistent chains
  python scripts/experiments/annealing.py rbm.npz --seeds 20 --max-steps 8000
"""
COLUMNS = "seed", "n_steps", "forward", "error", "reverse", "reverse_error", "effective", \
    "reverse_effective", "seconds", "cpu_seconds", "converged"  # fmt: skip


def main(argv=None):
    options = parser().parse_args(argv)
    if options.quick:
        options.train, options.rows, options.hidden = 1, 500, 10
        options.seeds, options.chains, options.steps = 2, 20, 20
    if options.train:
        trained(options)
    model = mf.load(options.machine)
    output = options.output or options.machine.with_suffix(".annealed.csv")
    known = []
    if output.exists():
        with output.open(newline="") as file:
            known = list(csv.DictReader(file))
    seeds = range(options.seed, options.seed + options.seeds)
    for seed in sorted(set(seeds) - {int(row["seed"]) for row in known}):
        row = estimated(model, seed, options)
        known.append({name: str(value) for name, value in row.items()})
        with output.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            if len(known) == 1:
                writer.writeheader()
            writer.writerow(row)
        print(*(f"{name} {value}" for name, value in row.items()), sep="  ", flush=True)
    summary(known)


def parser():
    whole = experiment.parser(__doc__, EPILOG)
    add = whole.add_argument
    add("machine", type=Path, help="file of the model")
    add("--train", type=int, metavar="EPOCHS", help="train it first, and save it there")
    add("--hidden", type=int, default=500, metavar="N", help="hidden units [500]")
    add("--rows", type=int, metavar="N", help="training images [all]")
    add("--seed", type=int, default=0, metavar="N", help="the first one [0]")
    add("--seeds", type=int, default=20, metavar="N", help="[20]")
    add("--chains", type=int, default=300, metavar="N", help="[300]")
    add("--steps", type=int, default=1000, metavar="N", help="[1000]")
    add("--max-steps", type=int, default=2000, metavar="N", help="[2000]")
    add("--tolerance", type=float, default=0.5, metavar="NATS", help="[0.5]")
    add("--data", metavar="FOLDER", help="where the data are [$FASTMF_DATA]")
    add("--output", type=Path, metavar="FILE", help="[the machine's name with .annealed.csv]")
    add("--quick", action="store_true", help="train 10 units on 500 images; two seeds, few steps")
    return whole


def trained(options):
    X = load_mnist(options.data, split="train", binary=True).X[: options.rows]
    machine = mf.GeneralizedRBM(
        options.hidden,
        gradient="pcd",
        starts="persistent",
        n_sweeps=1,
        learning_rate=(0.02, 0.002),
        weight_scale=0.01,
        n_epochs=options.train,
        random_state=1,
    )
    machine.fit(X.astype(np.float32)).model_.save(options.machine)


def estimated(model, seed, options):
    """The figures of one seed."""
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "annealed importance sampling: not converged")
        found = mf.annealed_importance_sampling(
            model, options.chains, options.steps,
            max_steps=max(options.steps, options.max_steps), tolerance=options.tolerance, rng=seed,
        )  # fmt: skip
    figures = found.log_partition, found.error, found.reverse, found.reverse_error
    sizes = found.effective_size, found.reverse_effective_size
    seconds = time.perf_counter() - wall, time.process_time() - cpu
    rounded = [round(value, 3) for value in figures]
    others = [round(value, 1) for value in (*sizes, *seconds)]
    values = seed, found.n_steps, *rounded, *others, found.converged
    return dict(zip(COLUMNS, values, strict=True))


def summary(known):
    gaps = np.array([float(row["reverse"]) - float(row["forward"]) for row in known])
    forward = np.array([float(row["forward"]) for row in known])
    seconds = np.array([float(row["cpu_seconds"]) for row in known])
    n_closed = sum(row["converged"] == "True" for row in known)
    print(
        f"closed on {n_closed} of {len(known)} seeds; gaps {gaps.min():.2f} to {gaps.max():.2f}, "
        f"median {np.median(gaps):.2f}; forward {forward.min():.2f} to {forward.max():.2f}; "
        f"at most {seconds.max():.0f} s of processors"
    )


if __name__ == "__main__":
    experiment.run(main)
