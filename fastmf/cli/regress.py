"""The command `regress`: sparse regression and classification of tables."""

import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np

import fastmf
from fastmf._common.warning import listed, warn_user
from fastmf.cli import _options, _rows
from fastmf.datasets.files import is_text, number_of, read_array, read_named, read_text


def add_regress(parser):
    """Add the options of `regress` that are made from signatures."""
    _options.add_parameters(parser, fastmf.SpikeSlabRegressor, ("inclusion_probability",))
    _rows.add_limits(parser)


def regress(arguments):
    """Spike-and-slab regression (or classification) by expectation propagation.

    examples:
      fastmf regress table.csv --target yield
          which of the other columns predict the column "yield": coefficients.csv
      fastmf regress genotypes.npy --target phenotype.csv --plot forest.png
          features and target in two files
      fastmf regress table.csv --target ill --classify --unpenalised age sex --model model.npz
          a class, as numbers or words; two columns are always included in the model
      fastmf regress table.csv --target yield --ignore id place
          two columns, possibly of words, are not used as features

    The table has one line for each feature, the most probable first: name, posterior mean and
    standard deviation of its coefficient, and the posterior probability that it is not zero.

    Options
    -------
    DATA
        table of numbers, one sample per row
    --target T
        name or number (from 1) of a column, or a file [the last]
    -o, --output CSV = coefficients.csv
        table to write
    --plot PNG
        picture to write: the largest coefficients
    --model NPZ
        file to write the fitted estimator to
    --classify
        the target is a class
    --unpenalised NAME ...
        columns that are always included in the model
    -q, --quiet
        do not show progress
    """
    _options.check_outputs(
        [arguments.data, arguments.target],
        (arguments.output, (".csv",)),
        (arguments.plot, _options.PICTURES),
        (arguments.model, (".npz",)),
    )
    X, y, feature_names = _table(arguments)
    names = feature_names or [f"x{j}" for j in range(X.shape[1])]
    _check(X, y, names, arguments)
    options = _options.given(arguments, "inclusion_probability")
    if arguments.unpenalised:
        options["unpenalised"] = [_place(name, names) for name in arguments.unpenalised]
    kind = fastmf.SpikeSlabClassifier if arguments.classify else fastmf.SpikeSlabRegressor
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*unlike all others")  # `_check` names the columns
        model = kind(**options, verbose=not arguments.quiet).fit(X, y)
    _rows.keep_names(model, feature_names)
    _write(arguments.output, model, names)
    n_in = int((model.inclusion_probability_ > 0.5).sum())
    print(f"{arguments.output}: {n_in} of {X.shape[1]} features with probability above 1/2")
    print(f"{'accuracy' if arguments.classify else 'R^2'} on these rows: {model.score(X, y):.3f}")
    if arguments.model is not None:
        model.save(arguments.model)
    if arguments.plot is not None:
        _rows.write_figure(arguments.plot, fastmf.plotting.coefficient_forest(model, names=names))


def _table(arguments):
    """Read features, target, and names of the features (None without names)."""
    y = _classes(arguments) if arguments.classify else None
    ignored = [] if y is None else [arguments.target]
    table, names = read_named(arguments.data, _rows.ignored(arguments, *ignored))
    X = _rows.as_matrix(table, arguments.data)
    if y is None and arguments.target is not None and Path(arguments.target).is_file():
        y = np.ravel(read_array(arguments.target))
        if len(X) != len(y):
            raise ValueError(
                f"{arguments.target} has {len(y)} values, {arguments.data} {len(X)} rows."
            )
    elif y is None:
        n = X.shape[1]
        place = _place(arguments.target or str(n), names, n)
        X, y = np.delete(X, place, axis=1), X[:, place]
        names = None if names is None else names[:place] + names[place + 1 :]
    if X.shape[1] == 0:
        raise ValueError(f"{arguments.data} has no column beside the target.")
    rows = slice(_rows.n_rows(arguments))
    return X[rows], y[rows], names


def _check(X, y, names, arguments):
    """Raise for missing values and constant targets; warn of likely mistakes."""
    for array in (X, y):
        finite = np.True_ if array.dtype.kind == "O" else np.isfinite(array)
        if not finite.all():
            place = tuple(np.argwhere(~finite)[0])
            what = "infinite" if np.isinf(array[place]) else "missing"
            where = f"column {names[place[1]]!r}" if len(place) > 1 else "the target"
            raise ValueError(
                f"{where} has {what} values, the first in row {place[0] + 1} of the data: leave "
                "such rows out, or fill them in first (fastmf impute)."
            )
    if len(y) > 1 and (y[1:] == y[0]).all():
        raise ValueError(f"the target has the same value, {y[0]!s}, in all {len(y)} rows.")
    _rows.warn_of_codes(X, names)
    classes = sorted({value for value in y.tolist() if value is not None})
    if y.dtype.kind == "O":
        _rows.check_case(arguments.target, classes)
    else:
        _rows.warn_of_codes(y, None)
    if arguments.classify and len(classes) > 2:
        raise ValueError(
            f"--classify takes a target of two classes, got {len(classes)}: {listed(classes, 5)}."
        )
    if not arguments.classify and len(classes) == 2:
        warn_user("the target has two values only: --classify takes them for classes.")


def _classes(arguments):
    """Return the classes in a column of words; None if there is no such column of words."""
    names = ()
    if is_text(arguments.data):
        with suppress(ValueError):  # no names
            names, columns = read_text(arguments.data)
    if arguments.target not in names:
        return None
    cells = columns[_place(arguments.target, names)]
    words = [cell for cell in cells if cell is not None and number_of(cell) is None]
    return np.array(cells, object) if words else None


def _place(name, names, n=None):
    """Return the index of a column, given its name or its number from 1."""
    n = len(names) if n is None else n
    if names and names.count(name) > 1:
        places = ", ".join(str(j + 1) for j, column in enumerate(names) if column == name)
        raise ValueError(f"columns {places} are all named {name!r}: give the number of one.")
    if names and name in names:
        return names.index(name)
    if name.isdecimal() and 1 <= int(name) <= n:
        return int(name) - 1
    examples = f": {listed(names, 5)}" if names else ""
    raise ValueError(f"there is no file or column {name!r} among {n} columns{examples}.")


def _write(path, model, names):
    """Write one line for each feature, the most probable first."""
    probability, coefficient = model.inclusion_probability_, np.ravel(model.coef_)
    order = np.lexsort((-abs(coefficient), -probability))
    table = {
        "feature": [names[j] for j in order],
        "coefficient": coefficient[order],
        "standard_deviation": np.sqrt(np.ravel(model.coef_var_))[order],
        "inclusion_probability": probability[order],
    }
    _rows.write_columns(path, table)
