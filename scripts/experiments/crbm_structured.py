#!/usr/bin/env python3
"""Image restoration by conditional RBMs: the experiments of Ping & Ihler (2017), Section 6.

Learns by eight methods to predict clean binary images from noisy or occluded ones, and writes into
a folder:

  table.csv             error by method and task, over all pixels and over those that were changed,
                        and the relative gain over LR in the former, beside the paper's figures;
                        and the error over changed ones at the threshold of the beliefs at which no
                        more of the others are wrong than by LR
  pictures-TASK.png     clean, corrupted and restored test images (Fig. 2)
  occlusion.csv, .png   error by size of the patch; the figure if several sizes were run (Fig. 3)
  convergence.csv, .png fraction of rows whose inference converges to 1e-3, by epoch (Fig. 4)

and each model as TASK-METHOD.npz, the errors of a search as TASK-METHOD-search.jsonl. A run that
was stopped resumes if it is started again with the same options and the same folder.

Without a search all methods have the same learning rate and batch size. A search learns from the
first tenth of the images (--search-part) with each rate and batch size, and takes the pair with the
smallest validation error.
"""

import json
import time

import experiment
import numpy as np

import fastmf as mf
from fastmf import plotting
from fastmf.datasets import load_mnist

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
THRESHOLDS = np.linspace(0.02, 0.98, 97)
# Error in percent of all pixels and of the changed ones, in the order of METHODS.
PAPER = {
    "mnist-noisy-10": "1.960/12.531 1.925/12.229 1.816/11.103 1.760/11.121 1.862/11.319 "
    "1.688/10.718 1.807/11.565 1.751/11.023",
    "mnist-noisy-20": "4.088/12.609 4.012/12.597 3.995/11.273 3.970/10.876 3.917/10.939 "
    "3.691/10.409 3.910/11.175 3.804/10.627",
    "mnist-occluded-8": "1.468/61.304 1.814/63.130 1.707/67.925 1.394/45.684 1.492/49.553 "
    "1.329/39.785 1.496/44.037 1.391/41.829",
    "mnist-occluded-12": "3.498/53.971 3.983/58.376 3.921/63.237 3.483/35.755 3.477/40.703 "
    "3.117/36.233 3.468/39.140 3.273/35.712",
    "caltech-noisy-20": "5.653/11.460 5.876/12.423 5.736/12.013 5.622/10.808 5.617/11.083 "
    "5.445/10.731 5.628/11.468 5.549/11.389",
    "caltech-occluded-12": "4.771/16.587 5.033/20.300 5.149/21.087 5.081/15.102 4.692/15.995 "
    "4.548/16.541 4.703/16.014 4.534/14.918",
}


def main(argv=None):
    options = parser().parse_args(argv)
    if options.quick:
        options.train_size, options.test_size, options.epochs = 100, 50, 2
        options.hidden, options.logistic_epochs = 8, 2
    folder = experiment.folder(options, "crbm-structured")
    by_side = [f"mnist-occluded-{side}" for side in options.sides]
    records = []
    for task in dict.fromkeys([*options.tasks, *by_side]):
        shape, (train, validation, test) = data(task, options)
        restored = {}
        for method in METHODS:
            if method != "LR" and method not in options.methods:
                continue
            machine, seconds = trained(task, method, train, validation, options, folder)
            restored[method] = machine.predict(test[0])
            percent_wrong = (
                *errors(restored[method], *test),
                matched_error(machine.predict_proba(test[0]), restored["LR"], *test),
            )
            shown = " ".join(f"{error:7.3f}" for error in percent_wrong)
            print(f"{task:20} {method:12} {shown}  {seconds:.0f} s", flush=True)
            records.append((task, method, percent_wrong, machine.history_, seconds))
            report(records, folder)
        pictures(test, restored, shape, folder / f"pictures-{task}.png")
    figures(records, folder)


def parser():
    made = experiment.parser(
        __doc__, "seed", "threads", "data", "output", quick="100 images, 8 hidden units, 2 epochs"
    )
    add = made.add_argument
    add("--tasks", nargs="*", default=list(PAPER), metavar="TASK",
        help="DATA-KIND-AMOUNT: mnist or caltech, noisy-PERCENT or occluded-SIDE "
        "[the paper's six]")  # fmt: skip
    add("--sides", nargs="+", type=int, default=[], metavar="N",
        help="sides of patches on MNIST, for Fig. 3: further tasks [none]")  # fmt: skip
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="[all eight]")
    add("--train-size", type=int, default=50000, metavar="N", help="training images [50000]")
    add("--test-size", type=int, default=10000, metavar="N", help="test images [10000]")
    add("--validation-size", type=int, default=10000, metavar="N", help="[10000 or a fifth]")
    add("--hidden", type=int, default=256, metavar="N", help="hidden units [256]")
    add("--epochs", type=int, default=50, metavar="N", help="[50]")
    add("--logistic-epochs", type=int, default=50, metavar="N", help="of LR [50]")
    add("--learning-rate", type=float, nargs="+", default=[0.05], metavar="RATE",
        help="one, or the first and the last one, geometric between [0.05]")  # fmt: skip
    add("--momentum", type=float, default=0.0, help="[0]")
    add("--weight-scale", type=float, default=0.01, help="[0.01]")
    add("--start", choices=("logistic", "small"), default="logistic",
        help="of models with hidden units: LR, or small random weights [logistic]")  # fmt: skip
    add("--batch-size", type=int, default=20, help="[20]")
    add("--sampling-epochs", type=int, metavar="N", help="of CD and PercLoss [--epochs]")
    add("--search-rates", nargs="+", type=float, metavar="RATE",
        help="learning rates to choose from by validation [none]")  # fmt: skip
    add("--search-batch-sizes", nargs="+", type=int, metavar="N",
        help="batch sizes to choose from by validation [none]")  # fmt: skip
    add("--search-epochs", type=int, default=10, metavar="N", help="of each of these [10]")
    add("--search-part", type=float, default=0.1, metavar="PART", help="of the images [0.1]")
    add("--search-validation", type=int, metavar="N",
        help="validation images of a search; all may take longer than to learn [all]")  # fmt: skip
    add("--patience", type=int, default=5, help="epochs without a smaller error [5]")
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
        images, shape, _ = load_mnist(options.data, split="train", binary=True)
        test = load_mnist(options.data, split="test", binary=True).X
        n = min(options.train_size, len(images) * 5 // 6)
        train, validation = (
            images[:n],
            images[-min(max(1, n // 5), 10000) :][: options.validation_size],
        )
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
    path = folder / f"{task}-{method}.npz"
    seconds_path = folder / f"{task}-{method}.json"
    if path.exists() and seconds_path.exists():
        return mf.ConditionalRBM.load(path), json.loads(seconds_path.read_text())["seconds"]
    machine = untrained(task, method, options, folder).set_params(
        callbacks=[mf.evaluation.Checkpoint(folder / f"checkpoint-{task}-{method}.npz")],
        **searched(task, method, train, validation, options, folder),
    )
    start = time.perf_counter()
    machine.fit(*train, validation_data=validation)
    seconds = time.perf_counter() - start
    machine.save(path)
    seconds_path.write_text(json.dumps({"seconds": seconds}))
    return machine, seconds


def untrained(task, method, options, folder):
    """The machine of a method, which starts from the logistic regression of the task."""
    logistic, sampling = method == "LR", method.startswith("CD")
    n_epochs = options.sampling_epochs if sampling else None
    return mf.ConditionalRBM(
        options.hidden,
        **METHODS[method],
        n_epochs=options.logistic_epochs if logistic else n_epochs or options.epochs,
        learning_rate=(options.learning_rate[0], options.learning_rate[-1]),
        momentum=options.momentum,
        l2=0.0,
        weight_scale=options.weight_scale,
        standardize=False,
        batch_size=options.batch_size,
        early_stopping=options.patience,
        init=None if logistic or options.start == "small" else logistic_of_all(task, folder),
        n_threads=options.threads,
        random_state=options.seed,
    )


def logistic_of_all(task, folder):
    """The LR from which models start."""
    return mf.ConditionalRBM.load(folder / f"{task}-LR.npz").model_


def searched(task, method, train, validation, options, folder):
    """Learning rate and batch size by validation; those found before are read from the file."""
    if not (options.search_rates or options.search_batch_sizes):
        return {}
    results = experiment.Results(folder / f"{task}-{method}-search.jsonl")
    first_part = [part[: max(1, round(options.search_part * len(part)))] for part in train]
    validation = tuple(part[: options.search_validation] for part in validation)
    init = None
    if method != "LR" and options.start == "logistic":
        init = logistic_of_few(task, train, first_part, validation, options, folder)
    for size in options.search_batch_sizes or [options.batch_size]:
        for rate in options.search_rates or options.learning_rate[:1]:
            machine = untrained(task, method, options, folder).set_params(
                n_epochs=options.search_epochs, batch_size=size, learning_rate=rate, init=init
            )

            def error(machine=machine):
                machine.fit(*first_part, validation_data=validation)
                return 100 * (1 - max(machine.history_["validation_accuracy"]))

            results.get(f"{size} {rate:g}", error)
    size, rate = min(results.values, key=results.values.get).split()
    return {"batch_size": int(size), "learning_rate": float(rate)}


def logistic_of_few(task, train, few, validation, options, folder):
    """The LR from which a search starts: few images cannot better the one of all images."""
    path = folder / f"{task}-LR-few.npz"
    if not path.exists():
        machine = untrained(task, "LR", options, folder)
        machine.set_params(**searched(task, "LR", train, validation, options, folder))
        machine.fit(*few, validation_data=validation).save(path)
    return mf.ConditionalRBM.load(path).model_


def errors(restored, corrupted, clean):
    """Percent of wrong pixels, among all and among those that were changed."""
    wrong, changed = restored != clean, corrupted != clean
    return 100 * wrong.mean(), 100 * wrong[changed].mean()


def matched_error(beliefs, standard, corrupted, clean):
    """Percent of wrong pixels among the changed ones, with no more wrong others than `standard`.

    The smallest over the thresholds of the beliefs at which that is so; NaN if there is none. All
    pixels that occlusion changes are 1, so that a lower threshold always restores more of them.
    """
    changed = corrupted != clean
    allowed = (standard != clean)[~changed].sum()
    wrong = ((beliefs > threshold) != clean for threshold in THRESHOLDS)
    errors_changed = (w[changed].mean() for w in wrong if w[~changed].sum() <= allowed)
    return 100 * min(errors_changed, default=np.nan)


def gain(error, standard):
    """The part of LR's errors that is avoided, in percent."""
    return f"{100 * (1 - error / standard):.1f}" if standard else ""


def report(records, folder):
    """Write all tables from the results so far."""
    header = ["task", "method", "all", "changed", "changed, others as LR", "paper all",
              "paper changed", "gain over LR", "paper gain", "seconds"]  # fmt: skip
    rows, converged, sizes = [], [], []
    of_logistic = {
        task: percent_wrong[0] for task, method, percent_wrong, *_ in records if method == "LR"
    }
    for task, method, percent_wrong, history, seconds in records:
        row = dict(zip(METHODS, PAPER[task].split(), strict=True)) if task in PAPER else {}
        paper = row.get(method, "/").split("/")
        gains = [gain(percent_wrong[0], of_logistic[task])]
        gains += [gain(*(float(row[k].split("/")[0]) for k in (method, "LR")))] if row else [""]
        shown = [f"{error:.3f}" for error in percent_wrong]
        rows.append([task, method, *shown, *paper, *gains, f"{seconds:.0f}"])
        converged += [
            (task, method, *pair)
            for pair in zip(history["epoch"], history["converged"], strict=True)
        ]
        if "-occluded-" in task:
            sizes.append((task.split("-")[0], task.split("-")[-1], *rows[-1][1:4]))
    experiment.table(folder / "table.csv", header, rows)
    experiment.table(
        folder / "convergence.csv", ("task", "method", "epoch", "fraction converged"), converged
    )
    experiment.table(folder / "occlusion.csv", ("data", "side", "method", "all", "changed"), sizes)


def figures(records, folder):
    """Figs. 3 and 4."""
    errors, fractions = {}, {}
    for task, method, (_, changed, _), history, _ in records:
        data, kind, amount = task.split("-")
        if (data, kind) == ("mnist", "occluded"):
            errors.setdefault(method, {})[int(amount)] = changed
        if method == "MLE-BP":
            fractions[task] = history["epoch"], history["converged"]
    if fractions:
        draw_convergence(fractions, folder / "convergence.png")
    if any(len(by_side) > 1 for by_side in errors.values()):
        draw_occlusion(errors, folder / "occlusion.png")


def draw_convergence(fractions, path):
    """Fig. 4, of epochs and converged fractions by task."""
    axes = None
    for task, (epochs, values) in fractions.items():
        axes = plotting.curves_by_epoch(
            epochs, {task: values}, label="fraction converged (MLE-BP)", ax=axes
        )
    axes.set_ylim(0, 1.05)
    experiment.picture(axes, path)


def draw_occlusion(errors, path):
    """Fig. 3, of errors by method and side of the patch."""
    axes = None
    for method, by_side in errors.items():
        by_side = dict(sorted(by_side.items()))
        axes = plotting.curves_by_epoch(
            list(by_side), {method: list(by_side.values())}, label="error (% of changed)", ax=axes
        )
    axes.set_xlabel("side of the patch (pixels)")
    experiment.picture(axes, path)


def pictures(test, restored, shape, path, n=10):
    """Fig. 2."""
    rows = {
        "corrupted": test[0][:n],
        **{k: v[:n] for k, v in restored.items()},
        "clean": test[1][:n],
    }
    experiment.picture(plotting.image_rows(rows, shape), path)


if __name__ == "__main__":
    experiment.run(main, "interrupted; the same command resumes after the last epoch")
