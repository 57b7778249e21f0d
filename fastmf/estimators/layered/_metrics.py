"""Log-likelihoods of the epochs of a fit, in the units of measurement of the data."""

import numpy as np

from fastmf._common.rows import is_incomplete
from fastmf.inference.missing.seen import log_prob_of_seen
from fastmf.priors._groups import column_sizes
from fastmf.priors._rows import log_prob_of_rows
from fastmf.priors._scaling import is_real


class Metrics:
    """Metrics of an epoch, of data in units of measurement of their own.

    Parameters
    ----------
    metrics : callable
        Metrics of the family, of data as they are learned.
    begin : Begin

    Attributes
    ----------
    fitted : unit prior
        Independent units fitted to the data, in the units of measurement of learning.
    independent : float or None
        Log-likelihood on the rows of the last epoch, nats a row, of the independent units fitted to
        the data, or of those that learning began with if these explain less.
    """

    def __init__(self, metrics, begin):
        self._metrics, self._scaling = metrics, begin.scaling
        fitted = begin.independent
        fitted = fitted if begin.scaling is None else begin.scaling.units(fitted)
        self.fitted, self._priors = fitted, (fitted, begin.model.layers[0])
        self.independent = None

    def __call__(self, state, monitored, validation, settings, n_threads, weights=None):
        """Metrics by name: log-likelihoods per unit of data as they were given."""
        found = self._metrics(state, monitored, validation, settings, n_threads, weights)
        self.independent = min(self._alone(one, monitored, weights) for one in self._priors)
        if not is_real(self._priors[0]):
            return found
        size = sum(state.model.sizes)
        rows = {
            "log_likelihood": (monitored, weights), "validation_log_likelihood": (validation, None)
        }  # fmt: skip
        return {name: value - self._volume(*rows[name]) / size for name, value in found.items()}

    def _alone(self, prior, rows, weights):
        """Log-likelihood of uncoupled units, nats a row."""
        alone = np.average(log_likelihoods_alone(prior, rows), weights=weights)
        return float(alone) - self._volume(rows, weights)

    def _volume(self, rows, weights):
        if self._scaling is None:
            return 0.0
        return self._scaling.log_volume(self._priors[0], rows, weights)


def log_likelihoods_alone(prior, rows):
    """Log-likelihood of each row, given uncoupled units of this prior."""
    if is_incomplete(rows):
        sizes = column_sizes(prior)
        seen = ~np.isnan(rows[:, np.cumsum(sizes) - sizes])
        return log_prob_of_seen(prior, rows) - seen @ prior.log_partition(0.0, 0.0)
    log_probs = log_prob_of_rows(prior, rows, prior.moments(0.0, 0.0)[0].dtype)
    return log_probs - prior.log_partition(0.0, 0.0).sum()
