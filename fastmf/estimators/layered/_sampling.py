"""Samples of machines with hidden layers, from several kinds of starts."""

import numpy as np
from scipy.special import softmax
from sklearn.utils.validation import check_is_fitted

from fastmf._common.arguments import count, one_of
from fastmf.estimators.common.runs import generator_of
from fastmf.inference.sampling.annealing import MIN_ANNEALED, annealed_samples
from fastmf.priors._groups import as_labels
from fastmf.priors._protocol import n_units, sample

STARTS_OF_CHAINS = ("independent", "data", "solutions", "annealed")


class LayeredSampling:
    """The method `sample` of machines with hidden layers.

    A subclass gives `_chains`, `_phases` and `_dense_data`.
    """

    def sample(self, n_samples=1, *, n_sweeps=100, start="annealed", init=None, random_state=None):
        """Draw from the model by Gibbs sampling.

        Parameters
        ----------
        n_samples : int
        n_sweeps : int
            Sweeps from the start of each chain. Chains of well separated phases do not change
            phase: they keep the weights of the start (see `fastmf.evaluation.gibbs_chains`).
        start : {"annealed", "independent", "data", "solutions"}, default "annealed"
            Where the chains start, without `init`:

            - "annealed": the ends of 100 chains, or `n_samples` if that is more, that are annealed
              from independent units to the model in as many steps as there are sweeps, and
              resampled in proportion to their importance weights. Phases have the weights of the
              model, the better the more steps there are.
            - "independent": draws from independent units fitted to the data; of separated phases
              the shares are arbitrary.
            - "data": rows of data, drawn from `starts_`. Phases have the weights of the data.
            - "solutions": draws from the distinct mean-field `solutions`, each as often as its
              log-partition says. Phases have the weights of mean field.
        init : array of shape (n_samples, n_features) or None
            Rows at which the chains start, in place of `start`.
        random_state : int, RandomState or None

        Returns
        -------
        array of shape (n_samples, n_features)

        Raises
        ------
        FloatingPointError
            With "annealed", if the units of a step on the way have no distribution.

        Notes
        -----
        Which training makes a machine whose samples look like data, and how far chains from each
        start come: the guide's page on purposes.
        """
        check_is_fitted(self)
        n_samples, n_sweeps = count("n_samples", n_samples), count("n_sweeps", n_sweeps, 0)
        one_of("start", start, STARTS_OF_CHAINS)
        rng = generator_of(random_state)
        if init is None:
            init = getattr(self, f"_{start}_starts")(n_samples, n_sweeps, rng)
        else:
            init = self._dense_data(init)
            if len(init) != n_samples:
                raise ValueError(f"init must have {n_samples} rows, one a sample, got {len(init)}.")
        return self._as_given(self._chains(init, n_sweeps, rng))

    def _as_given(self, x):
        """Values of the visible units in the form of the data that were learned from."""
        labelled = self.n_features_in_ != n_units(self.visible_)
        return as_labels(self.visible_, x) if labelled else x

    def _independent_starts(self, n_samples, n_sweeps, rng):
        zero = np.zeros((n_samples, n_units(self.visible_)), self.model_.dtype)
        return sample(self.pointwise_, zero, zero, rng)

    def _data_starts(self, n_samples, n_sweeps, rng):
        """Rows of `starts_`, none twice before all have been drawn."""
        n_rounds = -(-n_samples // len(self.starts_))
        rows = [rng.permutation(len(self.starts_)) for _ in range(n_rounds)]
        return self.starts_[np.concatenate(rows)[:n_samples]]

    def _solutions_starts(self, n_samples, n_sweeps, rng):
        """Draws from mean-field solutions, or from independent units if there are none."""
        phases = self._phases()
        if not len(phases.log_partition):
            return self._independent_starts(n_samples, n_sweeps, rng)
        rows = rng.choice(len(phases.log_partition), n_samples, p=softmax(phases.log_partition))
        return sample(self.visible_, phases.b[0][rows], phases.a[0][rows], rng)

    def _annealed_starts(self, n_samples, n_sweeps, rng):
        """Ends of annealed chains, of which no more is drawn than is asked for."""
        n_chains = max(n_samples, MIN_ANNEALED)
        data = self._data_starts(n_chains, 0, rng)
        found, _ = annealed_samples(self.model_, data, n_sweeps, rng, self.n_threads)
        return found[rng.permutation(n_chains)[:n_samples]]
