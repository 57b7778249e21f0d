"""`fastmf regress`: sparse regression and classification of a column of a table."""

import warnings
from pathlib import Path

import numpy as np

from fastmf._common.warning import warn_user
from fastmf.cli import _data, _machines, _options
from fastmf.models._io import replacing

EPILOG = """\
examples:
  fastmf regress table.csv --target yield
      which of the other columns predict the column "yield": coefficients.csv
  fastmf regress genotypes.npy --target phenotype.csv --plot forest.png
      features and target in two files
  fastmf regress table.csv --target ill --classify --unpenalised age sex --model model.npz
      a class, as numbers or words; two columns that are in the model in any case
  fastmf regress table.csv --target yield --ignore id place
      two columns, of words perhaps, that are no features

The table has one line a feature, the most probable first: name, posterior mean and standard
deviation of its coefficient, and the posterior probability that it is not zero.
"""


def add(commands):
    """Add the command to a parser."""
    regress = _options.command(
        commands,
        run,
        "regress",
        help="find the columns that predict another one",
        description="Spike-and-slab regression (or classification) by expectation propagation.",
        epilog=EPILOG,
    )
    regress.add_argument("data", metavar="DATA", help="table of numbers, one sample per row")
    regress.add_argument(
        "--target", metavar="T", help="name or number (from 1) of a column, or a file [the last]"
    )
    _options.add_output(regress, "coefficients.csv", "table to write", metavar="CSV")
    regress.add_argument("--plot", metavar="PNG", help="picture to write: the largest coefficients")
    regress.add_argument("--model", metavar="NPZ", help="file to write the fitted estimator to")
    regress.add_argument("--classify", action="store_true", help="the target is a class")
    regress.add_argument(
        "--expected-model-size", type=float, metavar="N",
        help="features that the prior expects to be in the model [learned]",
    )  # fmt: skip
    regress.add_argument(
        "--unpenalised", nargs="+", metavar="NAME", help="columns that are in the model in any case"
    )
    regress.add_argument(
        "--names", metavar="FILE", help="names of the features, one a line, for files without them"
    )
    _data.add_ignore(regress)
    _options.add_quiet(regress, "progress")
    regress.add_argument("--rows", type=int, metavar="N", help="use the first N rows only")


def run(arguments):
    """Fit, write the table, the picture and the estimator, and print a summary."""
    import fastmf

    _data.check_outputs(
        [arguments.data, arguments.target, arguments.names],
        (arguments.output, (".csv",)),
        (arguments.plot, _data.PICTURE_SUFFIXES),
        (arguments.model, (".npz",)),
    )
    X, y, own_names = _table(arguments)
    names = own_names or [f"x{j}" for j in range(X.shape[1])]
    _check(X, y, names, arguments)
    options = {
        "expected_model_size": arguments.expected_model_size,
        "unpenalised": arguments.unpenalised and _places(arguments.unpenalised, names),
        "verbose": not arguments.quiet,
    }
    kind = fastmf.SpikeSlabClassifier if arguments.classify else fastmf.SpikeSlabRegressor
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*unlike all others")  # `_check` names the columns
        model = kind(**options).fit(X, y)
    _machines.keep_names(model, own_names)
    _write(arguments.output, model, names)
    what = "accuracy" if arguments.classify else "R^2"
    n_in = int((model.inclusion_probability_ > 0.5).sum())
    print(f"{arguments.output}: {n_in} of {X.shape[1]} features with probability above 1/2")
    print(f"{what} on these rows: {model.score(X, y):.3f}")
    if arguments.model is not None:
        model.save(arguments.model)
    if arguments.plot is not None:
        from fastmf.plotting import coefficient_forest

        _data.save_figure(arguments.plot, coefficient_forest(model, names=names))


def _table(arguments):
    """Features, target, and names of the features, None if they have none."""
    from fastmf.datasets import read_array
    from fastmf.datasets.files import read_named

    y = _labels(arguments) if arguments.classify else None
    ignored = [*arguments.ignore, *([] if y is None else [arguments.target])]
    table, names = read_named(arguments.data, ignored)
    X = _data.matrix(table, arguments.data)
    if arguments.names is not None:
        with open(arguments.names, encoding="utf-8") as file:
            names = file.read().splitlines()
    if y is None and arguments.target is not None and Path(arguments.target).is_file():
        y = np.ravel(read_array(arguments.target))
        if len(X) != len(y):
            raise ValueError(
                f"{arguments.target} has {len(y)} values, {arguments.data} {len(X)} rows."
            )
    elif y is None:
        n = X.shape[1]
        known = names if names and len(names) == n else None
        (place,) = _places([arguments.target or str(n)], known, n)
        X, y = np.delete(X, place, axis=1), X[:, place]
        names = names and [name for j, name in enumerate(names) if known is None or j != place]
    if X.shape[1] == 0:
        raise ValueError(f"{arguments.data} has no column beside the target.")
    if names and len(names) != X.shape[1]:
        raise ValueError(f"there are {len(names)} names, but {X.shape[1]} features.")
    rows = slice(_data.n_rows(arguments))
    return X[rows], y[rows], names


def _check(X, y, names, arguments):
    """Raise for values that are missing and targets that tell nothing; warn of likely mistakes."""
    for array in (X, y):
        finite = np.True_ if array.dtype.kind == "O" else np.isfinite(array)
        if not finite.all():
            place = tuple(np.argwhere(~finite)[0])
            what = "infinite" if np.isinf(array[place]) else "missing"
            where = f"column {names[place[1]]!r}" if len(place) > 1 else "the target"
            raise ValueError(
                f"{where} has {what} values, the first in row {place[0] + 1}: leave such rows out, "
                "or fill them in first (fastmf impute)."
            )
    if len(y) > 1 and (y[1:] == y[0]).all():
        raise ValueError(f"the target has the same value, {y[0]!s}, in all {len(y)} rows.")
    _data.warn_of_codes(X, names)
    classes = sorted({value for value in y.tolist() if value is not None})
    if y.dtype.kind == "O":
        _data.check_case(arguments.target, classes)
    else:
        _data.warn_of_codes(y, None)
    if arguments.classify and len(classes) > 2:
        shown = ", ".join(map(str, classes[:5])) + ", ..." * (len(classes) > 5)
        raise ValueError(f"--classify takes a target of two classes, got {len(classes)}: {shown}.")
    if not arguments.classify and len(classes) == 2:
        warn_user("the target has two values only: --classify takes them for classes.")


def _labels(arguments):
    """Classes in a named column of a table of text, numbers or words; None if there is none."""
    from fastmf.datasets._tables import MISSING_CELLS
    from fastmf.datasets.files import is_text, read_text

    if arguments.target is None or not is_text(arguments.data):
        return None
    try:
        names, columns = read_text(arguments.data)
    except ValueError:
        return None
    if arguments.target not in names:
        return None
    (place,) = _places([arguments.target], names)
    cells = [None if cell.lower() in ("", *MISSING_CELLS) else cell for cell in columns[place]]
    try:
        return np.array([np.nan if cell is None else float(cell) for cell in cells])
    except ValueError:
        return np.array(cells, object)


def _places(wanted, names, n=None):
    """Places of columns, by their names or numbers from 1."""
    found = []
    for name in wanted:
        n = len(names) if n is None else n
        if names and names.count(name) > 1:
            places = ", ".join(str(j + 1) for j, other in enumerate(names) if other == name)
            raise ValueError(f"columns {places} are all named {name!r}: give the number of one.")
        if names and name in names:
            found.append(names.index(name))
        elif name.isdecimal() and 1 <= int(name) <= n:
            found.append(int(name) - 1)
        else:
            some = f": {', '.join(names[:5])}{', ...' * (len(names) > 5)}" if names else ""
            raise ValueError(f"there is no file or column {name!r} among {n} columns{some}.")
    return found


def _write(path, model, names):
    """One line a feature, the most probable first."""
    values = model.coef_, np.sqrt(model.coef_var_), model.inclusion_probability_
    coefficient, deviation, probability = map(np.ravel, values)
    with replacing(path) as file:
        file.write(b"feature,coefficient,standard_deviation,inclusion_probability\n")
        for j in np.lexsort((-abs(coefficient), -probability)):
            numbers = f"{coefficient[j]:.6g},{deviation[j]:.6g},{probability[j]:.6g}"
            file.write(f"{_data.cell(names[j])},{numbers}\n".encode())
