"""The parameters of a model as a table of HTML, for notebooks."""

import dataclasses

import numpy as np
from scipy.sparse import issparse

from fastmf._common.html import number, section, table
from fastmf.priors._protocol import field_names, is_concatenated, is_unit_prior, parts_of

HEADER = "", "units", "shape", "smallest", "mean", "largest"


def parameters_of(name, value):
    """(name, class of units, array) of every array in a field of a model, whatever it consists of.

    A field is a matrix, sparse or not, a number, a unit prior, or a tuple of these.
    """
    if is_unit_prior(value) and not is_concatenated(value):
        for field in field_names(value):
            yield f"{name}.{field}", type(value).__name__, np.asarray(getattr(value, field))
    elif isinstance(value, tuple):
        parts = parts_of(value) if is_concatenated(value) else value
        for k, part in enumerate(parts):
            yield from parameters_of(f"{name}[{k}]", part)
    else:
        yield name, "", value if issparse(value) else np.asarray(value)


def _row(name, units, values):
    shape = " x ".join(map(str, values.shape)) or "number"
    if issparse(values):
        shape, values = f"{shape}, {values.nnz} stored", values.data
    if not values.size:
        return name, units, shape, "", "", ""
    extent = values.min(), values.mean(dtype=np.float64), values.max()
    return name, units, shape, *map(number, extent)


def model_html(model):
    """The table of the parameters of a model, one line for each array."""
    rows = [
        _row(*parameter)
        for field in dataclasses.fields(model)
        if field.default is dataclasses.MISSING  # what has a default is no parameter
        for parameter in parameters_of(field.name, getattr(model, field.name))
    ]
    return section(repr(model), table(rows, HEADER))
