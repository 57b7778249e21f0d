"""Free-energy landscapes: what becomes of them during training, and maps of them."""

import warnings

import numpy as np

from fastmf._common.arguments import count


class Tracker:
    """A callback for training that keeps what functions say of the model by epoch.

    Parameters
    ----------
    every : int, default 1
        Every so many epochs.
    epochs : sequence of int, optional
        At these epochs only.
    **quantities : callable
        Name = function of the model.

    Attributes
    ----------
    epoch : list of int
    values : dict of list
        What each function returned, epoch by epoch.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((200, 16)) < 0.3).astype(float)
    >>> tracker = mf.evaluation.Tracker(
    ...     landscape=lambda model: mf.evaluation.solutions(model, X),
    ...     pseudo=lambda model: mf.pseudo_log_likelihood(model, X).mean(),
    ... )
    >>> _ = mf.GeneralizedRBM(8, n_epochs=2, callbacks=[tracker], random_state=0).fit(X)
    >>> tracker.epoch, len(tracker.values["landscape"])
    ([1, 2], 2)
    """

    def __init__(self, *, every=1, epochs=None, **quantities):
        self.every = count("every", every)
        self.epochs = None if epochs is None else {int(epoch) for epoch in epochs}
        for name, function in quantities.items():
            if not callable(function):
                raise TypeError(f"{name} must be a function of the model, got {function!r:.40}.")
        self.quantities = quantities
        self.epoch = []
        self.values = {name: [] for name in quantities}

    def __call__(self, state):
        """After an epoch of training."""
        due = state.epoch % self.every == 0 if self.epochs is None else state.epoch in self.epochs
        if due:
            self.record(state.model, state.epoch)

    def record(self, model, epoch):
        """Keep the quantities of a model, such as the one before training, as epoch 0."""
        for name, function in self.quantities.items():
            self.values[name].append(function(model))
        self.epoch.append(epoch)


def isomap(points, *, n_neighbors=10, n_components=2):
    """A map of points on which distances are about those along the manifold that they are on.

    Parameters
    ----------
    points : array of shape (n_points, n_units)
        For instance the visible means of `Solutions`, of one epoch or of several together.
    n_neighbors : int, default 10
    n_components : int, default 2

    Returns
    -------
    array of shape (n_points, n_components)

    Raises
    ------
    ValueError
        If there are not more points than components.
    ImportError
        If scikit-learn is not installed.

    Notes
    -----
    Tenenbaum, de Silva & Langford (2000), by scikit-learn; groups of points that are not each
    other's neighbours are joined where they are closest.
    """
    points = np.asarray(points)
    if points.ndim != 2 or len(points) <= n_components:
        raise ValueError(
            f"points must be an array of more than {n_components} rows, got shape {points.shape}."
        )
    try:
        from sklearn.manifold import Isomap
    except ModuleNotFoundError as error:
        raise ImportError("isomap needs scikit-learn: pip install 'fastmf[sklearn]'") from error
    method = Isomap(n_neighbors=min(n_neighbors, len(points) - 1), n_components=n_components)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of connected components", UserWarning)
        warnings.filterwarnings("ignore", "Changing the sparsity structure")
        return method.fit_transform(points)
