"""TAP machines on images: Figs. 3, 4, 8, 9 and 11 of Tramel et al., Phys. Rev. X 8 (2018) 041006.

Writes likelihood (Figs. 3 and 11; dashed: test images) and, of machines without a second hidden
layer, solutions (Fig. 3 by Eq. 39), fields-N and activity-N (Fig. 4), denoising and restored
(Fig. 8), digit (Fig. 9) as PNG and CSV into a folder, and each machine as rbm-N.npz. Layers of a
deep machine are trained one by one, and then together; a run that resumes repeats the former.
Results: tap_machines.md.
"""

import time

import experiment
import numpy as np

import fastmf as mf
from fastmf import plotting
from fastmf.evaluation import (
    flip,
    log_likelihood,
    matthews_correlation,
    nearest_neighbour,
    pointwise_estimate,
    solutions,
)

FLIP_PROBABILITY = tuple(float(k / 20) for k in range(11))
# Rows that lead to the solutions of Eq. 39.
SOLUTION_ROWS = 10_000
# Rows that the report of a deep machine's log-partition starts from.
REPORT_ROWS = 1000
# Probability of a flip and number of images that are shown.
SHOWN, N_SHOWN = 0.2, 20


def main(argv=None):
    options = parser().parse_args(argv)
    default = [(256,)] if options.dataset == "faces" else [(25,), (50,), (100,), (500,)]
    options.hidden = options.hidden or default
    folder = experiment.folder(options, f"tap-rbm-{options.dataset}")
    train, test = experiment.train_and_test(options.dataset, options)
    machines = {
        name_of(sizes): trained(sizes, train.X, test.X, options, folder) for sizes in options.hidden
    }
    histories = {name: machine.history_ for name, machine in machines.items()}
    experiment.report_likelihoods(histories, folder, "hidden_units", " hidden units")
    machines = {name_of(n): machines[name_of(n)] for n in options.hidden if len(n) == 1}
    if not machines:
        return
    by_solutions(machines, options, train.X[:SOLUTION_ROWS], test.X, folder)
    for machine in machines.values():
        fields(machine, train.shape, test.X, folder)
    if options.dataset == "binary":
        methods = methods_of(machines, train, options)
        denoising(methods, test.X, train.shape, options, folder)
        digit(methods, test.X[0], train.shape, options, folder)


def parser():
    made = experiment.Parser(
        __doc__, "seed", "data", "output", "dataset",
        quick={"epochs": 5, "rows": 2000, "hidden": [(25,), (30, 15)], "learning_rate": [0.05]},
        epochs=100, rows=(int, "training images"), sweeps=(3, "of TAP a step"),
        learning_rate=([float], "of all epochs, or of the first and the last [the paper's]"),
        follow=([1, 5, 10, 20, 50, 100], "epochs that are kept, and measured by Eq. 39"),
        starts=(10, "mean-field starts in denoising"), centred=(False, "centred gradients"),
        noisy=(False, "learn from images of which a tenth is flipped as starts"),
        pretraining=(5, "epochs of each layer of a deep machine alone"),
        hours=(float("inf"), "of training (of all layers together), after which it ends"),
    )  # fmt: skip
    made.add_argument("--hidden", type=sizes_of, nargs="+", metavar="N[,N]",
                      help="hidden units of each layer [25 50 100 500, of faces 256]")  # fmt: skip
    return made


def sizes_of(text):
    return tuple(map(int, text.split(",")))


def name_of(sizes):
    return "-".join(map(str, sizes))


def trained(sizes, X, test, options, folder):
    """The machine with hidden layers of these sizes, from its checkpoint as far as there is one."""
    name, ends = name_of(sizes), []

    def save_or_end(state):
        if state.epoch in options.follow:
            state.model.save(folder / f"rbm-{name}-{state.epoch}.npz")
        ends.append(time.perf_counter())
        return ends[-1] - ends[0] > 3600 * options.hours

    given = options.learning_rate
    settings = {"learning_rate": (given[0], given[-1])} if given else {}
    checkpoint = mf.evaluation.Checkpoint(folder / f"checkpoint-{name}.npz")
    settings |= {
        "momentum": 0.5, "centred": options.centred, "n_sweeps": options.sweeps,
        "n_epochs": options.epochs, "callbacks": [save_or_end, checkpoint],
        "starts": "noise" if options.noisy else "data",
    }  # fmt: skip
    if len(sizes) == 1:
        machine = experiment.machine(options, sizes[0], gradient="tap", **settings)
    else:
        settings = {"learning_rate": 0.005, "batch_size": 100, "l2": 0.001} | settings
        machine = mf.DeepBoltzmannMachine(
            sizes, pretraining_epochs=options.pretraining, random_state=options.seed,
            verbose=experiment.VERBOSE, **settings,
        )  # fmt: skip
    start = time.perf_counter()
    machine.fit(X, validation_data=test)
    machine.save(folder / f"rbm-{name}.npz")
    print(
        f"{name} hidden units: log-likelihood per unit {machine.history_['log_likelihood'][-1]:.4f}"
        f", test {machine.history_['validation_log_likelihood'][-1]:.4f}, "
        f"{time.perf_counter() - start:.0f} s",
        flush=True,
    )
    if len(sizes) > 1:
        report = mf.evaluation.log_partition_report(machine.model_, X[:REPORT_ROWS])
        print(report, flush=True)
    return machine


def by_solutions(machines, options, X, test, folder):
    """Fig. 3 by Eq. 39: per unit, log-partitions of the distinct solutions that rows lead to."""
    header = ("hidden_units", "epoch", "solutions", "not_converged", "mean", "log_sum_exp",
              "mean_test", "log_sum_exp_test", "free_energy_spread")  # fmt: skip
    rows, results = [], experiment.Results(folder / "solutions.jsonl")
    for n in machines:
        for epoch in sorted(e for e in options.follow if e <= options.epochs):
            path = folder / f"rbm-{n}-{epoch}.npz"
            rows.append((n, epoch, *results.get(path.stem, measured, path, X, test)))
    experiment.table(folder / "solutions.csv", header, rows)


def measured(path, X, test):
    """Number of solutions, of those not converged, likelihoods per unit by both, and spread."""
    model = mf.load(path)
    distinct = solutions(model, X, tol=1e-8, max_iter=10_000)
    n_units = sum(layer.shape[1] for layer in (distinct.visible, distinct.hidden))
    log_partitions = distinct.log_partition.mean(), np.logaddexp.reduce(distinct.log_partition)
    likelihoods = [
        float((log_likelihood(model, rows, 0.0).mean() - value) / n_units)
        for rows in (X, test)
        for value in log_partitions
    ]
    spread = float(np.ptp(distinct.free_energy))
    return [len(distinct.free_energy), int((~distinct.converged).sum()), *likelihoods, spread]


def fields(machine, shape, X, folder):
    """Fig. 4: by the l_0.1 norm of the couplings, and by the mean of the unit."""
    weights = machine.weights_
    rankings = {
        "fields": (abs(weights) ** 0.1).sum(0),
        "activity": abs(machine.transform(X)).mean(0),
    }
    for name, values in rankings.items():
        drawn = plotting.receptive_fields(weights, shape, order=np.argsort(-values))
        experiment.picture(drawn, folder / f"{name}-{weights.shape[1]}.png")


def methods_of(machines, train, options):
    """Functions of flipped images and the probability of a flip that restore the images."""
    images = {"n_starts": options.starts, "candidates": train.X}

    def by_tap(machine, **starts):
        return lambda Y, p: machine.denoise(Y, flip_probability=p, **starts)

    methods = {
        "pointwise optimal": lambda Y, p: pointwise_estimate(Y, train.X.mean(0), p),
        "nearest neighbour": lambda Y, p: nearest_neighbour(Y, train.X),
        "nearest of 1,000": lambda Y, p: nearest_neighbour(Y, train.X[:1000]),
    }
    methods |= {f"TAP, {n}": by_tap(machine) for n, machine in machines.items()}
    return methods | {f"TAP, {n}, from images": by_tap(m, **images) for n, m in machines.items()}


def denoising(methods, test, shape, options, folder):
    """Fig. 8, and some of the restored images."""
    rng, scores, rows = np.random.default_rng(options.seed), {}, []
    for p in FLIP_PROBABILITY:
        noisy = flip(test, p, rng)
        estimates = {name: method(noisy, p) for name, method in methods.items()}
        if p == SHOWN:
            shown = {"test images": test, "flipped": noisy, **estimates}
            shown = {name: images[:N_SHOWN] for name, images in shown.items()}
            experiment.picture(plotting.image_rows(shown, shape), folder / "restored.png")
        for name, estimate in estimates.items():
            score = matthews_correlation(test, estimate).mean()
            scores.setdefault(name, []).append(score)
            rows.append((p, name, f"{score:.4f}"))
    for name, values in scores.items():
        print(f"{name:32}" + "".join(f"{value:7.3f}" for value in values))
    curves = {name: zip(FLIP_PROBABILITY, values, strict=True) for name, values in scores.items()}
    path = folder / "denoising.png"
    experiment.curves(curves, path, "Matthews correlation", "flip probability")
    header = "flip_probability", "method", "matthews_correlation"
    experiment.table(folder / "denoising.csv", header, rows)


def digit(methods, image, shape, options, folder):
    """Fig. 9: a pixel that is flipped at some probability is flipped at all larger ones."""
    uniform = np.random.default_rng(options.seed).random(len(image))
    noisy = [np.where(uniform < p, 1 - image, image)[None] for p in FLIP_PROBABILITY]
    estimates = {"noisy": np.concatenate(noisy)}
    for name, method in methods.items():
        restored = [method(Y, p) for Y, p in zip(noisy, FLIP_PROBABILITY, strict=True)]
        estimates[name] = np.concatenate(restored)
    experiment.picture(plotting.image_rows(estimates, shape), folder / "digit.png")
    clean = np.tile(image, (len(noisy), 1))
    scores = {name: matthews_correlation(clean, restored) for name, restored in estimates.items()}
    header = ("method", *(f"p = {p:g}" for p in FLIP_PROBABILITY))
    rows = [(name, *(f"{score:.4f}" for score in row)) for name, row in scores.items()]
    experiment.table(folder / "digit.csv", header, rows)


if __name__ == "__main__":
    experiment.run(main)
