"""Parameters of a model, or derivatives by them, as one value that can be added and scaled."""

import numpy as np

from fastmf.priors._protocol import map_parameters


class ModelParameters:
    """Arrays, unit priors and tuples of them, named like the parameters of a model.

    A derivative has the form of its parameter: an array, or a prior with a derivative in the place
    of each parameter.
    """

    def __init__(self, **fields):
        self.__dict__.update(fields)

    @classmethod
    def of(cls, model):
        """The parameters of a model."""
        return cls(**model.parameters())

    def combine(self, function, *others):
        """Apply a function to the arrays of several parameters of one model.

        Fields of priors that are not learned are taken from `self`.
        """
        return ModelParameters(
            **{
                name: _combine(function, value, *(getattr(part, name) for part in others))
                for name, value in vars(self).items()
            }
        )

    def arrays(self):
        """All arrays that `combine` changes, in its order."""
        arrays = []
        self.combine(lambda x: arrays.append(x) or x)
        return arrays

    def replaced(self, arrays):
        """The parameters with new arrays, in the same order."""
        arrays = iter(arrays)
        return self.combine(lambda _: next(arrays))


def _combine(function, first, *others):
    if isinstance(first, np.ndarray):
        return function(first, *others)
    if type(first) is tuple:
        return tuple(_combine(function, *parts) for parts in zip(first, *others, strict=True))
    return map_parameters(function, first, *others)
