"""The log-partition by epoch, by annealing along the trajectory of learning."""

import time
import warnings

import numpy as np

from fastmf._common.arguments import count, rows
from fastmf.evaluation._annealing import Path, Population, annealed_model, check_finite
from fastmf.evaluation.annealed import MIN_EFFECTIVE_SIZE, Exploration
from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.inference.sampling.gibbs import gibbs
from fastmf.learning.training.parameters import ModelParameters
from fastmf.models._layered import check_layered
from fastmf.priors._protocol import n_units

# Chains are resampled when their effective number falls below this fraction.
RESAMPLE_BELOW = 0.5


class TrajectoryAnnealing:
    """A callback for training that records the log-partition, and log-likelihoods, by epoch.

    Chains are kept from one record to the next. They are annealed from the parameters there to the
    present ones, over models whose parameters are between the two: each one reweights the chains
    and moves them by Gibbs sweeps. Machines of successive epochs differ little, so that a few tens
    of sweeps replace the thousands of `annealed_importance_sampling`.

    Parameters
    ----------
    X : array of shape (n_rows, n_visible), optional
        Data whose mean log-likelihood is recorded, for instance a thousand rows of training data.
    n_chains : int, default 200
    n_steps : int, default 20
        Models from one record to the next, the present one included.
    n_sweeps : int, default 2
        Gibbs sweeps at each.
    n_first_steps : int, default 500
        Of the annealing from independent units to the model of the first record.
    every : int, default 1
        Epochs between two records.
    n_threads : int, optional
        Default: Numba's number of threads. Results do not depend on it.
    rng : numpy.random.Generator or int, optional

    Attributes
    ----------
    epoch : list of int
    log_partition, error : list of float
        Estimate by record and its standard error, in nats. The exponential of the estimate is
        unbiased, so that it is low on average.
    log_likelihood : list of float
        Mean over the rows of `X`, in nats; its error from sampling is `error`. Empty without `X`.
    effective_size : list of float
        The smallest effective number of chains since the record before.
    seconds : list of float
        Wall time that each record took.
    chains : array of shape (n_chains, n_visible)
        States of the visible units, to be weighted by `weights`; of a DBM those of all even layers.
    weights : array of shape (n_chains,)
        Importance weights of the chains, of sum 1.

    Raises
    ------
    ValueError, TypeError
        If the model is not an RBM or DBM, or an argument is invalid.
    FloatingPointError
        If the samples diverge (units whose distribution cannot be normalised).

    Warns
    -----
    UserWarning
        If fewer than ten chains contribute to a record, effectively.

    See Also
    --------
    annealed_importance_sampling : of one machine, from both sides.

    Notes
    -----
    Annealed importance sampling (Neal 2001) with resampling (Del Moral, Doucet & Jasra 2006) along
    the path of learning, as Krause, Fischer & Igel (2020) and Bereux et al. (2025) do. The relative
    variances of the stages between resamplings are added up, as if chains forgot where they were
    resampled: where Gibbs sweeps do not cross between phases the error is somewhat too small. A run
    of training that resumes from a checkpoint anneals from independent units anew.

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
        n_chains=200,
        n_steps=20,
        n_sweeps=2,
        n_first_steps=500,
        every=1,
        n_threads=None,
        rng=None,
    ):
        self.X = X
        self.n_chains, self.n_steps = count("n_chains", n_chains, 2), count("n_steps", n_steps)
        self.n_sweeps = count("n_sweeps", n_sweeps)
        self.n_first_steps = count("n_first_steps", n_first_steps)
        self.every = count("every", every)
        self.n_threads = None if n_threads is None else count("n_threads", n_threads)
        self._rng = np.random.default_rng(rng)
        self.epoch, self.log_partition, self.error = [], [], []
        self.log_likelihood, self.effective_size, self.seconds = [], [], []
        self.chains = self._model = self._population = None
        # Of the log-partition, up to the last resampling.
        self._known, self._variance = 0.0, 0.0

    def __call__(self, state):
        """Record after an epoch of training, if it is one of those asked for."""
        if state.epoch % self.every == 0:
            self.record(state.model, state.epoch)

    @property
    def weights(self):
        """Importance weights of the chains, of sum 1."""
        if self._population is None:
            raise AttributeError("there are no chains before the first record of a model.")
        return self._population.weights()

    def record(self, model, epoch):
        """Append the log-partition of a model, such as the one before training as epoch 0."""
        start = time.perf_counter()
        check_layered(model)
        X = None if self.X is None else rows("X", self.X, n_units(model.layers[0]), model.dtype)
        anneal = self._anneal_from_units if self._model is None else self._anneal_from_last
        size = anneal(model.bipartite())
        self._model = model.bipartite()
        value, variance = self._stage()
        log_partition = self._known + value
        if X is not None:
            log_likelihoods = log_likelihood(model, X, log_partition)
            self.log_likelihood.append(float(log_likelihoods.mean()))
        self.epoch.append(epoch)
        self.log_partition.append(float(log_partition))
        self.error.append(float(np.sqrt(self._variance + variance)))
        self.effective_size.append(float(size))
        self.seconds.append(time.perf_counter() - start)
        if size < min(MIN_EFFECTIVE_SIZE, self.n_chains / 2):
            warnings.warn(
                f"annealing along the trajectory: effectively {size:.1f} of {self.n_chains} chains "
                f"contribute to the log-partition of epoch {epoch}; pass "
                + (
                    f"n_first_steps={4 * self.n_first_steps}."
                    if len(self.epoch) == 1
                    else f"n_steps={4 * self.n_steps}."
                ),
                stacklevel=3,
            )

    def _anneal_from_units(self, model):
        """Fill the chains by annealing from independent units; the effective number of them."""
        (problem, shift), _, values = annealed_model(model, None, self._rng)
        path = Path.of(problem, shift, self.n_chains, self._rng, self.n_threads)
        found = Exploration(path, bool(values), None, self.n_first_steps)
        estimate = found.estimate(self.n_first_steps, np.inf, reverse=False)
        chains = found.leg.ends
        if values:
            chains = np.where(chains == 1, *(model.dtype.type(x) for x in values[::-1]))
        self.chains, self._population = chains, Population(self.n_chains)
        self._known, self._variance = estimate.log_partition, estimate.error**2
        return estimate.effective_size

    def _anneal_from_last(self, model):
        """Anneal the chains from the last model to this one; their smallest effective number."""
        if model.weights.shape != self._model.weights.shape:
            raise ValueError(
                f"the model must have weights of shape {self._model.weights.shape}, as that of the "
                f"record before, got {model.weights.shape}; use a new TrajectoryAnnealing."
            )
        old, smallest = self._model, float(self.n_chains)
        for step in range(1, self.n_steps + 1):
            new = _between(self._model, model, step / self.n_steps)
            added = log_likelihood(new, self.chains, 0.0) - log_likelihood(old, self.chains, 0.0)
            check_finite(added)
            self._population.add(added)
            size = self._population.effective_size()
            smallest = min(smallest, size)
            if size < RESAMPLE_BELOW * self.n_chains:
                value, variance = self._stage()
                self._known, self._variance = self._known + value, self._variance + variance
                self.chains = self.chains[self._population.resample(self._rng)]
                self._population = Population(self.n_chains)
            self.chains, _ = gibbs(new, self.chains, self.n_sweeps, self._rng, self.n_threads)
            old = new
        return smallest

    def _stage(self):
        """Log of the mean weight since the last resampling, and its variance."""
        value, error = self._population.log_mean_weight()
        return value, error**2


def _between(old, new, fraction):
    """The model at a fraction of the way from old to new; exactly the new one at 1."""
    if fraction == 1:
        return new
    fraction = new.dtype.type(fraction)
    parameters = ModelParameters.of(old).combine(
        lambda x, y: x + fraction * (y - x), ModelParameters.of(new)
    )
    return new.rebuilt(**vars(parameters))
