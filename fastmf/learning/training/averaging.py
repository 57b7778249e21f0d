"""The mean of the iterates of stochastic gradient ascent."""

import numpy as np

from fastmf._common.arguments import count
from fastmf.learning.training.parameters import ModelParameters


class IterateAverage:
    """A callback for training that averages the parameters after each of the last epochs.

    Steps along gradients that are sampled leave the parameters at a distance from the maximum that
    grows with the learning rate; the mean of many iterates is closer to it than any of them.

    Parameters
    ----------
    first_epoch : int, default 1
        The first epoch, counted from 1, whose model is averaged: at a constant learning rate that
        of the last third, for instance.

    Attributes
    ----------
    model : model or None
        Of the averaged parameters, in the type of the trained model; None before `first_epoch`.
    n_averaged : int
        Number of models averaged.

    Raises
    ------
    ValueError
        In training, if the shapes of the parameters are not those of the epoch before; use one
        object for one run.

    Notes
    -----
    Polyak & Juditsky (1992), once an epoch. Each epoch has the same weight, and sums are in
    float64. The trained machine does not change: for its methods to use the average, replace its
    `model_`. A checkpoint does not contain the average: of a run that resumes, it is that of the
    epochs after.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((200, 16)) < 0.3).astype(float)
    >>> average = mf.evaluation.IterateAverage(first_epoch=5)
    >>> rbm = mf.GeneralizedRBM(
    ...     8, gradient="pcd", n_epochs=6, callbacks=[average], random_state=0
    ... ).fit(X)
    >>> average.n_averaged
    2
    >>> rbm.model_ = average.model
    >>> rbm.transform(X).shape
    (200, 8)
    """

    def __init__(self, first_epoch=1):
        self.first_epoch = count("first_epoch", first_epoch)
        self.n_averaged = 0
        self._mean = self._last = None

    @property
    def model(self):
        """The model of the averaged parameters."""
        if self._last is None:
            return None
        return self._last.rebuilt(**vars(self._mean.combine(_like, ModelParameters.of(self._last))))

    def __call__(self, state):
        """Add the model after an epoch of training."""
        if state.epoch >= self.first_epoch:
            self.add(state.model)

    def add(self, model):
        """Add a model to the average."""
        new = ModelParameters.of(model).combine(lambda x: x.astype(np.float64))
        if self._last is None:
            mean = new
        else:
            if _shapes(model) != _shapes(self._last):
                raise ValueError(
                    f"the model must have parameters of shapes {_shapes(self._last)}, as those "
                    f"averaged, got {_shapes(model)}; use a new IterateAverage."
                )
            weight = 1 / (self.n_averaged + 1)
            mean = self._mean.combine(lambda x, y: x + weight * (y - x), new)
        self._mean, self._last, self.n_averaged = mean, model, self.n_averaged + 1


def _like(mean, parameter):
    """A mean in the type of the parameter."""
    return mean.astype(parameter.dtype)


def _shapes(model):
    """Shapes of all arrays of a model's parameters."""
    found = []
    ModelParameters.of(model).combine(lambda x: found.append(x.shape) or x)
    return found
