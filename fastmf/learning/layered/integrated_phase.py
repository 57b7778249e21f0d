"""The phase of compiled steps that solves machines with a layer of Gaussian units.

These are integrated out (`fastmf.inference.mean_field.gaussian_layers`): a machine of the units h
of the other layer is left, with the couplings J = W' diag(1/p) W, and swept. With the precisions p
and fields f of the Gaussian units x, and their couplings W to the others,

    E x = (f + W E h) / p,      Cov(x, h) = diag(1/p) W C,      Var x = 1/p + Cov(x, h) W' / p

where C is the covariance of h, averaged over rows: variances, and elsewhere J v v'.
"""

import numpy as np

from fastmf._threads.workers import one_blas_thread
from fastmf.inference.mean_field.few_sweeps import FewSweeps
from fastmf.kernels.mean_field.arguments import WINDOW_SWEEPS
from fastmf.kernels.mean_field.rows import MEAN, VAR
from fastmf.learning.layered.gradients import ORDER_OF_GRADIENT
from fastmf.learning.layered.phases import States
from fastmf.priors._queries import fields_of, gaussian_units, precisions


class SolveOthers(States):
    """Solutions of the other layer, and moments of the Gaussian units given these."""

    @staticmethod
    def requires(problem):
        """One layer is Gaussian as a whole, and no row would be damped."""
        model, settings = problem.model, problem.settings
        found = [gaussian_units(layer) for layer in model.layers]
        apart = len(found) == 2 and any(f.all() and not g.any() for f, g in (found, found[::-1]))
        return {
            "dense rows": not problem.sparse,
            "Gaussian units that are all of one layer of two": apart,
            "gradient='mean_field' or 'tap'": ORDER_OF_GRADIENT.get(settings.gradient) in (1, 2),
            "starts='data' or 'persistent'": settings.starts in ("data", "persistent"),
            f"n_sweeps at most {WINDOW_SWEEPS}": settings.n_sweeps <= WINDOW_SWEEPS,
        }

    def __init__(self, run, arguments):
        super().__init__(run, arguments)
        self.order = ORDER_OF_GRADIENT[run.options.gradient]
        layers, bounds = run.problem.model.layers, run.layout.bounds
        self.which = int(gaussian_units(layers[1]).all())
        self.gaussian, self.others = bounds[self.which], bounds[1 - self.which]
        n_others = self.others.stop - self.others.start
        given = n_others, self.others.start, self.order, run.dtype
        self.sweeps = FewSweeps(*given, run.n_workers)

    def after(self):
        """Solve, and give the phases that follow what they take averages of."""
        run, statistics = self.run, self.run.statistics
        prior, other = (run.units.priors[k] for k in (self.which, 1 - self.which))
        state, x, h = statistics.model.state, self.gaussian, self.others
        if not run.problem.persistent and run.n_starts > run.n_batch and self.which == 0:
            again = np.arange(run.n_starts) % run.n_batch
            state[MEAN][:, h], state[VAR][:, h] = (part[again, h] for part in statistics.data[:2])
        with one_blas_thread():
            weights = run.couplings.weights[0] if self.which == 0 else run.couplings.weights[0].T
            variance = (1 / precisions(prior)).astype(run.dtype)
            field = fields_of(prior).astype(run.dtype)
            scaled = weights * variance[:, None]
            couplings = weights.T @ scaled
            diagonal = couplings.diagonal().copy()
            np.fill_diagonal(couplings, 0)
            tilt = (field @ scaled)[None], -diagonal
            self.sweeps(couplings, other, tilt, run.options.n_sweeps, state)
            mean, var = state[MEAN][:, h], state[VAR][:, h]
            of_others = np.zeros_like(couplings)
            if self.order == 2:
                of_others += couplings * (var.T @ var) / len(var)
            np.fill_diagonal(of_others, var.mean(0))
            covariance = scaled @ of_others
            state[MEAN][:, x] = mean @ scaled.T + variance * field
            state[VAR][:, x] = variance + np.einsum("ij,ij->i", covariance, scaled)
        effect = run.couplings.effects[0]
        np.negative(covariance if self.which == 0 else covariance.T, out=effect)

    def load(self, state, rows):
        """Take over persistent solutions, or let them start from data and the moments given it."""
        super().load(state, rows)
        if self.run.problem.persistent and not state.chains and self.which == 0:
            mean, var = self.run.statistics.model.state[:2]
            b, zero = mean[:, self.gaussian] @ state.model.weights, mean.dtype.type(0)
            mean[:, self.others], var[:, self.others] = state.model.hidden.moments(b, zero)

    def store(self, state):
        """Give a state what persistent solutions go on from."""
        super().store(state)
        if state.chains:
            # An average over rows, and no part of a start.
            state.chains[2 + self.which][:] = 0
