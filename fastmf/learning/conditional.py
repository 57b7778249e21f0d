"""Objectives of a conditional RBM and their gradients.

Labels y and hidden units h have the conditional energy

    -E(y, h | x) = y' W h + b(x)' y + c(x)' h,    b(x) = V x + b,  c(x) = U x + c.

The gradient of each objective is a difference of two averages,

    dW = <y h'>_labels - <y h'>_model,    db(x) = y - <y>_model,    dc(x) = <h | y> - <h>_model,

where the first one is over the hidden units given the labels. Objectives differ in the average over
the model: it is computed from beliefs of belief propagation or mean-field means (likelihood), from
Gibbs samples (contrastive divergence, perceptron), or from the labels with the largest augmented
score or their pseudo-marginals by mixed-product (structured support vector machines).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from fastmf._common import arguments as check
from fastmf.inference.bp._options import BPOptions
from fastmf.inference.bp.belief_propagation import most_probable
from fastmf.inference.bp.rbm import BinaryUnits, propagated
from fastmf.inference.mean_field.tap import tap
from fastmf.inference.missing.layered import (
    LOG_PARTITION_COST,
    MAX_WORK_OF_ROW,
    annealed_rows,
    enumerable,
    log_prob_of_seen,
    means_given_seen,
)
from fastmf.inference.sampling.gibbs import MATCHING
from fastmf.learning.training.ascent import Ascent, AscentSettings, ModelParameters
from fastmf.learning.training.trainer import Steps
from fastmf.models import RBM
from fastmf.priors import Bernoulli

# Probabilistic objectives, and all objectives.
PROBABILISTIC = ("likelihood", "logistic", "cd")
OBJECTIVES = (*PROBABILISTIC, "perceptron", "latent_svm", "marginal_svm", "marginal_svm_beliefs")
# Inference methods for marginals, and all methods.
MARGINAL = ("bp", "bp_uniform", "mean_field")
INFERENCES = (*MARGINAL, "max_product", "mixed_product")
# Default inference of each objective; mean field for all others.
MATCHED_INFERENCE = {
    "latent_svm": "max_product",
    "marginal_svm": "mixed_product",
    "marginal_svm_beliefs": "mixed_product",
    "likelihood": "bp",
}


@dataclass(frozen=True, kw_only=True)
class ConditionalSettings(AscentSettings):
    """Options of learning a conditional RBM; see also `AscentSettings`."""

    objective: str = "likelihood"
    # Method of prediction, and of the gradient of "likelihood"; None: `MATCHED_INFERENCE`.
    inference: str | None = None
    # Gibbs sweeps of "cd" and "perceptron", and the start of the chains of "cd".
    n_gibbs: int = 1
    gibbs_start: str = "data"
    # Iterations of inference; None for 7 + epoch, with epochs counted from 1.
    n_sweeps: int | None = None

    def __post_init__(self):
        super().__post_init__()
        check.one_of("objective", self.objective, OBJECTIVES)
        if self.inference is not None:
            check.one_of("inference", self.inference, INFERENCES)
        if self.objective == "likelihood" and self.inference not in (None, *MARGINAL):
            raise ValueError(
                f"inference={self.inference!r} gives no moments; with objective='likelihood' it "
                "must be 'bp', 'bp_uniform' or 'mean_field'."
            )
        check.one_of("gibbs_start", self.gibbs_start, ("data", "logistic", "random"))
        check.count("n_gibbs", self.n_gibbs)
        check.count("n_sweeps", self.n_sweeps, optional=True)

    @property
    def prediction_inference(self):
        """Inference method for prediction."""
        return self.inference or MATCHED_INFERENCE.get(self.objective, "mean_field")


def sweeps(settings, epoch):
    """Return the number of iterations of inference in an epoch, counted from 0."""
    return 8 + epoch if settings.n_sweeps is None else settings.n_sweeps


class ConditionalMoments(NamedTuple):
    """Beliefs of labels and hidden units, (n_rows, n_units)."""

    visible: np.ndarray
    hidden: np.ndarray
    # Mean over rows of pair beliefs of (1, 1), (n_visible, n_hidden), if requested; None if they
    # are products of the means.
    pairs: np.ndarray | None
    # Zero if the inference method does not compute it.
    log_partition: np.ndarray
    residual: np.ndarray


def infer(
    model, fields, inference, n_sweeps, n_threads=None, *, log_partition=False, pairs=False,
    tol=0.0, **search,
):  # fmt: skip
    """Compute beliefs under given fields; labels of 0 and 1 for max- and mixed-product."""
    b, c = fields
    zeros = np.zeros(len(b))
    if model.n_hidden == 0:
        exact = np.logaddexp(0, b).sum(1, dtype=float)
        return ConditionalMoments(expit(b), np.zeros_like(c), None, exact, zeros)
    options, rbm = {"field": fields, "max_iter": n_sweeps, "n_threads": n_threads}, model.joint
    if inference in ("max_product", "mixed_product"):
        mixed = inference == "mixed_product"
        result = most_probable(rbm, sum_hidden=mixed, search=bool(search), **search, **options)
        visible, hidden = (part.astype(model.dtype, copy=False) for part in result.assignment)
        if mixed:
            hidden = hidden_means(model, visible, c)
        return ConditionalMoments(visible, hidden, None, zeros, result.residual)
    options |= {"damping": 0.0, "tol": tol}
    if inference == "mean_field":
        result = tap(rbm, expit(b), order=1, log_partition=log_partition, **options)
        values = result.log_partition if log_partition else zeros
        return ConditionalMoments(*result.mean, None, values, result.residual)
    # Rows that do not converge depend on the start, which is the same in learning and prediction.
    init = np.zeros_like(model.weights) if inference == "bp_uniform" else None
    units = BinaryUnits(rbm, options.pop("field"))
    options = BPOptions(pairwise="mean" if pairs else False, **options)
    record, products, _ = propagated(options, units, len(b), init)
    log_odds = record.visible, record.hidden[:, : model.n_hidden]
    means = (expit(x).astype(model.dtype) for x in log_odds)
    return ConditionalMoments(*means, products, record.bethe + units.constant, record.residual)


def hidden_means(model, visible, field):
    """Return the means of the hidden units given the labels and the field of the features."""
    return expit(visible @ model.weights + field)


def _gibbs(model, visible, fields, n_sweeps, rng, drawn=True):
    """Run Gibbs sweeps of the labels in the mask `drawn`; return labels and their last means."""
    b, c = fields
    mean = visible
    for _ in range(n_sweeps):
        hidden = rng.random(c.shape, model.dtype) < hidden_means(model, visible, c)
        mean = expit(hidden.astype(model.dtype) @ model.weights.T + b)
        visible = np.where(drawn, rng.random(b.shape, model.dtype) < mean, visible)
        visible = visible.astype(model.dtype)
    return visible, mean


def gradient(model, Y, X, settings, *, n_sweeps=10, rng=None, n_threads=None):
    """Compute the ascent direction of the objective, averaged over rows.

    Ping & Ihler (2017), Eqs. 5-7 and Appendix A; perceptron loss of Mnih, Larochelle & Hinton
    (2011), which is zero for rows in which the most probable labels given the hidden units of the
    last Gibbs sweep do not have a lower free energy than the given labels.
    """
    fields = model.fields(X)
    at_labels = hidden_means(model, Y, fields[1])
    pairs, objective = None, settings.objective
    if objective in ("likelihood", "logistic"):
        inference = settings.prediction_inference
        # Smaller residuals do not change the gradient. Predictions have no tolerance, as a row that
        # leaves an unstable point slowly would stop near it.
        tol = 8 * np.finfo(model.dtype).eps
        beliefs = infer(model, fields, inference, n_sweeps, n_threads, pairs=True, tol=tol)
        visible, hidden, pairs = beliefs[:3]
    elif objective in ("cd", "perceptron"):
        visible, hidden = _sampled_moments(model, Y, X, fields, settings, rng)
    else:
        augmented = fields[0] + (1 - 2 * Y), fields[1]
        if objective == "marginal_svm_beliefs":
            beliefs = _mixed_product_beliefs(model, augmented, n_sweeps, n_threads)
        else:
            beliefs = infer(model, augmented, MATCHED_INFERENCE[objective], n_sweeps, n_threads)
        visible, hidden, pairs = beliefs[:3]
        if objective == "latent_svm":
            at_labels = (at_labels > 0.5).astype(model.dtype)
    n_rows = model.dtype.type(len(Y))
    visible_mean, hidden_mean = (Y - visible) / n_rows, (at_labels - hidden) / n_rows
    weights = Y.T @ (at_labels / n_rows)
    weights -= visible.T @ (hidden / n_rows) if pairs is None else pairs
    return ModelParameters(
        weights=weights,
        visible_weights=visible_mean.T @ X,
        hidden_weights=hidden_mean.T @ X,
        visible_bias=visible_mean.sum(0),
        hidden_bias=hidden_mean.sum(0),
    )


def _mixed_product_beliefs(model, fields, n_sweeps, n_threads):
    """Return the beliefs of the last sweep of mixed-product, and average pair beliefs.

    With the log-odds V of v and H of h, the log-odds of h given v = 1 are H + W (1 - [V > 0]).
    """
    options = {"field": fields, "max_iter": n_sweeps, "n_threads": n_threads, "search": False}
    result = most_probable(model.joint, sum_hidden=True, **options)
    visible, hidden = result.mean
    pairs = np.zeros_like(model.weights)
    for mean, log_odds, hidden_log_odds in zip(visible, *result.b, strict=True):
        odds = hidden_log_odds + np.where(log_odds[:, None] > 0, 0, model.weights)
        pairs += mean[:, None] * expit(odds).astype(model.dtype)
    return ConditionalMoments(visible, hidden, pairs / len(visible), None, result.residual)


def _sampled_moments(model, Y, X, fields, settings, rng):
    """Draw labels by Gibbs sampling; return them and the means of the hidden units given them.

    For "perceptron" the labels are the most probable ones given the hidden units of the last sweep,
    because sampled labels rarely have a lower free energy than the given labels.
    """
    b, c = fields
    start = Y
    if settings.objective == "perceptron" or settings.gibbs_start == "logistic":
        start = (b > 0).astype(model.dtype)
    elif settings.gibbs_start == "random":
        start = (rng.random(b.shape) < 0.5).astype(model.dtype)
    visible, mean = _gibbs(model, start, fields, settings.n_gibbs, rng)
    if settings.objective == "perceptron":
        visible = (mean > 0.5).astype(model.dtype)
        lower = model.free_energy(visible, X) < model.free_energy(Y, X)
        visible = np.where(lower[:, None], visible, Y)
    return visible, hidden_means(model, visible, c)


class ConditionalSteps(Steps):
    """Training steps of a conditional RBM; data are pairs (Y, X) of labels and features."""

    score, label = "accuracy", "fraction of correct labels"
    _model = None

    def __call__(self, state, batch, rate, rng):
        """Take a gradient step on the objective of a batch."""
        settings, n_threads = self.settings, self.n_threads
        options = {"n_sweeps": sweeps(settings, state.epoch), "rng": rng, "n_threads": n_threads}
        direction = gradient(state.model, *batch, settings, **options)
        if state.model is not self._model:
            self._ascent = Ascent(state, settings, n_threads)
        self._ascent(direction, rate, state.epoch)
        self._model = state.model = state.model.moved(self._ascent.parameters)

    def metrics(self, state, monitored, validation, weights=None):
        """Compute the fractions of correct labels, and of rows converged to 1e-3."""
        names = "accuracy", "converged"
        metrics = dict(zip(names, self._accuracy(state, monitored, weights), strict=True))
        if validation is not None:
            metrics["validation_accuracy"] = self._accuracy(state, validation)[0]
        return metrics

    def _accuracy(self, state, data, weights=None):
        Y, X = data
        model, inference = state.model, self.settings.prediction_inference
        n_sweeps = sweeps(self.settings, state.epoch - 1)
        beliefs = infer(model, model.fields(X), inference, n_sweeps, self.n_threads)
        is_correct = (beliefs.visible > 0.5) == (Y > 0.5)
        of_rows = np.ones(len(Y)) if weights is None else weights
        correct = np.average(is_correct, weights=of_rows[:, None] * ~np.isnan(Y))
        return float(correct), float(np.average(beliefs.residual < 1e-3, weights=weights))

    def draw(self, model, data, missing, n_sweeps, rng):
        """Fill in unknown labels by draws, or by modes for objectives that are no likelihoods."""
        Y, X = data
        draws = self.settings.objective in PROBABILISTIC
        return drawn_labels(model, Y, missing, model.fields(X), n_sweeps, rng, draws=draws)


def drawn_labels(model, Y, missing, fields, n_sweeps, rng, *, draws=True):
    """Replace unknown labels by draws from Gibbs sampling, or with `draws=False` by the mode."""
    y = np.where(np.isnan(Y), expit(fields[0]), Y).astype(model.dtype)
    y, mean = _gibbs(model, y, fields, n_sweeps, rng, missing)
    return y if draws else np.where(missing, mean > 0.5, y).astype(model.dtype)


def exact_log_partitions(model, X):
    """Compute the log-partition given each row of features; None with too many states."""
    if model.n_hidden == 0 or not enumerable(model.joint, MAX_WORK_OF_ROW // LOG_PARTITION_COST):
        return None
    (b, c), weights = model.fields(X), np.asarray(model.weights, np.float64)
    if len(weights) < weights.shape[1]:
        b, c, weights = c, b, weights.T
    # Enumerate the states of the smaller layer.
    states = (np.arange(1 << weights.shape[1])[:, None] >> np.arange(weights.shape[1])) & 1
    fields = states @ weights.T
    rows = zip(np.asarray(b, np.float64), np.asarray(c, np.float64), strict=True)
    logs = (states @ y + np.logaddexp(0, x + fields).sum(1) for x, y in rows)
    return np.array([np.logaddexp.reduce(log) for log in logs])


def annealed_log_partitions(model, X, n_threads=None):
    """Estimate the log-partition given each row of features by annealing, with its error."""
    fields, tiny = model.fields(X), np.finfo(model.dtype).eps
    means = infer(model, fields, "mean_field", 50, n_threads)[:2]
    base = [MATCHING * logit(np.clip(mean, tiny, 1 - tiny)) for mean in means]
    return annealed_rows(model.joint, np.full_like(base[0], np.nan), base, fields)


def log_weights_of_known(model, Y, X):
    """Compute the log of the sum over hidden units and unknown labels of exp(-energy), by row."""
    out = np.empty(len(Y))
    unknown = np.isnan(Y).any(1)
    if not unknown.all():
        out[~unknown] = -model.free_energy(Y[~unknown], X[~unknown])
    for r, b, c in zip(np.flatnonzero(unknown), *model.fields(X[unknown]), strict=True):
        if not model.n_hidden:
            out[r] = np.where(np.isnan(Y[r]), np.logaddexp(0, b), np.nan_to_num(Y[r]) * b).sum()
            continue
        machine = RBM(model.weights, Bernoulli(b), Bernoulli(c))
        y = Y[r : r + 1]
        visible_part = log_prob_of_seen(machine.visible, y)
        out[r] = (visible_part + means_given_seen(machine, y).log_partition)[0]
    return out
