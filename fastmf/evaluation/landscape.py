"""Free-energy landscapes: distinct solutions, and a tracker of quantities during training."""

import numpy as np

from fastmf._common.arguments import count, one_of, real_array, refusing_overflow
from fastmf.inference.ep.adaptive_tap import adaptive_tap
from fastmf.inference.mean_field._layouts import drawn_starts
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.inference.mean_field.relaxed_bp import relaxed_bp
from fastmf.inference.mean_field.solutions import distinct_solutions
from fastmf.models.boltzmann import check_machine

SOLVERS = {"tap": collapsed_tap, "relaxed_bp": relaxed_bp, "adaptive_tap": adaptive_tap}


@refusing_overflow
def solutions(model, starts=1000, *, solver="tap", merge_tol=1e-2, **options):
    """Find the distinct fixed points of a model that a solver reaches from many starts.

    Parameters
    ----------
    model : RBM, DBM or BoltzmannMachine
    starts : int or array of shape (n_starts, n_units)
        Initial values of the first layer, for example data, or the number of random starts, drawn
        from its uncoupled units (by `rng`, default 0).
    solver : {"tap", "relaxed_bp", "adaptive_tap"}, default "tap"
        Adaptive TAP converges in spin glasses below their critical temperature, where TAP does not
        converge, or has wrong solutions.
    merge_tol : float, default 1e-2
        Largest difference of means, and of half the variances (relative to variances above 1), of
        equal solutions in the first layer. Real units are first divided by their range, or by their
        standard deviation if they are unbounded.
    **options
        Options of the solver, such as tol, max_iter, n_threads, rng, and order of `tap`.

    Returns
    -------
    Solutions
        See its attributes `reliable` and `message` for the checks of each solution.

    Raises
    ------
    ValueError, TypeError, FloatingPointError
        For arguments of wrong shapes, types or ranges, and overflow.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> ferromagnet = mf.BoltzmannMachine(3 * (1 - np.eye(50)) / 50, mf.Ising(np.zeros(50)))
    >>> starts = np.where(np.arange(20)[:, None] < 15, 1.0, -1.0) * np.ones(50)
    >>> phases = mf.evaluation.solutions(ferromagnet, starts)
    >>> len(phases.free_energy), np.sort(phases.counts)  # up and down
    (2, array([ 5, 15]))
    """
    check_machine(model)
    solve, rng = SOLVERS[one_of("solver", solver, tuple(SOLVERS))], options.pop("rng", 0)
    if isinstance(starts, int | np.integer) and not isinstance(starts, bool):
        starts = drawn_starts(model, count("starts", starts), rng)
    else:
        starts = np.atleast_2d(real_array("starts", starts))
    return distinct_solutions(model.layers[0], solve(model, starts, **options), merge_tol)


class Tracker:
    """Training callback that records functions of the model after each epoch.

    Parameters
    ----------
    epochs : sequence of int, optional
        Epochs at which to record, for example range(10, 101, 10); default: all epochs.
    **quantities : callable
        Functions of the model, by name.

    Attributes
    ----------
    epoch : list of int
    values : dict of list
        Results of each function at these epochs.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((200, 16)) < 0.3).astype(float)
    >>> tracker = mf.evaluation.Tracker(
    ...     landscape=lambda model: mf.evaluation.solutions(model, X),
    ...     pseudo=lambda model: mf.evaluation.pseudo_log_likelihood(model, X).mean(),
    ... )
    >>> _ = mf.GeneralizedRBM(8, n_epochs=2, callbacks=[tracker], random_state=0).fit(X)
    >>> tracker.epoch, len(tracker.values["landscape"])
    ([1, 2], 2)
    """

    def __init__(self, *, epochs=None, **quantities):
        self.epochs = None if epochs is None else {int(epoch) for epoch in epochs}
        for name, function in quantities.items():
            if not callable(function):
                raise TypeError(f"{name} must be a function of the model, got {function!r:.40}.")
        self.quantities = quantities
        self.epoch = []
        self.values = {name: [] for name in quantities}

    def __call__(self, state):
        """Record the quantities if the epoch is among `epochs`."""
        if self.epochs is None or state.epoch in self.epochs:
            self.record(state.model, state.epoch)

    def record(self, model, epoch):
        """Record the quantities of a model, for example of the initial model as epoch 0."""
        for name, function in self.quantities.items():
            self.values[name].append(function(model))
        self.epoch.append(epoch)
