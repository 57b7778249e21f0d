"""The mean of the iterates of stochastic gradient ascent."""

import numpy as np

from fastmf._common.arguments import count
from fastmf.learning.training.parameters import ModelParameters


class IterateAverage:
    """A callback for training that averages the parameters after each of the last epochs.

    Steps along sampled gradients leave the parameters at a distance from the maximum that grows
    with the learning rate; the mean of many iterates is closer to it.

    Parameters
    ----------
    first_epoch : int, default 1
        The first epoch, counted from 1, whose model is averaged, such as two thirds of all epochs
        at a constant learning rate.

    Attributes
    ----------
    model : model or None
        Model of the averaged parameters, in the type of the trained one; None before `first_epoch`.
    n_averaged : int
        Number of models averaged.

    Raises
    ------
    ValueError
        If the shapes of the parameters differ from the models averaged so far.

    Notes
    -----
    Polyak & Juditsky (1992), once an epoch. Each epoch has the same weight, and sums are in
    float64. For the trained machine to use the average, replace its `model_`. Training anew forgets
    the average of the run before.

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
        self._forget()

    def _forget(self):
        self.n_averaged = self._epoch = 0
        # The model of the averaged parameters in float64, and the type of the trained one.
        self._mean = self._dtype = None

    @property
    def model(self):
        """The model of the averaged parameters."""
        return None if self._mean is None else _in_type(self._mean, self._dtype)

    def __call__(self, state):
        """Add the model after an epoch of training."""
        if state.epoch <= self._epoch:
            self._forget()
        self._epoch = state.epoch
        if state.epoch >= self.first_epoch:
            self.add(state.model)

    def add(self, model):
        """Add a model to the average."""
        new, mean = _in_type(model, np.float64), self._mean
        if mean is not None:
            if _shapes(new) != _shapes(mean):
                raise ValueError(
                    f"the model must have parameters of shapes {_shapes(mean)}, as those "
                    f"averaged, got {_shapes(model)}; use a new IterateAverage."
                )
            weight, parameters = 1 / (self.n_averaged + 1), ModelParameters.of(mean)
            new = _rebuilt(
                mean, parameters.combine(lambda x, y: x + weight * (y - x), ModelParameters.of(new))
            )
        self._mean, self._dtype, self.n_averaged = new, model.dtype, self.n_averaged + 1


def _rebuilt(model, parameters):
    return model.rebuilt(**vars(parameters))


def _in_type(model, dtype):
    parameters = ModelParameters.of(model)
    return _rebuilt(model, parameters.combine(lambda x: x.astype(dtype)))


def _shapes(model):
    """Shapes of all arrays of a model's parameters."""
    return [x.shape for x in ModelParameters.of(model).arrays()]
