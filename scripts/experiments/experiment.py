"""Common parts of the experiments: command line, images, tables, figures, handling of errors."""

import argparse
import csv
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from scipy.io import loadmat

import fastmf as mf
from fastmf import plotting
from fastmf.datasets import Images, read_array
from fastmf.evaluation import annealed_importance_sampling, log_likelihood

# Units of the pixels of each set of images, all of values from 0 to 1: Table 1 of Tramel et al.
VISIBLE = {
    "binary": "bernoulli",
    "real": "truncated_gauss_bernoulli",
    "faces": "truncated_gaussian",
}
# The settings of Tramel et al. (2018), section VI and Table 1, of machines on these images; faces
# have 256 hidden units there, and 500 epochs in Fig. 7. Written out, as defaults may differ.
TABLE_1 = {
    "binary": dict(learning_rate=0.005, batch_size=100, l2=0.001, weight_scale=0.001),
    "real": dict(learning_rate=(1e-2, 1e-5), batch_size=100, l2=0.001, weight_scale=0.001),
    "faces": dict(learning_rate=0.005, batch_size=20, l2=0.01, weight_scale=0.001),
}
# Whether somebody watches the progress of training.
VERBOSE = int(sys.stderr.isatty())
# Options of the command line that scripts share.
SHARED = {
    "seed": dict(type=int, default=0, metavar="N", help="the first if several [0]"),
    "threads": dict(type=int, metavar="N", help="[all]"),
    "data": dict(metavar="FOLDER", help="of the data sets [$FASTMF_DATA]"),
    "output": dict(type=Path, metavar="FOLDER", help="of the results [results/NAME]"),
    "records": dict(type=Path, metavar="FILE", help="keeps results, so that a run resumes"),
    "dataset": dict(choices=TABLE_1, default="binary", help="digits, or grey faces [binary]"),
}


class Parser(argparse.ArgumentParser):
    """A command line of an experiment, with options of `SHARED` and of its own.

    With --quick numbers are at most those in `quick`, and lists are replaced. Of each option of its
    own the default is given, or a pair of it and a help text: a list takes several values, a
    dictionary any of its keys, a type has no default, and False is a flag.
    """

    def __init__(self, text, *shared, quick, **options):
        super().__init__(
            description=text,
            epilog="The same command resumes a run that was stopped, if its results are kept. "
            "Pages of this folder have published results, and commands.csv their commands.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.set_defaults(data=os.environ.get("FASTMF_DATA"))
        for name in shared:
            self.add_argument(f"--{name}", **SHARED[name])
        for name, default in options.items():
            self._add(name, *(default if isinstance(default, tuple) else (default,)))
        self.quick, small = quick, ", ".join(f"{key} {value}" for key, value in quick.items())
        self.add_argument("--quick", action="store_true", help=f"does it run? {small}")

    def _add(self, name, default, text=""):
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            self.add_argument(flag, action="store_true", help=text)
            return
        settings, first = {"default": default, "metavar": "N"}, default
        if isinstance(default, dict):
            settings |= {"choices": default, "default": list(default), "metavar": "X"}
            text += f" of {', '.join(default)}"
        if isinstance(default, dict | list):
            settings, first = settings | {"nargs": "+"}, next(iter(default))
        if isinstance(first, type):
            self.add_argument(flag, **settings | {"default": None, "type": first, "help": text})
        else:
            text += f" [{'all' if isinstance(default, dict) else default}]"
            self.add_argument(flag, **settings, type=type(first), help=text)

    def parse_args(self, argv=None):
        """Parse the command line, and make sizes small if asked to."""
        options = super().parse_args(argv)
        for name, value in self.quick.items() if options.quick else ():
            given = getattr(options, name)
            smaller = isinstance(given, int | float) and not isinstance(given, bool)
            setattr(options, name, min(given, value) if smaller else value)
        return options


def folder(options, name):
    """The folder of results, made if it is missing."""
    path = options.output or Path("results") / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def images(name, folder, split):
    """MNIST, black and white ("binary") or grey ("real"), or the grey faces of CBCL."""
    if name == "faces":
        pixels = read_array(f"{in_folder(folder, 'cbcl_faces_19x19.npz')}:faces_{split}")
        return Images(pixels / np.float32(255), (19, 19), None)
    prefix = {"train": "train", "test": "t10k"}[split]
    pixels, labels = (
        read_array(in_folder(folder, f"mnist/{prefix}-{kind}-ubyte.gz"))
        for kind in ("images-idx3", "labels-idx1")
    )
    X = pixels.reshape(len(pixels), -1) / np.float32(255)
    return Images((X > 0.5).astype(X.dtype) if name == "binary" else X, pixels.shape[1:], labels)


def silhouettes(folder, split):
    """The Caltech 101 Silhouettes of 28 x 28 pixels, object 1, by Marlin et al. (2010)."""
    path = in_folder(folder, "caltech101_silhouettes_28_split1.mat")
    stored = loadmat(path)[{"validation": "val"}.get(split, split) + "_data"]
    # In the file the background is 1, and images are stored column by column.
    upright = stored.reshape(-1, 28, 28).transpose(0, 2, 1).reshape(-1, 784)
    return (1 - upright).astype(np.float32)


def in_folder(folder, name):
    """The path of a file of data, or an error that says where to put it."""
    path = Path(folder or ".") / name
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file; pass --data or set FASTMF_DATA.")
    return path


def machine(options, n_hidden, **settings):
    """A machine on the images of --dataset; the settings of Table 1 hold unless given here."""
    name = getattr(options, "dataset", "binary")
    settings = TABLE_1[name] | {"visible": VISIBLE[name], "verbose": VERBOSE} | settings
    return mf.GeneralizedRBM(n_hidden, random_state=options.seed, **settings)


def train_and_test(name, options, test_rows=1000):
    """The first training and test images."""
    sets = (images(name, options.data, split) for split in ("train", "test"))
    sizes = options.rows, test_rows
    return [each._replace(X=each.X[:n]) for each, n in zip(sets, sizes, strict=True)]


class Results:
    """Results by key, kept in a file of JSON lines, if any, so that an interrupted run resumes."""

    def __init__(self, path):
        self.path, self.values = path, {}
        if path and path.exists():
            # The last line is incomplete if the run was interrupted while it was written.
            lines = [line for line in path.read_text().splitlines(True) if line.endswith("\n")]
            path.write_text("".join(lines))
            self.values = dict(map(json.loads, lines))

    def get(self, key, compute, *arguments):
        """Return the result of a key; compute and append it if it is missing."""
        if key not in self.values:
            value = compute(*arguments)
            line = json.dumps([key, value], default=lambda value: value.tolist())
            self.values[key] = json.loads(line)[1]
            if self.path:
                with self.path.open("a") as file:
                    file.write(f"{line}\n")
        return self.values[key]


class Epochs:
    """A callback that keeps in a file, by epoch, the time of training in seconds and a measure.

    Rows are (epoch, seconds, CPU seconds, measure); those of a run that resumes are continued.
    """

    def __init__(self, path, measure=lambda model: None):
        self.path, self.measure = path, measure
        self.rows = json.loads(path.read_text()) if path.exists() else []
        self._last = time.perf_counter(), time.process_time()

    def __call__(self, state):
        """Add an epoch, after those before it."""
        now = time.perf_counter(), time.process_time()
        before = [row for row in self.rows if row[0] < state.epoch]
        _, *seconds, _ = before[-1] if before else (0, 0.0, 0.0, None)
        seconds = [s + t - last for s, t, last in zip(seconds, now, self._last, strict=True)]
        self.rows = [*before, [state.epoch, *seconds, self.measure(state.model)]]
        self._last = now
        self.path.write_text(json.dumps(self.rows))


def from_file(path, class_, fit):
    """An estimator and the seconds of its fit, from their files if there are any."""
    seconds_path = path.with_suffix(".json")
    if path.exists() and seconds_path.exists():
        return class_.load(path), json.loads(seconds_path.read_text())["seconds"]
    start = time.perf_counter()
    estimator = fit()
    seconds = time.perf_counter() - start
    estimator.save(path)
    seconds_path.write_text(json.dumps({"seconds": seconds}))
    return estimator, seconds


def table(path, header, rows):
    """Write rows below a header, as CSV."""
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def table_of(path, rows):
    """Write rows that are dictionaries, with the columns of the first one, as CSV."""
    table(path, rows[0], ([row.get(name, "") for name in rows[0]] for row in rows))


def line(*cells):
    """A row of a table in Markdown."""
    return f"| {' | '.join(map(str, cells))} |"


def head(*cells):
    """The header of a table in Markdown."""
    return f"{line(*cells)}\n|{'---|' * len(cells)}"


def bins_of(rows):
    """Lines of `calibration` as text."""
    return "; ".join(f"{a:.3f} -> {b:.3f} ({m:.0f})" for a, b, m in rows)


def annealed(model, test, **options):
    """Mean log-likelihood of rows from above and from below, and its error, by annealing."""
    result = annealed_importance_sampling(model, **options)
    unnormalised = log_likelihood(model, test, 0.0).mean()
    error = np.hypot(result.error, result.reverse_error)
    return unnormalised - result.log_partition, unnormalised - result.reverse, error


def autoregressive(rng, n, p, correlation):
    """Standard normal features, neighbours correlated."""
    X = rng.normal(size=(n, p))
    for j in range(1, p if correlation else 0):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    return X


def calibration(probability, truth, edges):
    """Mean probability, fraction of what is true and number in each bin; the weighted error."""
    bins = np.digitize(probability, edges)
    chosen = [bins == k for k in range(1, len(edges)) if (bins == k).any()]
    rows = np.array([(probability[c].mean(), truth[c].mean(), c.sum()) for c in chosen])
    return rows, float(rows[:, 2] @ abs(rows[:, 0] - rows[:, 1]) / rows[:, 2].sum())


def picture(drawing, path):
    """Write a figure, or the figure of axes, as PNG."""
    getattr(drawing, "figure", drawing).savefig(path, dpi=150)


def curves(points, path, label, of="epoch"):
    """Write curves of points (x, y) by name as PNG, if there are any."""
    axes = None
    for name, pairs in points.items():
        x, y = zip(*pairs, strict=True)
        axes = plotting.curves_by_epoch(x, {name: y}, label=label, ax=axes)
    if axes:
        axes.set_xlabel(of)
        picture(axes, path)


def report_likelihoods(histories, folder, column, suffix=""):
    """Write likelihood.csv and likelihood.png of machines by name."""
    names = "epoch", "log_likelihood", "validation_log_likelihood"
    rows, figure = [], None
    for name, history in histories.items():
        rows += [(name, *row) for row in zip(*(history[n] for n in names), strict=True)]
        axes = figure.axes[0] if figure else None
        figure = plotting.learning_curve(history, label=f"{name}{suffix}", ax=axes)
    picture(figure, folder / "likelihood.png")
    header = column, "epoch", "log_likelihood_per_unit", "validation"
    table(folder / "likelihood.csv", header, rows)


def run(main):
    """Call `main`; errors in data and options, and interruption, end with a message."""
    try:
        main()
    except (FileNotFoundError, ValueError, ImportError, FloatingPointError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command resumes if its results are kept")
