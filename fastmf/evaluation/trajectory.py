"""The log-partition by epoch, by annealing along the trajectory of learning."""

import time

import numpy as np

from fastmf._common.arguments import count, generator, rows
from fastmf._common.warning import warn_user
from fastmf.evaluation.annealed import CLEAR_ERRORS, MIN_EFFECTIVE_SIZE, Exploration
from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.inference.mean_field.lower_bound import lacking, lower_bound
from fastmf.inference.sampling.annealing import (
    RESAMPLE_BELOW,
    Path,
    Population,
    annealed_model,
    base_between,
    log_mean,
    neutral_base,
    refined,
)
from fastmf.inference.sampling.gibbs import check_finite, gibbs
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models._layered import check_layered
from fastmf.priors._groups import as_states
from fastmf.priors._protocol import n_units


class TrajectoryAnnealing:
    """A callback for training that records the log-partition, and log-likelihoods, by epoch.

    Chains are annealed from the parameters of one record to the next, over models whose
    parameters are between the two. Fresh chains are annealed from independent units, in few steps.
    Where both estimates agree they are averaged; otherwise the higher one is taken.

    Parameters
    ----------
    X : array of shape (n_rows, n_visible), optional
        Data whose mean log-likelihood is recorded, for instance a thousand rows of training data.
    n_chains : int, default 100
        Number of chains of each kind.
    n_steps : int, default 20
        Models from one record to the next, the present one included.
    n_sweeps : int, default 2
        Gibbs sweeps at each.
    n_fresh_steps : int, default 150
        Steps of the chains that start from independent units.
    n_first_steps : int, default 500
        Steps of the annealing from independent units to the model of the first record.
    every : int, default 1
        Epochs between two records.
    n_threads : int, optional
        Default: Numba's number of threads. Results do not depend on it.
    rng : numpy.random.Generator or int, optional

    Attributes
    ----------
    epoch : list of int
    log_partition, error : list of float
        Estimate by record and its standard error, in nats; it is low on average. Errors of
        estimates that are averaged are enlarged to their difference.
    difference : list of float
        Estimate by fresh chains minus that by the annealed ones, in nats; 0 at the first record.
    log_likelihood : list of float
        Mean over the rows of `X`, in nats; its error from sampling is `error`. Empty without `X`.
    effective_size : list of float
        The smallest effective number of the annealed chains since the record before.
    seconds : list of float
        Wall time of each record.
    chains : array of shape (n_chains, n_visible)
        Samples of the visible units at the last record; of a DBM of all even layers.

    Raises
    ------
    ValueError, TypeError, FloatingPointError
        If the model is not an RBM or DBM, an argument is invalid, or the samples diverge.

    Warns
    -----
    UserWarning
        If fewer than ten chains contribute to a record, effectively, or it is below a certain lower
        bound of the log-partition.

    Notes
    -----
    Annealed importance sampling (Neal 2001) with resampling (Del Moral, Doucet & Jasra 2006) along
    the path of learning, as in Krause, Fischer & Igel (2020) and Bereux et al. (2025). Where Gibbs
    sweeps do not cross between phases the error is too small: check the last machine by
    `annealed_importance_sampling`.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> X = (np.random.default_rng(0).random((200, 16)) < 0.3).astype(float)
    >>> trajectory = mf.evaluation.TrajectoryAnnealing(X, rng=0)
    >>> rbm = mf.GeneralizedRBM(8, n_epochs=3, callbacks=[trajectory], random_state=0).fit(X)
    >>> trajectory.epoch, max(trajectory.error) < 0.1
    ([1, 2, 3], True)
    >>> abs(trajectory.log_partition[-1] - mf.exact(rbm.model_).log_partition) < 0.1
    True
    """

    def __init__(
        self,
        X=None,
        *,
        n_chains=100,
        n_steps=20,
        n_sweeps=2,
        n_fresh_steps=150,
        n_first_steps=500,
        every=1,
        n_threads=None,
        rng=None,
    ):
        self.X = X
        self.n_chains, self.n_steps = count("n_chains", n_chains, 2), count("n_steps", n_steps)
        self.n_sweeps = count("n_sweeps", n_sweeps)
        self.n_fresh_steps = count("n_fresh_steps", n_fresh_steps)
        self.n_first_steps = count("n_first_steps", n_first_steps)
        self.every = count("every", every)
        self.n_threads = None if n_threads is None else count("n_threads", n_threads)
        self._rng = generator(rng, optional=True)
        self.epoch, self.log_partition, self.error = [], [], []
        self.log_likelihood, self.effective_size, self.seconds = [], [], []
        self.difference = []
        self.chains = self._model = self._leg = None
        # The log-partition, and its squared error.
        self._value, self._variance = 0.0, 0.0

    def __call__(self, state):
        """Record after an epoch of training, if it is one of those asked for."""
        if state.epoch % self.every == 0:
            self.record(state.model, state.epoch)

    def record(self, model, epoch):
        """Append the log-partition of a model, such as the one before training as epoch 0."""
        start = time.perf_counter()
        check_layered(model)
        visible, X = model.layers[0], self.X
        if X is not None:
            X = rows("X", as_states("X", visible, X), n_units(visible), model.dtype)
        first, model_of_data, model = self._model is None, model, model.bipartite()
        if first:
            size, difference = self._anneal_from_units(model), 0.0
        else:
            size = self._anneal_from_last(model)
            difference = self._compare_with_fresh(model)
        too_low = self._lacking(model)
        if too_low and not first:
            size = self._anneal_from_units(model)
            too_low = self._lacking(model)
        self._model = model
        if X is not None:
            log_likelihoods = log_likelihood(model_of_data, X, self._value)
            self.log_likelihood.append(float(log_likelihoods.mean()))
        self.epoch.append(epoch)
        self.log_partition.append(float(self._value))
        self.error.append(float(np.sqrt(self._variance)))
        self.difference.append(float(difference))
        self.effective_size.append(float(size))
        self.seconds.append(time.perf_counter() - start)
        if too_low:
            warn_user(
                f"annealing along the trajectory: the log-partition of epoch {epoch} is at least "
                f"{too_low:.3g} nats too low: chains miss the states of most weight, as happens "
                "where training diverges. Train with a smaller learning rate."
            )
        if size < min(MIN_EFFECTIVE_SIZE, self.n_chains / 2):
            warn_user(
                f"annealing along the trajectory: effectively {size:.1f} of {self.n_chains} chains "
                f"contribute to the log-partition of epoch {epoch}; pass "
                + (
                    f"n_first_steps={4 * self.n_first_steps}."
                    if first
                    else f"n_steps={4 * self.n_steps}."
                )
            )

    def _anneal_from_units(self, model):
        """Fill the chains by annealing from independent units; the effective number of them."""
        path, _, values = self._path(model)
        exploration = Exploration(path, bool(values), None, self.n_first_steps)
        estimate = exploration.estimate(self.n_first_steps, np.inf, reverse=False)
        self._leg = exploration.leg
        self._restart(values, estimate.log_partition, estimate.error)
        return estimate.effective_size

    def _compare_with_fresh(self, model):
        """Anneal from units with the means of the chains, and average, or take the higher estimate.

        Return how much higher the fresh chains' estimate is.
        """
        path, chains, values = self._path(model, self.chains)
        base = base_between(path, neutral_base(path.model, bool(values)), chains)
        self._leg = path.forward(base, refined(self._leg, self.n_fresh_steps))
        fresh, error = log_mean(self._leg.log_weights)
        difference = fresh - self._value
        # Errors of a few chains may be 0 by chance.
        variances = np.maximum([self._variance, error**2], np.finfo(float).eps)
        in_errors = difference / np.sqrt(variances.sum())
        if in_errors > CLEAR_ERRORS:
            self._restart(values, fresh, error)
        elif in_errors > -CLEAR_ERRORS:
            self._value += variances[0] / variances.sum() * difference
            self._variance = variances.prod() / variances.sum() * max(1, in_errors**2)
        return difference

    def _lacking(self, model):
        """Nats by which the estimate is below a certain lower bound, 0 if it is not."""
        path, chains, _ = self._path(model, self.chains)
        bound = path.shift + lower_bound(path.model, [chains]).value
        return lacking(self._value, bound, model.dtype)

    def _path(self, model, chains=None):
        """The path to a model, chains as states of its units, and the two values of these if so."""
        (problem, shift), chains, values = annealed_model(model, chains, self._rng)
        return Path.of(problem, shift, self.n_chains, self._rng, self.n_threads), chains, values

    def _restart(self, values, log_partition, error):
        """Continue with the ends of chains annealed from independent units."""
        chains = self._leg.ends
        if values:
            chains = np.where(chains == 1, *(chains.dtype.type(x) for x in values[::-1]))
        self.chains, self._value, self._variance = chains, log_partition, error**2

    def _anneal_from_last(self, model):
        """Anneal the chains from the last model to this one; their smallest effective number."""
        if model.weights.shape != self._model.weights.shape:
            raise ValueError(
                f"the model must have weights of shape {self._model.weights.shape}, as that of the "
                f"record before, got {model.weights.shape}; use a new TrajectoryAnnealing."
            )
        old, smallest = self._model, float(self.n_chains)
        population = Population(self.n_chains)
        for step in range(1, self.n_steps + 1):
            new = _between(self._model, model, step / self.n_steps)
            added = log_likelihood(new, self.chains, 0.0) - log_likelihood(old, self.chains, 0.0)
            check_finite(added)
            population.add(added)
            size = population.effective_size()
            smallest = min(smallest, size)
            if size < RESAMPLE_BELOW * self.n_chains or step == self.n_steps:
                value, error = population.log_mean_weight()
                self._value, self._variance = self._value + value, self._variance + error**2
                self.chains = self.chains[population.resample(self._rng)]
                population = Population(self.n_chains)
            self.chains, _ = gibbs(new, self.chains, self.n_sweeps, self._rng, self.n_threads)
            old = new
        return smallest


def _between(old, new, fraction):
    """The model at a fraction of the way from old to new; exactly the new one at 1."""
    if fraction == 1:
        return new
    fraction = new.dtype.type(fraction)
    parameters = ModelParameters.of(old).combine(
        lambda x, y: x + fraction * (y - x), ModelParameters.of(new)
    )
    return new.rebuilt(**vars(parameters))
