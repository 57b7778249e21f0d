"""Result of annealed importance sampling, and whether it is right."""

from typing import NamedTuple

import numpy as np

from fastmf._common import html
from fastmf.inference.sampling.annealing import effective_size

# Effective number of chains, of each end, below which an estimate does not count as converged (half
# of the chains if they are fewer than twenty).
MIN_EFFECTIVE_SIZE = 10


class AnnealedEstimate(NamedTuple):
    """Result of `annealed_importance_sampling`.

    Parameters
    ----------
    log_partition, error : float
        Forward estimate, from independent units to the model, and its standard error in nats. It is
        low on average, and exceeds the truth by x nats with probability below exp(-x).
    reverse, reverse_error : float
        Reverse estimate, from samples of the model to independent units, and its standard error.
        With exact samples it is high on average.
    log_weights, reverse_log_weights : array of shape (n_chains,)
        Estimates of the chains, by their starts; the estimates are their (harmonic) log-means.
        Infinite for a start without descendants, as chains are resampled.
    samples : array of shape (n_chains, n_visible)
        The samples of the model from which the reverse chains start.
    n_steps : int
        Steps of the annealing that was accepted: more than those asked for if they were doubled.
    tolerance : float
        Largest gap and standard errors at which the two ends count as closed, in nats.
    lower_bound : float
        The log-partition is certainly not lower: the bound of naive mean field, or a sum over
        states. An estimate that is lower is wrong.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.RBM(np.zeros((3, 2)), mf.Ising(np.zeros(3)), mf.Ising(np.zeros(2)))
    >>> found = mf.annealed_importance_sampling(model, 10, 10, rng=0)
    >>> np.isclose(found.log_partition, 5 * np.log(2)), found.converged
    (np.True_, True)
    """

    log_partition: float
    error: float
    reverse: float
    reverse_error: float
    log_weights: np.ndarray
    reverse_log_weights: np.ndarray
    samples: np.ndarray
    n_steps: int = 0
    tolerance: float = 0.5
    lower_bound: float = -np.inf

    @property
    def gap(self):
        """Reverse minus forward estimate, in nats."""
        return self.reverse - self.log_partition

    @property
    def effective_size(self):
        """Effective number of chains of the forward estimate."""
        return effective_size(self.log_weights)

    @property
    def reverse_effective_size(self):
        """Effective number of chains of the reverse estimate."""
        return effective_size(-self.reverse_log_weights)

    @property
    def converged(self):
        """Whether gap, errors and `lacking` are within the tolerance, and enough chains contribute.

        The effective sizes are at least 10, or half of the chains if there are fewer than 20.
        """
        enough = min(MIN_EFFECTIVE_SIZE, len(self.log_weights) / 2)
        smallest = min(self.effective_size, self.reverse_effective_size)
        sizes = abs(self.gap), self.error, self.reverse_error, self.lacking
        return bool(all(size <= self.tolerance for size in sizes) and smallest >= enough)

    @property
    def lacking(self):
        """Nats by which the lower end is certainly too low; 0 if that is not known."""
        lower_end = min(self.log_partition, self.reverse)
        return max(0.0, self.lower_bound - lower_end)

    @property
    def message(self):
        """How it ended, and what to raise."""
        text = (
            f"forward and reverse estimates are {abs(self.gap):.3g} nats apart, with standard "
            f"errors of {self.error:.2g} and {self.reverse_error:.2g} (tolerance "
            f"{self.tolerance:g}), from effectively {self.effective_size:.1f} and "
            f"{self.reverse_effective_size:.1f} of {len(self.log_weights)} chains"
        )
        if self.converged:
            return (
                f"converged: {text}; certain is that the log-partition is at least "
                f"{self.lower_bound:.6g}, as phases that neither chains nor mean field visit are "
                "missing from both estimates"
            )
        n_steps = 4 * self.n_steps
        if self.lacking > self.tolerance:
            text += (
                f", and {self.lacking:.3g} nats below {self.lower_bound:.6g}, a certain lower "
                "bound of the log-partition: chains miss the states of most weight, as happens "
                "where training has diverged. Pass rows of these states as data, or train with a "
                "smaller learning rate; otherwise"
            )
        return (
            f"not converged: {text}; pass n_steps={n_steps}, or max_steps={n_steps} or more to "
            f"double the {self.n_steps} steps until the ends close, and if that does not close "
            f"them n_chains={4 * len(self.log_weights)}"
        )

    def __repr__(self):
        ended = "converged" if self.converged else "not converged"
        return (
            f"AnnealedEstimate(log-partition {self.log_partition:.6g} +- {self.error:.2g}, reverse "
            f"{self.reverse:.6g} +- {self.reverse_error:.2g}, {ended})"
        )

    def _repr_html_(self):
        """HTML for notebooks: both estimates, and whether they agree."""
        ends = [
            ("forward", self.log_partition, self.error, self.effective_size),
            ("reverse", self.reverse, self.reverse_error, self.reverse_effective_size),
        ]
        estimates = [
            (name, f"{value:.6g}", html.number(error), f"{size:.1f}")
            for name, value, error, size in ends
        ]
        header = "", "log-partition (nats)", "standard error", "effective chains"
        rows = [
            ("converged", "yes" if self.converged else "no"),
            ("gap", f"{self.gap:.3g} (tolerance {self.tolerance:g})"),
            ("chains", f"{len(self.log_weights)}"),
            ("steps", f"{self.n_steps}"),
            ("lower bound", f"{self.lower_bound:.6g}"),
            ("message", self.message),
        ]
        return html.section("AnnealedEstimate", html.table(estimates, header), html.table(rows))
