"""Fits of a composite likelihood: what machines of binary and of ordinal items share."""

from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from fastmf._common.arguments import number, one_of
from fastmf._common.progress import followed
from fastmf._common.warning import warn_user
from fastmf.estimators.common.frames import feature_names
from fastmf.estimators.networks.network import Network
from fastmf.estimators.networks.resampling import Resampling
from fastmf.estimators.pseudo_likelihood._machine import ItemMachine
from fastmf.estimators.pseudo_likelihood._observed import KINDS_OF_WEIGHTS, MISSING
from fastmf.learning.pseudo_likelihood.existence import MAX_NAMED
from fastmf.learning.pseudo_likelihood.fit import MAX_HESSIAN_PARAMETERS, MAX_NEWTON_PARAMETERS
from fastmf.learning.pseudo_likelihood.nodewise import RULES, Regressions, nodewise_path
from fastmf.learning.pseudo_likelihood.selection import cross_validated_path, ebic_path

SELECTIONS = ("ebic", "cv")


class CompositeMachine(Resampling, Network, ItemMachine):
    """Base of machines whose `_objective` is a `CompositeLikelihood`.

    A subclass gives `_items`, the rows as scores and their
    thresholds; and `_item_name`, what warnings call its items.
    """

    def _check_selection(self):
        """Check `l1`, `rule`, `missing` and `weights`, and what does not go together."""
        one_of("missing", self.missing, MISSING)
        one_of("weights", self.weights, KINDS_OF_WEIGHTS)
        number("ebic_gamma", self.ebic_gamma, 0, np.inf, below=True)
        one_of("rule", self.rule, (None, *RULES))
        if self.rule is not None and self.l1 != "ebic":
            raise ValueError(f"rule={self.rule!r} is for l1='ebic', got l1={self.l1!r:.40}.")
        if not isinstance(self.l1, str):
            number("l1", self.l1, 0, np.inf, below=True)
            return
        one_of("l1", self.l1, SELECTIONS)
        if self.missing in ("em", "available"):
            raise ValueError(f"l1={self.l1!r} needs complete rows: missing='error' or 'drop'.")

    def _select_couplings(self):
        """Leave the couplings to the objective that `l1` selects, and keep the path."""
        objective, gamma, tol = self._objective, float(self.ebic_gamma), self._tol
        n_rows = objective.total
        what = "parts of the rows" if self.l1 == "cv" else "penalties, at most"
        follow = partial(followed, what=what, verbose=self.verbose)
        if self.rule is not None:
            states, thresholds = self._items()
            regressions = Regressions(
                states, objective.weights * n_rows, thresholds, objective.pairs, self.n_threads
            )
            path, edges = nodewise_path(regressions, gamma, self.rule, tol, follow)
        elif self.l1 == "ebic":
            path, edges = ebic_path(objective, objective.restricted, gamma, n_rows, tol, follow)
        else:
            path, edges = cross_validated_path(objective, gamma, n_rows, tol, follow)
        self.path_, self._objective = path, objective.restricted(edges)

    def _chosen_solver(self, solver, by_newton=False):
        """Newton's method or L-BFGS for "auto"; `by_newton`: whatever the size."""
        n = self._objective.n_parameters
        if solver == "auto":
            small = n <= MAX_NEWTON_PARAMETERS or by_newton
            solver = "newton" if small and not self._penalty_l1 else "lbfgs"
        if solver == "newton" and n > MAX_HESSIAN_PARAMETERS:
            raise ValueError(
                f"Newton's method is for up to {MAX_HESSIAN_PARAMETERS} parameters (109 binary "
                f"units), got {n}: take solver 'lbfgs'."
            )
        return solver

    def _keep_fit(self, found, max_iter):
        """Attributes of a `Fit`, and a warning where it is no maximum."""
        self.history_, self.n_iter_ = np.array(found.history), len(found.history)
        self.existence_ = self._existence(found.parameters)
        self.converged_ = bool(found.stopped and self.existence_.exists is not False)
        message, units = self.existence_.message, self.existence_.units
        if units and hasattr(self, "feature_names_in_"):
            named = map(str, feature_names(self)[list(units[:MAX_NAMED])])
            more = ", ..." if len(units) > MAX_NAMED else ""
            message += f" ({self._item_name} {', '.join(named)}{more})"
        if not found.stopped and self.existence_.exists is not False:
            remedy = "raise max_iter" if self.n_iter_ >= max_iter else "give a larger tol"
            message = (
                f"stopped after {self.n_iter_} iterations of {max_iter} before `tol` was reached: "
                f"{remedy} or take another solver" + (f"; {message}" if message else "")
            )
        if message:
            warn_user(f"{message}.", ConvergenceWarning)

    def __sklearn_tags__(self):
        """Tags for scikit-learn: strings are values, and values may be missing if so told."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.allow_nan = self.missing != "error"
        return tags
