"""Parameters of a model, or derivatives by them, as one value that can be added and scaled."""

import dataclasses

import numpy as np

from fastmf.models import DBM
from fastmf.priors._protocol import map_parameters


class ModelParameters:
    """Arrays, unit priors and tuples of these, named like the fields of a model.

    A derivative has the form of what it is a derivative by: an array that of an array, and the
    class of a prior, holding a derivative in the place of each parameter, that of a prior.

    Parameters
    ----------
    **fields : array, NamedTuple of arrays, or tuple of these
    """

    def __init__(self, **fields):
        self.__dict__.update(fields)

    @classmethod
    def of(cls, model):
        """The parameters of a model."""
        return cls(**{f.name: getattr(model, f.name) for f in dataclasses.fields(model)})

    def combine(self, function, *others):
        """Apply a function to the arrays of several parameters of one model.

        Where a prior has fields that are not learned, they are those of `self`.
        """
        return ModelParameters(
            **{
                name: _combine(function, value, *(getattr(other, name) for other in others))
                for name, value in vars(self).items()
            }
        )

    def couplings(self):
        """All matrices among them."""
        for value in vars(self).values():
            for part in value if type(value) is tuple else (value,):
                if isinstance(part, np.ndarray) and part.ndim == 2:
                    yield part


def _combine(function, first, *others):
    if isinstance(first, np.ndarray):
        return function(first, *others)
    if type(first) is tuple:
        return tuple(_combine(function, *parts) for parts in zip(first, *others, strict=True))
    return map_parameters(function, first, *others)


def chain(parameters):
    """Couplings of neighbouring layers, and the layers, of an RBM, a DBM, or their parameters."""
    if hasattr(parameters, "layers") and isinstance(parameters.weights, tuple):
        return parameters.weights, parameters.layers
    return (parameters.weights,), (parameters.visible, parameters.hidden)


def unchained(model, weights, layers):
    """ModelParameters in the form of those of the model, from what `chain` makes of them."""
    if isinstance(model, DBM):
        return ModelParameters(weights=tuple(weights), layers=tuple(layers))
    (weights,), (visible, hidden) = weights, layers
    return ModelParameters(weights=weights, visible=visible, hidden=hidden)
