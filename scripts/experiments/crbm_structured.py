"""Image restoration by conditional RBMs: the experiments of Ping & Ihler (2017), Section 6.

Learns by eight methods and variants of two to predict clean binary images from noisy or occluded
ones, and writes table.csv (Tables 1 to 3), pictures-TASK.png (Fig. 2), occlusion.csv and .png
(Fig. 3) and convergence.csv and .png (Fig. 4) into a folder, and each model as TASK-METHOD.npz.
"""

import csv
from pathlib import Path

import experiment
import numpy as np

import fastmf as mf
from fastmf import plotting

# Options of the estimator, by the paper's name of the method.
METHODS = {
    "LR": dict(objective="logistic"),
    "CD-1": dict(objective="cd", n_gibbs=1),
    "CD-10": dict(objective="cd", n_gibbs=10),
    "CD-PercLoss": dict(objective="perceptron", n_gibbs=10),
    "MLE-MF": dict(objective="likelihood", inference="mean_field"),
    "MLE-BP": dict(objective="likelihood", inference="bp"),
    "LSSVM": dict(objective="latent_svm"),
    "MSSVM": dict(objective="marginal_svm"),
}
# With the variants that the paper mentions: chains from random labels, and max-margin learning by
# pseudo-marginals.
ALL = METHODS | {
    "CD-10-random": dict(objective="cd", n_gibbs=10, gibbs_start="random"),
    "MSSVM-beliefs": dict(objective="marginal_svm_beliefs"),
}
# The paper's errors in percent of all pixels and of the changed ones, by task and method.
with (Path(__file__).parent / "ping_ihler.csv").open(newline="") as _file:
    PAPER = {tuple(row[:2]): tuple(row[2:]) for row in list(csv.reader(_file))[1:]}


def main(argv=None):
    options = parser().parse_args(argv)
    folder = experiment.folder(options, "crbm-structured")
    records = []
    for task in options.tasks:
        shape, (train, validation, test) = data(task, options)
        restored = {}
        for method in ALL:
            if method != "LR" and method not in options.methods:
                continue
            machine, seconds = trained(task, method, train, validation, options, folder)
            restored[method] = machine.predict(test[0])
            percent_wrong = errors(restored[method], *test)
            shown = " ".join(f"{error:7.3f}" for error in percent_wrong)
            print(f"{task:20} {method:12} {shown}  {seconds:.0f} s", flush=True)
            records.append((task, method, percent_wrong, machine.history_, seconds))
            report(records, folder)
        rows = {"corrupted": test[0], **restored, "clean": test[1]}
        shown = plotting.image_rows({name: images[:10] for name, images in rows.items()}, shape)
        experiment.picture(shown, folder / f"pictures-{task}.png")


def parser():
    made = experiment.Parser(
        __doc__, "seed", "threads", "data", "output",
        quick={"train_size": 100, "test_size": 50, "epochs": 2, "hidden": 8, "logistic_epochs": 2},
        train_size=(50_000, "images"), test_size=(10_000, "images"),
        validation_size=(10_000, "images, at most a fifth of the training images"),
        hidden=256, epochs=50, logistic_epochs=(50, "of LR"),
        sampling_epochs=(int, "of CD and PercLoss [--epochs]"), patience=(5, "epochs"),
        learning_rate=([0.05], "one, or the first and the last one, geometric between"),
        momentum=0.0, batch_size=20, weight_scale=0.01,
        search_rates=([float], "learning rates to choose from by validation [none]"),
        search_batch_sizes=([int], "batch sizes to choose from by validation [none]"),
        search_epochs=(10, "of each of these"), search_part=(0.1, "of the images"),
        search_validation=(int, "validation images; all may take longer than to learn [all]"),
    )  # fmt: skip
    add = made.add_argument
    add("--methods", nargs="+", choices=ALL, default=list(METHODS), metavar="METHOD",
        help=f"of {', '.join(ALL)} [the first eight]")  # fmt: skip
    tasks = list(dict.fromkeys(task for task, _ in PAPER))
    add("--tasks", nargs="+", default=tasks, metavar="TASK",
        help="DATA-KIND-AMOUNT: mnist or caltech, noisy-PERCENT or occluded-SIDE "
        "[the paper's six]")  # fmt: skip
    add("--start", choices=("logistic", "small"), default="logistic",
        help="of models with hidden units: LR, or small random weights [logistic]")  # fmt: skip
    return made


def corrupt(clean, kind, amount, rng, shape, patch=0):
    """Flip `amount` percent of the pixels, or set a square of that side anywhere to `patch`."""
    if kind == "noisy":
        return np.where(rng.random(clean.shape) < amount / 100, 1 - clean, clean)
    if kind != "occluded":
        raise ValueError(f"tasks are noisy or occluded, got {kind!r}.")
    images = clean.reshape(-1, *shape).copy()
    for image in images:
        top, left = (rng.integers(side - amount + 1) for side in shape)
        image[top : top + amount, left : left + amount] = patch
    return images.reshape(clean.shape)


def data(task, options):
    """Height and width, and training, validation and test pairs (corrupted, clean)."""
    name, kind, amount = task.split("-")
    patch = 0
    if name == "mnist":
        images, shape, _ = experiment.images("binary", options.data, "train")
        test = experiment.images("binary", options.data, "test").X
        n = min(options.train_size, len(images) * 5 // 6)
        train = images[:n]
        validation = images[-min(max(1, n // 5), 10000) :][: options.validation_size]
    else:
        shape = 28, 28
        # As in the file, and in the paper: the background is 1, and so are the patches. Logistic
        # regression on noisy images has an eighth more errors where the objects are 1.
        patch = 1
        train, validation, test = (
            1 - experiment.silhouettes(options.data, split)
            for split in ("train", "validation", "test")
        )
        train, validation = train[: options.train_size], validation[: options.train_size]
    rng = np.random.default_rng([options.seed, int(amount)])
    return shape, [
        (corrupt(clean, kind, int(amount), rng, shape, patch).astype(np.float32), clean)
        for clean in (train, validation, test[: options.test_size])
    ]


def trained(task, method, train, validation, options, folder):
    """The model and the seconds it took; from its file or checkpoint if there is one."""

    def fit():
        machine = untrained(task, method, options, folder).set_params(
            callbacks=[mf.evaluation.Checkpoint(folder / f"checkpoint-{task}-{method}.npz")],
            **searched(task, method, train, validation, options, folder),
        )
        return machine.fit(*train, validation_data=validation)

    return experiment.from_file(folder / f"{task}-{method}.npz", mf.ConditionalRBM, fit)


def untrained(task, method, options, folder):
    """The machine of a method, which starts from the logistic regression of the task."""
    init, n_epochs = None, options.epochs
    if method == "LR":
        n_epochs = options.logistic_epochs
    elif options.start == "logistic":
        init = mf.ConditionalRBM.load(folder / f"{task}-LR.npz").model_
    if method.startswith("CD"):
        n_epochs = options.sampling_epochs or n_epochs
    rates = options.learning_rate[0], options.learning_rate[-1]
    return mf.ConditionalRBM(
        options.hidden, **ALL[method], n_epochs=n_epochs, learning_rate=rates, init=init,
        momentum=options.momentum, l2=0.0, weight_scale=options.weight_scale, standardize=False,
        batch_size=options.batch_size, early_stopping=options.patience,
        n_threads=options.threads, random_state=options.seed,
    )  # fmt: skip


def searched(task, method, train, validation, options, folder):
    """Learning rate and batch size by validation; those found before are read from the file."""
    if not (options.search_rates or options.search_batch_sizes):
        return {}
    results = experiment.Results(folder / f"{task}-{method}-search.jsonl")
    first_part = [part[: max(1, round(options.search_part * len(part)))] for part in train]
    validation = tuple(part[: options.search_validation] for part in validation)
    init, path = None, folder / f"{task}-LR-few.npz"
    if method != "LR" and options.start == "logistic":
        if not path.exists():  # few images cannot better the LR of all images
            machine = untrained(task, "LR", options, folder)
            machine.set_params(**searched(task, "LR", train, validation, options, folder))
            machine.fit(*first_part, validation_data=validation).save(path)
        init = mf.ConditionalRBM.load(path).model_
    for size in options.search_batch_sizes or [options.batch_size]:
        for rate in options.search_rates or options.learning_rate[:1]:
            machine = untrained(task, method, options, folder).set_params(
                n_epochs=options.search_epochs, batch_size=size, learning_rate=rate, init=init
            )
            results.get(f"{size} {rate:g}", validation_error, machine, first_part, validation)
    size, rate = min(results.values, key=results.values.get).split()
    return {"batch_size": int(size), "learning_rate": float(rate)}


def validation_error(machine, train, validation):
    """Smallest percent of wrong pixels of the validation images in an epoch of learning."""
    machine.fit(*train, validation_data=validation)
    return 100 * (1 - max(machine.history_["validation_accuracy"]))


def errors(restored, corrupted, clean):
    """Percent of wrong pixels, among all and among those that were changed."""
    wrong, changed = restored != clean, corrupted != clean
    return 100 * wrong.mean(), 100 * wrong[changed].mean()


def gain(error, standard):
    """The part of LR's errors that is avoided, in percent."""
    return f"{100 * (1 - error / standard):.1f}" if standard else ""


def report(records, folder):
    """Write all tables from the results so far, and Figs. 3 and 4."""
    header = ["task", "method", "all", "changed", "paper all", "paper changed", "gain over LR",
              "paper gain", "seconds"]  # fmt: skip
    rows, converged, sizes, by_method, fractions = [], [], [], {}, {}
    of_logistic = {task: errors[0] for task, method, errors, *_ in records if method == "LR"}
    for task, method, percent_wrong, history, seconds in records:
        paper, standard = PAPER.get((task, method), ("", "")), PAPER.get((task, "LR"))
        gains = [gain(percent_wrong[0], of_logistic[task])]
        gains.append(gain(float(paper[0]), float(standard[0])) if paper[0] else "")
        shown = [f"{error:.3f}" for error in percent_wrong]
        rows.append([task, method, *shown, *paper, *gains, f"{seconds:.0f}"])
        curve = list(zip(history["epoch"], history["converged"], strict=True))
        converged += [(task, method, *pair) for pair in curve]
        if method == "MLE-BP":
            fractions[task] = curve
        data, kind, amount = task.split("-")
        if kind == "occluded":
            sizes.append((data, amount, method, *shown))
            if data == "mnist":
                by_method.setdefault(method, []).append((int(amount), percent_wrong[1]))
    experiment.table(folder / "table.csv", header, rows)
    header = "task", "method", "epoch", "fraction converged"
    experiment.table(folder / "convergence.csv", header, converged)
    experiment.table(folder / "occlusion.csv", ("data", "side", "method", "all", "changed"), sizes)
    experiment.curves(fractions, folder / "convergence.png", "fraction converged (MLE-BP)")
    sides = {name: sorted(points) for name, points in by_method.items()}
    path, side = folder / "occlusion.png", "side of the patch (pixels)"
    experiment.curves(sides, path, "error (% of changed)", side)


if __name__ == "__main__":
    experiment.run(main)
