"""Steps of learning an RBM or DBM: averages over data and model, gradient, ascent.

Each step of a `Plan` takes a few calls of kernels: moments of the hidden units given a batch
(`conditional_moments`), mean-field solutions or Gibbs chains of the model, products of units
(`pair_averages`), and the ascent of the couplings (`ascend_matrices`). Everything else is a few
operations on vectors of units.
"""

import numpy as np

from fastmf._common.memory import Scratch
from fastmf._common.warning import warn_user
from fastmf.inference.ep.adaptive_tap import few_iterations
from fastmf.inference.mean_field._layouts import handed_over, layout_of
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.inference.mean_field.tap import sweeps_from_data
from fastmf.inference.sampling.gibbs import even_layers, gibbs
from fastmf.kernels.training.ascent import AscentStep
from fastmf.learning.layered.completion import completed
from fastmf.learning.layered.domain import after_step, has_constraints, is_solved
from fastmf.learning.layered.exact_averages import exact_averages
from fastmf.learning.layered.gradients import (
    MEAN_FIELD,
    ORDER_OF_GRADIENT,
    Kinds,
    conditional_moments,
    gradient,
)
from fastmf.learning.layered.metrics import metrics
from fastmf.learning.layered.preconditioning import ROWS_BETWEEN, prepare
from fastmf.learning.layered.settings import given_data
from fastmf.learning.layered.starts import starts
from fastmf.learning.training import centring, trainer
from fastmf.learning.training.ascent import ascend_matrices, finite_sum
from fastmf.learning.training.hidden_scales import Scales, with_held_precisions
from fastmf.learning.training.parameters import ModelParameters
from fastmf.priors._protocol import is_concatenated, learned_fields, map_parameters, offers
from fastmf.priors._queries import unbounded
from fastmf.priors._rows import sparse_or_states, states
from fastmf.priors._scaling import by_log_precision


def own_copy(model):
    """A machine of the same parameters in arrays of its own, and one vector of those of its units.

    The fields of its layers are views of the vector.
    """
    couplings = [np.array(w, order="C") for w in model.couplings]
    layers, vector = as_vector(model.layers)
    return model.moved(couplings, layers), vector


def as_vector(layers, values=None):
    """Layers whose parameters are views of one vector, and this vector."""
    vector, first = joined(layers) if values is None else values, 0

    def view(x):
        nonlocal first
        first += x.size
        return vector[first - x.size : first].reshape(x.shape)

    return tuple(map_parameters(view, prior) for prior in layers), vector


def joined(layers):
    """The arrays that learning changes, of all layers, as a vector."""
    return np.concatenate([np.ravel(x) for prior in layers for x in learned_fields(prior)])


class LayeredSteps(trainer.Steps):
    """Steps of RBMs and DBMs of data that may be scaled."""

    def __init__(self, settings, n_threads=None, scaling=None):
        super().__init__(settings, n_threads)
        self.scaling = scaling

    def metrics(self, state, monitored, validation, weights=None):
        """Log-likelihoods per unit."""
        parts = state, monitored, validation, self.settings, self.n_threads
        return metrics(*parts, weights, self.scaling)


class Plan(LayeredSteps):
    """First-order steps of machines with the kinds of units of a given one."""

    def __init__(self, model, settings, n_threads=None, scaling=None):
        super().__init__(settings, n_threads, scaling)
        layers, self.kinds = model.layers, Kinds.of(model)
        self.order = ORDER_OF_GRADIENT.get(settings.gradient, 1)
        self.options = given_data(model, settings)
        self.tilts = centring.tilts(layers)
        self.constrained = has_constraints(layers)
        # Machines of units that move in their fields alone always exist.
        self.bounded = all(self.kinds.field_alone) and not any(
            offers(type(prior), "project", of="project") for prior in layers
        )
        integrated, grouped = self.kinds.integrated, self.kinds.grouped
        self.from_data = settings.starts == "data" and not (model.deep or grouped)
        self.packed = not (model.deep or grouped)
        self.always_solved = integrated or not any(unbounded(prior).any() for prior in layers)
        self.units_in_place = not any(
            is_concatenated(prior) or offers(type(prior), "precomputed") for prior in layers
        )
        if settings.preconditioning is not None:
            self.n_between = max(1, ROWS_BETWEEN // settings.batch_size)
        self._model, self.scratch = None, Scratch()

    def prepare(self, state, X):
        """Estimate the preconditioners of a state anew."""
        prepare(state, X, self.settings, self.n_threads)

    def draw(self, model, X, missing, n_sweeps, rng):
        """Rows whose missing values are drawn from the model given the observed ones."""
        return completed(model, X, missing, n_sweeps, rng, self.n_threads)

    def settle(self, state):
        """Give a state a machine that the next steps do not change."""
        state.model, _ = own_copy(state.model)
        for w in state.model.couplings:
            w.flags.writeable = False

    def __call__(self, state, X, rate, rng):
        """Move a state one step up the log-likelihood of a batch.

        Notes
        -----
        Tramel et al. (2018), Algorithm 2, where the momentum acts on the previous *step* (as
        printed it would be 1 / rate times the gradient) and the regulariser enters with a minus
        sign.
        """
        self.ascend(state, *self.gradient(state, X, rng), rate)

    def gradient(self, state, X, rng):
        """Approximate gradient of the log-likelihood of a batch, and the moments of the batch."""
        self._take_over(state)
        model = state.model
        X = sparse_or_states(model.layers[0], X, model.dtype)
        of_model, hidden = self.states_of_model(state, X, rng)
        arguments = self.order, self.n_threads, hidden, self.kinds, self.scratch
        return gradient(model, X, of_model, *arguments, **self.options)

    def states_of_model(self, state, X, rng):
        """Mean-field solutions, samples or exact averages of the model.

        Persistent chains in `state` are advanced. Also returns the moments of the hidden units
        given the batch where solutions start from it, which spares half a sweep; else None.
        """
        model, settings = state.model, self.settings
        n_starts = settings.n_starts or X.shape[0]
        kind = settings.gradient if self.always_solved else self.gradient_of(state)
        if kind == "exact":
            return exact_averages(model), None
        if kind not in MEAN_FIELD:
            return self._samples(state, X, n_starts, rng, kind), None
        hidden, options = None, {"max_iter": settings.n_sweeps, "n_threads": self.n_threads}
        persistent = settings.starts == "persistent"
        if persistent and state.chains:
            n_layers = len(model.layers)
            init = state.chains[:n_layers], state.chains[n_layers:]
        elif self.from_data and n_starts <= X.shape[0]:
            hidden = conditional_moments(model, X, self.order, self.n_threads, self.scratch)
            _, mean, var = given = [part[:n_starts] for part in hidden]
            x = states(model.layers[0], X[:n_starts], model.dtype)
            if kind in ORDER_OF_GRADIENT and not self.kinds.integrated:
                arguments = x, given, self.order, settings.n_sweeps, self.n_threads, self.scratch
                return sweeps_from_data(model, *arguments), hidden
            init = ((x, mean), (None, var)) if self.kinds.integrated else x
        else:
            init = starts(settings.starts, model, X, n_starts, settings.noise, rng)
        if kind == "adaptive_tap":
            solutions = few_iterations(model, init, damping=settings.damping, **options)
        else:
            options |= {"acceleration": False, "log_partition": False}
            solutions = collapsed_tap(model, init, variances=False, order=self.order, **options)
        if persistent:
            state.chains = (*solutions.mean, *solutions.var)
        return solutions, hidden

    def gradient_of(self, state):
        """The gradient of a step: chains where mean-field iterations have no moments.

        A warning announces the change. Chains are then in the state, and it does not change back.
        """
        kind = self.settings.gradient
        if kind not in MEAN_FIELD or is_solved(state, self.settings):
            return kind
        if len(state.chains) != 1:
            state.chains = ()
            warn_user(
                f"gradient={kind!r} cannot follow the machine any further (epoch "
                f"{state.epoch}): its mean-field iterations have no moments for unbounded units as "
                "strongly coupled as these. Learning continues with gradient='pcd'.",
            )
        return "pcd"

    def _samples(self, state, X, n_starts, rng, kind):
        """Gibbs samples of the even layers, from persistent chains or from the batch."""
        model = state.model
        if kind == "pcd" and state.chains:
            chains = state.chains[0]
        else:
            chains = even_layers(model, starts("data", model, X, n_starts, 0.0, rng), rng)
        samples, _ = gibbs(model.bipartite(), chains, self.settings.n_sweeps, rng, self.n_threads)
        if kind == "pcd":
            state.chains = (samples,)
        return samples

    def ascend(self, state, gradient, means, products, rate):
        """Move a state along the gradient, no further than machines exist.

        Precisions of unbounded units move in their logarithm, or not at all where their scale is
        free.
        """
        self._take_over(state)
        model, settings = state.model, self.settings
        old, layers = model.layers, gradient.layers
        if not self.bounded:
            pairs = zip(old, layers, strict=True)
            layers = tuple(by_log_precision(*pair, means_held=True) for pair in pairs)
            if self.kinds.free:
                layers = with_held_precisions(old, layers, self.kinds.free)
        sides = centring.offsets(model, layers, means, self.tilts, settings.centred)
        couplings, layers, steps, sides = self._directions(
            state, gradient.couplings, layers, rate, sides, means, products
        )
        before = model
        if self.constrained:
            before = model.moved([w.copy() for w in model.couplings], old)
        layout = layout_of(model, self.order, "blocked") if self.packed else None
        matrices = model.couplings, couplings, state.velocity.couplings, steps, sides
        matrices = list(zip(*matrices, strict=True))
        moves = ascend_matrices(matrices, state.epoch, self.n_threads)
        if settings.centred:
            layers = centring.with_moved_fields(layers, moves, self.tilts)
        self._velocity *= settings.momentum
        self._velocity += rate * joined(layers)
        new = finite_sum(self._parameters, self._velocity, state.epoch)
        if not self.bounded:
            moved = ModelParameters(couplings=model.couplings, layers=as_vector(old, new)[0])
            moved = after_step(before, moved, state.velocity)
            new = joined(moved.layers)
            if moved.couplings[0] is not model.couplings[0]:
                for w, shortened in zip(model.couplings, moved.couplings, strict=True):
                    w[:] = shortened
        self._parameters[:] = new
        # A new machine of the same arrays: a machine knows some functions of its parameters.
        self._model = state.model = model.moved(model.couplings, old)
        if layout is not None:
            handed_over(layout, state.model, self.units_in_place)

    def _take_over(self, state):
        """Give a state the arrays of the run, which steps change in place."""
        if state.model is not self._model:
            state.model, self._parameters = own_copy(state.model)
            layers, self._velocity = as_vector(state.velocity.layers)
            couplings = state.velocity.couplings
            state.velocity = ModelParameters(couplings=couplings, layers=layers)
            self._model = state.model

    def _directions(self, state, couplings, layers, rate, sides, means, products):
        """Gradients times preconditioners or scales, with the steps and offsets that suit them."""
        settings, free = self.settings, self.kinds.free
        step = AscentStep(
            float(rate), float(settings.momentum), float(settings.l2), float(settings.l1)
        )
        steps, directions, matrices = [step] * len(couplings), [], state.preconditioners
        if not (matrices or free):
            return couplings, layers, steps, sides
        without = step._replace(l2=0.0, l1=0.0)
        steps = [without] * len(couplings)
        if free:
            scales = Scales(state.model.layers, means, products, settings.centred, free)
            steps = [without._replace(l1=l1) for l1 in scales.of_decay(step.l1)]
        for k, (w, g, pair) in enumerate(zip(state.model.couplings, couplings, sides, strict=True)):
            g = g - step.l2 * w
            if not free:
                g -= step.l1 * np.sign(w)
            g = centring.between_deviations(g, pair)
            directions.append(
                scales.of_couplings(k, g) if free else matrices[k] @ g @ matrices[k + 1]
            )
        if free:
            layers = scales.of_fields(layers)
        else:
            layers = tuple(
                layer._replace(field=p @ layer.field)
                for layer, p in zip(layers, matrices, strict=True)
            )
        # Derivatives by fields are accounted for.
        offsets = np.array([[1], [0]], state.model.dtype)
        sides = [tuple(side * offsets for side in pair) for pair in sides]
        return directions, layers, steps, sides


def train(model, X, settings, *, n_threads=None, **options):
    """Train an RBM or DBM by first-order steps: `fastmf.learning.training.trainer.train`."""
    return trainer.train(model, X, Plan(model, settings, n_threads), **options)
