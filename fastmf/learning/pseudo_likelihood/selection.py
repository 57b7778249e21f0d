"""Selection of couplings along a path of penalties, by a criterion or by cross-validation.

The extended Bayesian information criterion of a graph with k couplings, d units and n rows is

    EBIC = -2 log PL + k log n + 4 gamma k log d

with the pseudo-likelihood at its maximum over the couplings of the graph (Foygel & Drton 2010, for
Gaussian graphs; Barber & Drton 2015, for the Ising model). The graphs are obtained with an l1
penalty that decreases from the smallest value without couplings. In cross-validation, each fold is
scored by fits to all other folds with the penalties of the path.

Couplings can also be selected item by item. The conditional distribution of item i given all other
items is a logistic regression with the scores of these items as predictors (for more than two
categories, an adjacent-category logit model with a common slope). Each regression is fitted
separately along a path of l1 penalties, and the penalty with the smallest

    EBIC_i = -2 l_i + k_i (log n + 2 gamma log(d - 1))

is chosen, where l_i is the log-likelihood at the penalised estimate and k_i the number of
neighbours (van Borkulo et al. 2014, after Ravikumar, Wainwright & Lafferty 2010). Predictors are
standardised. An edge is selected if both of its items select each other ("and"), or one ("or").
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.warning import short_repr
from fastmf.learning.pseudo_likelihood.fit import MAX_ITER, TOLERANCE_ROWS, lbfgs, maximum, minimise
from fastmf.learning.pseudo_likelihood.ordinal import OrdinalLikelihood
from fastmf.learning.pseudo_likelihood.resampling import counts_of

# Number of penalties of a path, which stops a fifth of this number after the best criterion; and
# ratio of the smallest to the largest penalty.
N_PENALTIES, SMALLEST = 100, 1e-3


@short_repr
class SelectionPath(NamedTuple):
    """Graphs along a path of penalties, the largest penalty first.

    For `nodewise_path`, arrays have a column for each item: penalties, neighbours and
    log-likelihoods of its regression on all other items; `chosen` is an array.
    """

    l1: np.ndarray  # (n_penalties,): penalties
    n_edges: np.ndarray  # int (n_penalties,): number of non-zero couplings
    # (n_penalties,): maximum over these couplings, without the penalty `l1`
    log_pseudo_likelihood: np.ndarray
    ebic: np.ndarray  # (n_penalties,): criterion of each graph
    chosen: int  # index of the smallest criterion, or of the largest score
    # (n_penalties,), optional: cross-validated log-pseudo-likelihood per held-out row
    score: np.ndarray | None = None


def ebic_path(objective, gamma, tol):
    """Compute a path of graphs; return it with the couplings of the chosen graph."""
    n, cost = objective.n_fields, np.log(objective.total) + 4 * gamma * np.log(objective.n_units)
    pairs, parameters = np.stack(objective.pairs, axis=1), objective.independent()
    penalties = _penalties(objective, N_PENALTIES)
    largest = penalties[0]
    graphs, values, values_of_graphs = [], [], {}
    for l1 in penalties:
        # At the largest penalty there are no couplings, up to rounding errors.
        if l1 < largest:
            parameters = lbfgs(objective, parameters, l1=l1, tol=tol).parameters
        coupled = parameters[n:] != 0
        key = coupled.tobytes()
        if key not in values_of_graphs:
            start = np.concatenate([parameters[:n], parameters[n:][coupled]])
            graph = objective.restricted(pairs[coupled])
            values_of_graphs[key] = graph.log_likelihood(maximum(graph, start, tol).parameters)
        graphs.append(coupled)
        values.append(values_of_graphs[key])
        sizes = np.sum(graphs, axis=1)
        ebic = -2 * np.array(values) + cost * sizes
        chosen = int(ebic.argmin())
        n_waited = len(values_of_graphs) - 1 - [*values_of_graphs].index(graphs[chosen].tobytes())
        if n_waited >= N_PENALTIES // 5:
            break
    path = SelectionPath(penalties[: len(values)], sizes, np.array(values), ebic, chosen)
    return path, pairs[graphs[chosen]]


def cross_validated_path(objective, gamma, tol, n_folds=10, n_penalties=30):
    """Compute a path of graphs; return it with the couplings at the best held-out score."""
    n, pairs = objective.n_fields, np.stack(objective.pairs, axis=1)
    counts = counts_of(objective.weights * objective.total)
    penalties = _penalties(objective, n_penalties)
    fold = np.random.default_rng(0).permutation(np.arange(counts.sum()) % n_folds)
    row = np.repeat(np.arange(len(counts)), counts)
    score = np.zeros(len(penalties))
    for k in range(min(n_folds, counts.sum())):
        left_out = np.bincount(row[fold == k], minlength=len(counts)).astype(float)
        training, test = (objective.reweighted(w) for w in (counts - left_out, left_out))
        parameters = training.independent()
        for m, l1 in enumerate(penalties):
            parameters = lbfgs(training, parameters, l1=l1, tol=tol).parameters
            score[m] += test.log_likelihood(parameters) / counts.sum()
    chosen, fits = int(score.argmax()), []
    parameters = objective.independent()
    for l1 in penalties:
        parameters = lbfgs(objective, parameters, l1=l1, tol=tol).parameters
        fits.append(parameters)
    sizes = np.array([int((fit[n:] != 0).sum()) for fit in fits])
    values = np.array([objective.log_likelihood(fit) for fit in fits])
    ebic = -2 * values + sizes * (np.log(objective.total) + 4 * gamma * np.log(objective.n_units))
    path = SelectionPath(penalties, sizes, values, ebic, chosen, score)
    return path, pairs[fits[chosen][n:] != 0]


def _penalties(objective, n_penalties):
    """Return decreasing penalties, from the smallest value without couplings."""
    n, parameters = objective.n_fields, objective.independent()
    largest = abs(objective.value_and_gradient(parameters)[1][n:]).max(initial=0.0)
    return largest * np.geomspace(1, SMALLEST, n_penalties)


RULES = ("and", "or")


class Regressions(OrdinalLikelihood):
    """Sum of the log-likelihoods of all regressions, each with its own coefficients.

    Parameters are thresholds at the means of the predictors, followed by coefficients of
    standardised predictors, one for each pair of a predictor and an item.
    """

    def __init__(self, states, weights, thresholds, pairs, n_threads=None):
        super().__init__(states, weights, thresholds, pairs=pairs, n_threads=n_threads)
        allowed = self.index >= 0
        self.predictor, self.item = np.nonzero(allowed)
        self.n_parameters = self.n_fields + len(self.item)
        self.mean = self.weights @ self.states
        spread = np.sqrt(self.weights @ np.square(self.states - self.mean))
        # A constant predictor has no effect, whatever its scale.
        self.spread = np.where(spread > 0, spread, 1.0)

    def unpacked(self, parameters):
        """Return coefficients (predictor, item) of scores, and parameters of thresholds."""
        coefficients = np.zeros((self.n_units, self.n_units))
        coefficients[self.predictor, self.item] = parameters[self.n_fields :]
        coefficients /= self.spread[:, None]
        shift = (self.mean @ coefficients)[self.thresholds.item_of_parameter]
        return coefficients, parameters[: self.n_fields] - self.thresholds.slope * shift

    def value_and_gradient(self, parameters):
        """Compute the value and its gradient."""

        def sums(rows):
            w, (p, residuals, values) = self.weights[rows], self.conditionals(parameters, rows)
            weighted = w[:, None] * residuals
            return w @ p, self.states[rows].T @ weighted, weighted.sum(0), w @ values

        expected, products, residuals, value = self.sums_over_blocks(sums)
        fields = self.thresholds.gradient(self.frequencies - expected)
        products = (products - np.outer(self.mean, residuals)) / self.spread[:, None]
        return value, np.append(fields, products[self.predictor, self.item])

    def log_likelihoods(self, parameters):
        """Compute the log-likelihood of the regression of each item, for all rows."""

        def sums(rows):
            p = self.conditionals(parameters, rows)[0]
            observed = np.take_along_axis(p, self.states[rows].astype(int)[None], 0)[0]
            return (self.weights[rows] @ np.log(np.maximum(observed, np.finfo(float).tiny)),)

        return self.total * self.sums_over_blocks(sums)[0]

    def lasso(self, start, l1, tol):
        """Maximise with l1 penalties of the coefficients, an array with one for each item."""

        def function(z, gradient):
            value, gradient_up = self.value_and_gradient(z)
            np.negative(gradient_up, out=gradient)
            return -value

        penalty = np.append(np.zeros(self.n_fields), l1[self.item])
        options = {"tol": tol / 100 / TOLERANCE_ROWS, "max_iter": MAX_ITER}
        return minimise(function, start.copy(), l1=penalty, **options).parameters


def nodewise_path(regressions, gamma, rule, tol):
    """Compute the neighbours of each item along a path of penalties, and the chosen edges."""
    d, n = regressions.n_units, regressions.n_fields
    parameters = regressions.independent()
    slopes = abs(regressions.value_and_gradient(parameters)[1][n:])
    largest = np.zeros(d)
    np.maximum.at(largest, regressions.item, slopes)
    penalties = np.geomspace(1, SMALLEST, N_PENALTIES)[:, None] * largest
    cost = np.log(regressions.total) + 2 * gamma * np.log(max(d - 1, 1))
    neighbours, values, ebic = [], [], []
    for k, l1 in enumerate(penalties):
        # At the largest penalties no item has neighbours, up to rounding errors.
        if k:
            parameters = regressions.lasso(parameters, l1, tol)
        neighbour = np.zeros((d, d), bool)
        neighbour[regressions.predictor, regressions.item] = parameters[n:] != 0
        neighbours.append(neighbour)
        values.append(regressions.log_likelihoods(parameters))
        ebic.append(-2 * values[-1] + neighbour.sum(0) * cost)
        chosen = np.argmin(ebic, axis=0)
        if k - chosen.max() >= N_PENALTIES // 5:
            break
    neighbours = np.array(neighbours)
    directed = neighbours[chosen, :, np.arange(d)].T
    joined = directed & directed.T if rule == "and" else directed | directed.T
    path = SelectionPath(
        penalties[: len(values)], neighbours.sum(1), np.array(values), np.array(ebic), chosen
    )
    return path, np.argwhere(np.triu(joined))
