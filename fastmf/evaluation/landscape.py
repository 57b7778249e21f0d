"""Free-energy landscapes: quantities recorded during training, and maps of solutions."""

import warnings

import numpy as np

from fastmf._common.arguments import count, real_array


class Tracker:
    """A callback for training that records functions of the model by epoch.

    Parameters
    ----------
    every : int, default 1
        Epochs between two records.
    epochs : sequence of int, optional
        Record at these epochs only.
    **quantities : callable
        Functions of the model, by name.

    Attributes
    ----------
    epoch : list of int
    values : dict of list
        Results of each function, epoch by epoch.

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
        """Record after an epoch of training, if it is one of those asked for."""
        recorded = (
            state.epoch % self.every == 0 if self.epochs is None else state.epoch in self.epochs
        )
        if recorded:
            self.record(state.model, state.epoch)

    def record(self, model, epoch):
        """Append the quantities of a model, such as the one before training as epoch 0."""
        for name, function in self.quantities.items():
            self.values[name].append(function(model))
        self.epoch.append(epoch)


def isomap(points, *, n_neighbors=10, n_components=2):
    """A map of points by Isomap, on which distances approximate those along their manifold.

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
    Tenenbaum, de Silva & Langford (2000), by scikit-learn. Components of the graph of neighbours
    are connected where they are closest.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> points = np.random.default_rng(0).random((30, 8))
    >>> mf.evaluation.isomap(points, n_neighbors=5).shape
    (30, 2)
    """
    points = real_array("points", points)
    n_neighbors, n_components = (
        count("n_neighbors", n_neighbors),
        count("n_components", n_components),
    )
    if points.ndim != 2 or len(points) <= n_components or not np.isfinite(points).all():
        raise ValueError(
            f"points must be an array of finite numbers of more than {n_components} rows, got "
            f"shape {points.shape}."
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
