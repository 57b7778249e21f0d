"""Inference with a fitted Potts machine: energies, samples, scores of contacts, errors, tests."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastmf._common.arguments import count, flag, one_of
from fastmf.estimators.common.categories import checked_table
from fastmf.estimators.common.frames import square_frame
from fastmf.estimators.common.labels import check_sizes, coded_labels, labels_from
from fastmf.estimators.networks.potts_network import PottsNetwork
from fastmf.estimators.pseudo_likelihood._machine import ItemMachine
from fastmf.estimators.pseudo_likelihood._observed import restored_rows
from fastmf.inference.sampling import categories
from fastmf.learning.pseudo_likelihood.available import target_labels
from fastmf.learning.pseudo_likelihood.potts import contacts, fitting
from fastmf.learning.pseudo_likelihood.potts.couplings import DenseCouplings, OfFewRows
from fastmf.learning.pseudo_likelihood.potts.dense import DenseObjective
from fastmf.models import BoltzmannMachine
from fastmf.models._gauge import GAUGES, in_gauge
from fastmf.models._io import model_to_arrays
from fastmf.priors import Categorical


class BasePottsMachine(PottsNetwork, ItemMachine):
    """All methods of `PottsMachine` but `fit`."""

    _models = ("BoltzmannMachine",)

    # --- parameters -----------------------------------------------------------------------------

    @property
    def couplings_(self):
        """Couplings as estimated; (n_groups, q, n_groups, q), or flat if sizes are unequal."""
        check_is_fitted(self)
        return self._by_position(self._couplings.dense(), 2)

    @property
    def field_(self):
        """Fields as estimated; (n_groups, q), or flat if sizes are unequal."""
        check_is_fitted(self)
        return self._by_position(self._field, 1)

    @property
    def model_(self):
        """The machine as a `BoltzmannMachine` with `Categorical` units, for `fastmf.tap`."""
        check_is_fitted(self)
        if self._model is None:
            state = np.concatenate([np.arange(q) for q in self.sizes_])
            self._model = BoltzmannMachine(self._couplings.dense(), Categorical(self._field, state))
        return self._model

    def _by_position(self, array, n_axes):
        """A flat array with axes for positions and states, if all positions have as many."""
        sizes = self.sizes_
        if (sizes != sizes[0]).any():
            return array
        return array.reshape((len(sizes), sizes[0]) * n_axes)

    def in_gauge(self, gauge, reference=0):
        """Couplings and field in a gauge, with the same probabilities.

        Parameters
        ----------
        gauge : {"zero-sum", "lattice"}
            Means over the states of a position are zero, or all parameters of one state are.
        reference : int, default 0
            Number of that state: its place in `categories_`.

        Returns
        -------
        couplings : array of shape (n_groups, q, n_groups, q)
            Flat, (n_states, n_states), if positions have different numbers of states.
        field : array of shape (n_groups, q)

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> X = np.random.default_rng(0).integers(0, 3, (200, 4))
        >>> machine = mf.PottsMachine(l2=0.1, l2_field=0.1).fit(X)
        >>> couplings, field = machine.in_gauge("zero-sum")
        >>> bool(abs(couplings.sum(1)).max() < 1e-12)
        True
        """
        check_is_fitted(self)
        one_of("gauge", gauge, GAUGES)
        if count("reference", reference, 0) >= self.sizes_.min():
            raise ValueError(f"reference must be a state of all positions, got {reference}.")
        found = in_gauge(self._couplings.dense(), self._field, self.sizes_, gauge, reference)
        return self._by_position(found[0], 2), self._by_position(found[1], 1)

    def contact_scores(self, gauge="zero-sum", ignore=None, apc=True, *, as_frame=False):
        """Frobenius norms of the couplings of all pairs of positions, less their positions' means.

        Parameters
        ----------
        gauge : {"zero-sum", None}, default "zero-sum"
            None: couplings as estimated, as plmc scores them.
        ignore : int, optional
            Number of the state that is left out of the norms: that of gaps.
        apc : bool, default True
            Average product correction: less ``F_i. F_.j / F_..`` (Dunn, Wahl & Gloor 2008).
        as_frame : bool, default False
            A pandas data frame instead, with the names of the positions.

        Returns
        -------
        array of shape (n_groups, n_groups)
            Symmetric, with zero diagonal.

        Raises
        ------
        ImportError
            With `as_frame`, if pandas is not installed.
        """
        check_is_fitted(self)
        one_of("gauge", gauge, ("zero-sum", None))
        if ignore is not None and count("ignore", ignore, 0) >= self.sizes_.max():
            raise ValueError(f"ignore must be a state, below {self.sizes_.max()}, got {ignore}.")
        scores = contacts.norms(self._couplings, gauge, ignore)
        scores = contacts.average_product_corrected(scores) if flag("apc", apc) else scores
        return square_frame(self, scores) if flag("as_frame", as_frame) else scores

    # --- rows of the fit ------------------------------------------------------------------------

    def _dense_objective(self, labels, weights):
        """Return the objective of rows as a function of all fields and couplings."""
        edges, targets = self._edges(), None
        if self.missing == "available" and (labels < 0).any():
            targets = target_labels(labels, edges)
        return DenseObjective(
            labels, weights, self.sizes_, float(self.l2), float(self.l2_field), edges, targets,
            bool(self.symmetric),
        )  # fmt: skip

    @property
    def n_available_(self):
        """Weight of the rows that have a part in the conditional probability of each position."""
        check_is_fitted(self)
        return self._weights @ (self._dense_objective(self._labels, self._weights).targets >= 0)

    # --- probabilities --------------------------------------------------------------------------

    def _labels_of(self, X, missing=True):
        check_is_fitted(self)
        X = checked_table(self, X, reset=False, missing=True)
        labels = coded_labels(self, X, self.categories_)
        if not missing and (labels < 0).any():
            raise ValueError("X must have no missing labels here: `impute` them first.")
        return labels

    def _own(self, array, labels):
        """Entries of flat rows at the labels, zero where they are missing."""
        found = np.take_along_axis(array, self._first + np.maximum(labels, 0), axis=1)
        return np.where(labels >= 0, found, 0.0)

    def _local_fields(self, labels):
        return self._couplings.fields(labels) + self._field

    def score_samples(self, X):
        """Log-pseudo-likelihood of each row, of the positions that are not missing.

        Parameters
        ----------
        X : int array of shape (n_samples, n_groups)

        Returns
        -------
        array of shape (n_samples,)
            Nats.

        Examples
        --------
        >>> import numpy as np, fastmf as mf
        >>> X = np.random.default_rng(0).integers(0, 3, (200, 4))
        >>> machine = mf.PottsMachine(l2=0.1, l2_field=0.1).fit(X)
        >>> bool((machine.score_samples(X) < 0).all())
        True
        """
        labels = self._labels_of(X)
        return fitting.score_of(self._local_fields(labels), labels, self.sizes_)

    def conditional_proba(self, X):
        """Probabilities of the states of each position given all others.

        Parameters
        ----------
        X : int array of shape (n_samples, n_groups)
            Missing positions have no influence.

        Returns
        -------
        array of shape (n_samples, n_states)
            Flat: the states of all positions side by side.
        """
        fields = self._local_fields(self._labels_of(X))
        return np.hstack(
            [
                categories.softmax(fields[:, first : first + q])
                for first, q in zip(self._first, self.sizes_, strict=True)
            ]
        )

    def energy(self, X):
        """Energy -x'Jx / 2 - h'x; missing positions add nothing.

        Parameters
        ----------
        X : int array of shape (n_samples, n_groups)

        Returns
        -------
        array of shape (n_samples,)
        """
        labels = self._labels_of(X)
        halves = self._couplings.fields(labels) / 2 + self._field
        return -self._own(halves, labels).sum(1)

    def mutants(self, X):
        """Changes of log-probability by all changes of a single position.

        Parameters
        ----------
        X : int array of shape (n_groups,) or (n_samples, n_groups)
            Without missing labels.

        Returns
        -------
        array of shape (n_groups, q) or (n_samples, n_groups, q)
            log p(x with state b at position i) - log p(x). The last two axes are one, flat, if
            positions have different numbers of states.
        """
        single = np.ndim(X) == 1
        labels = self._labels_of(np.asarray(X)[None] if single else X, missing=False)
        fields = self._local_fields(labels)
        change = fields - np.repeat(self._own(fields, labels), self.sizes_, axis=1)
        if (self.sizes_ == self.sizes_[0]).all():
            change = change.reshape(len(labels), len(self.sizes_), -1)
        return change[0] if single else change

    def _categorical_model(self):
        return self.model_

    # --- files ----------------------------------------------------------------------------------

    def _model_arrays(self):
        # The model of few rows is made of them when it is needed.
        return {} if isinstance(self._couplings, OfFewRows) else model_to_arrays(self.model_)

    def _restore_model(self, arrays):
        self._model = self._model_from(arrays) if "model" in arrays else None

    def _saved(self):
        fitted, arrays = self._saved_fit("log_pseudo_likelihood_")
        arrays |= {
            "labels": self._labels.astype(np.int16),
            "weights": self._weights,
            "sizes": self.sizes_,
            "flat_field": self._field,
        }
        if isinstance(self._couplings, OfFewRows):
            arrays["coefficients"] = self._couplings.coefficients
            arrays["coefficient_rows"] = self._couplings.labels
        arrays["missing"] = np.array([self.n_missing_, self.n_dropped_])
        return fitted, arrays

    def _restore(self, arrays):
        self._restore_fit(arrays)
        n_groups, most = self.n_features_in_, np.iinfo(np.int16).max
        self.sizes_ = arrays.member("sizes", "iu", (n_groups,), low=1, high=most)
        check_sizes(self.categories_, self.sizes_)
        self._first = np.cumsum(self.sizes_) - self.sizes_
        self._labels = labels_from("labels", arrays, self.sizes_).astype(np.int64)
        self._weights = arrays.member("weights", "f", (len(self._labels),), low=0)
        restored_rows(self, arrays, self._labels)
        self._restore_missing(arrays)
        self._edges()
        n_states = int(self.sizes_.sum())
        self._field = arrays.member("flat_field", "f", (n_states,), low=-np.inf)
        if "coefficients" in arrays:
            rows = labels_from("coefficient_rows", arrays, self.sizes_)
            coefficients = arrays.member("coefficients", "f", (len(rows), n_states), low=-np.inf)
            self._couplings = OfFewRows(coefficients, rows, self.sizes_)
        elif self._model is None or self._model.n_units != n_states:
            found = "none" if self._model is None else f"one of {self._model.n_units}"
            raise ValueError(f"it must hold a model of {n_states} units, got {found}.")
        else:
            self._couplings = DenseCouplings(self._model.couplings, self.sizes_)

    def __sklearn_tags__(self):
        """Tags for scikit-learn: missing labels are allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = True
        return tags
