"""Training steps of an RBM or DBM: averages over data and model, gradient, ascent.

Each step of a `Plan` makes three calls of kernels: moments of the hidden units given a batch
(`moments_given`), mean-field solutions or Gibbs chains of the model, and the ascent of the
couplings along sums of products of units (`MatrixAscent`), with the fields if nothing else is
learned. All other operations are on vectors of units.
"""

from itertools import chain, pairwise

import numpy as np

from fastmf._common.rows import is_incomplete, is_sparse
from fastmf._common.warning import warn_user
from fastmf.inference.bp.belief_propagation import belief_propagation
from fastmf.inference.ep.adaptive_tap import few_iterations
from fastmf.inference.mean_field._layouts import handed_over, layout_of
from fastmf.inference.mean_field.gaussian_layers import collapsed_tap
from fastmf.inference.mean_field.likelihood import log_partition_estimate, posterior
from fastmf.inference.mean_field.tap import SweepsFromData, moments_given
from fastmf.inference.missing.layered import log_likelihoods, with_means
from fastmf.inference.sampling.gibbs import MIN_ANNEALED, Walks, annealed_samples, even_layers
from fastmf.kernels.training.ascent import AscentStep
from fastmf.learning.layered import gradients
from fastmf.learning.layered.data import completed
from fastmf.learning.layered.domain import after_step, can_follow, has_constraints, layers_after
from fastmf.learning.layered.exact_averages import (
    MAX_SUMMED_STATES,
    ExactAverages,
    exact_averages,
    is_cheaply_exact,
)
from fastmf.learning.training import trainer
from fastmf.learning.training.ascent import MatrixAscent, ModelParameters, finite_sum
from fastmf.priors._protocol import (
    can_sample,
    is_concatenated,
    learned_fields,
    map_parameters,
    offers,
    parameter_names,
    sample,
)
from fastmf.priors._queries import field_is_tilt, perturbed, two_values, unbounded
from fastmf.priors._scaling import by_log_precision, is_real
from fastmf.priors._values import sparse_or_states, states

# Number of rows between updates of the preconditioners, which are computed from these rows. With
# half or twice this number, fits of 784 x 500 units take 0.9 to 1.1 of the time.
ROWS_BETWEEN_UPDATES = 5000


def copy_of_model(model):
    """Return a copy of a machine, and the vector of which its units' parameters are views."""
    couplings = [np.array(w, order="C") for w in model.couplings]
    layers, vector = as_vector(model.layers)
    return model.moved(couplings, layers), vector


def as_vector(layers, values=None):
    """Return layers whose parameters are views of one vector, and this vector."""
    vector, first = joined(layers) if values is None else values, 0

    def view(x):
        nonlocal first
        first += x.size
        return vector[first - x.size : first].reshape(x.shape)

    return tuple(map_parameters(view, prior) for prior in layers), vector


def joined(layers):
    """Return the learned parameters of the units of all layers as a vector."""
    return np.concatenate([x.ravel() for prior in layers for x in learned_fields(prior)])


def starts(kind, model, X, n_starts, rng):
    """Return the starts of mean-field iterations for one training step."""
    if kind == "random":
        zero = np.zeros((n_starts, X.shape[1]), X.dtype)
        return sample(model.layers[0], zero, zero, rng)
    n_rows = X.shape[0]
    rows = X if n_starts == n_rows else X[np.arange(n_starts) % n_rows]
    rows = states(model.layers[0], rows, model.dtype)
    return perturbed(model.layers[0], rows, 0.1, rng) if kind == "noise" else rows


def bp_averages(model, settings):
    """Approximate `exact_averages` by belief propagation from messages of 1/2."""
    options = {"init": np.zeros_like(model.couplings[0]), "max_iter": settings.n_sweeps}
    beliefs = belief_propagation(model, pairwise=True, damping=0, tol=0, **options)
    pairs = zip(model.layers, beliefs.mean, strict=True)
    layers = tuple(prior._replace(field=mean) for prior, mean in pairs)
    return ExactAverages(beliefs.log_partition, (beliefs.pairwise,), layers)


class LayeredSteps(trainer.Steps):
    """Training steps of RBMs and DBMs, with metrics on the scale of the original data."""

    def __init__(self, settings, n_threads=None, scaling=None):
        super().__init__(settings, n_threads)
        self.scaling = scaling

    def metrics(self, state, monitored, validation, weights=None):
        """Compute log-likelihoods per unit of the data before scaling."""
        model, order = state.model, gradients.ORDER_OF_GRADIENT.get(self.settings.gradient, 2)
        order = order if can_follow(model) else 1  # naive mean field has moments for any machine
        options = {"order": order, "n_threads": self.n_threads, "max_work": 4 * MAX_SUMMED_STATES}
        log_partition = self._log_partition(model, monitored, order)

        def per_unit(X, weights=None):
            row_values = log_likelihoods(model, X, log_partition, **options)
            value = float(np.average(row_values, weights=weights))
            if self.scaling is not None and is_real(model.layers[0]):
                value -= self.scaling.log_volume(model.layers[0], X, weights)
            return value / sum(model.sizes)

        values = {"log_likelihood": per_unit(monitored, weights)}
        if validation is not None:
            values["validation_log_likelihood"] = per_unit(validation)
        return values

    def _log_partition(self, model, data, order):
        """Compute the log-partition, exactly or by short annealing; by TAP if not sampleable."""
        if self.settings.gradient == "exact" or is_cheaply_exact(model):
            return exact_averages(model).log_partition
        data = states(model.layers[0], data, model.dtype)
        data = with_means(model.layers[0], data) if is_incomplete(data) else data
        if not all(map(can_sample, model.layers)):
            solutions = collapsed_tap(model, data, order=order, n_threads=self.n_threads)
            return log_partition_estimate(model, solutions, order=order)
        data = np.resize(data, (max(len(data), MIN_ANNEALED), data.shape[1]))
        # The base has the means of the data, and random numbers are the same in each epoch: errors
        # are negligible while couplings are weak, and 0.1 to 0.2 nats later.
        rng = np.random.default_rng(0)
        try:
            return annealed_samples(model, data, rng, n_threads=self.n_threads, share=1.0)[1]
        except FloatingPointError:  # the chains diverge
            return np.inf


class Plan(LayeredSteps):
    """First-order training steps of machines with the same kinds of units as a given machine."""

    def __init__(self, model, settings, n_threads=None, scaling=None):
        super().__init__(settings, n_threads, scaling)
        layers, self.order = model.layers, gradients.ORDER_OF_GRADIENT.get(settings.gradient, 1)
        self.averages = gradients.Gradients(model, self.order, n_threads, log_partition=False)
        # For each layer, whether its field is a tilt, and changes with its neighbours' offsets.
        self.tilts = [settings.centred and field_is_tilt(prior) for prior in layers]
        self.walks = Walks(np.ones(settings.n_sweeps + 1), n_threads)
        # Slices of these fields in the vector of all parameters of units.
        places, _ = as_vector(layers, np.arange(len(joined(layers))))
        fields = [
            slice(place.field[0], place.field[-1] + 1)
            if tilt and "field" in parameter_names(place)
            else None
            for place, tilt in zip(places, self.tilts, strict=True)
        ]
        # Slices of the fields below and above each matrix, which change with its offsets.
        self.fields = list(chain.from_iterable(pairwise(fields)))
        self.constrained = has_constraints(layers)
        # Machines of which only fields are learned always exist.
        self.bounded = all(self.averages.field_alone) and not any(
            offers(type(prior), "project", of="project") for prior in layers
        )
        self.packed, self.sweeps = not (model.deep or self.averages.grouped), None
        from_data = settings.starts == "data" and settings.gradient in gradients.ORDER_OF_GRADIENT
        integrated = self.averages.integrated
        if from_data and settings.damping is None and self.packed and not integrated:
            self.sweeps = SweepsFromData(self.order, settings.n_sweeps, n_threads)
        # Whether the kernel that moves the couplings moves all other parameters, too.
        self.moves_fields = self.packed and self.bounded and all(self.tilts)
        self.moves_fields &= settings.preconditioning is None
        self.moves_fields &= self.sweeps is not None or settings.gradient in ("cd", "pcd")
        self.always_solved = integrated or not any(unbounded(prior).any() for prior in layers)
        self.units_in_place = not any(
            is_concatenated(prior) or offers(type(prior), "precomputed") for prior in layers
        )
        binary = all(self.averages.field_alone) and None not in map(two_values, layers)
        if settings.gradient == "bp" and (model.deep or not binary):
            raise ValueError(f"gradient='bp' needs an RBM of binary units, got {model}: use 'tap'.")
        if settings.preconditioning is not None:
            self.n_between = max(1, ROWS_BETWEEN_UPDATES // settings.batch_size)
        self._model = None

    def prepare(self, state, X):
        """Update the preconditioners, in O(n_rows n_units^2 + n_units^3) for each layer.

        Covariances are over rows of data, and over hidden units given the rows; in deep machines
        the latter are mean-field approximations.
        """
        model, scale = state.model, self.settings.preconditioning
        if is_sparse(X):
            raise ValueError("preconditioning needs dense rows: use X.toarray(), or None.")
        for prior, alone in zip(model.layers, self.averages.field_alone, strict=True):
            if not alone:
                raise ValueError(
                    "preconditioning needs units whose fields alone are learned, such as binary "
                    f"ones, got {type(prior).__name__}; use None."
                )
        X = states(model.layers[0], X, model.dtype)
        if model.deep:
            solutions = posterior(model, X, **self.averages.options).solutions
            hidden = list(zip(solutions.mean, solutions.var, strict=True))
        else:
            hidden = [moments_given(model, X, self.order, self.n_threads)[1:]]
        matrices = list(state.preconditioners[:1]) or [gradients.preconditioner(X, 0, scale)]
        for k, moments in enumerate(hidden, start=1):
            new = gradients.preconditioner(*moments, scale)
            if state.preconditioners:  # the mean with earlier ones
                new = (state.preconditioners[k] + new) / 2
            matrices.append(new)
        state.preconditioners = tuple(matrix.astype(model.dtype) for matrix in matrices)

    def draw(self, model, X, missing, n_sweeps, rng):
        """Draw missing values of rows from the model given the observed ones."""
        return completed(model, X, missing, n_sweeps, rng, self.n_threads)

    def detach(self, state):
        """Replace machine and chains of a state by copies that the next steps do not change."""
        state.model, _ = copy_of_model(state.model)
        state.chains = tuple(map(np.copy, state.chains))
        for w in state.model.couplings:
            w.flags.writeable = False

    def __call__(self, state, X, rate, rng):
        """Take a gradient step on the log-likelihood of a batch.

        Notes
        -----
        Tramel et al. (2018), Algorithm 2, corrected: momentum acts on the previous *step* (as
        printed it would be 1 / rate times the gradient), and the regulariser has a minus sign.
        """
        if self.moves_fields and not is_sparse(X):
            self._move_all(state, X, rate, rng)
        else:
            self.ascend(state, *self.gradient(state, X, rng), rate)

    def _move_all(self, state, X, rate, rng):
        """Take the same step of a machine whose parameters are all moved by the kernel."""
        self._ensure_buffers(state)
        X = states(state.model.layers[0], X, state.model.dtype)
        given = self.averages.given(state.model, X) if self.sweeps else None
        of_model = self.states_of_model(state, X, rng, given)
        pairs = self.averages.pairs(state.model, X, of_model, given)
        step, sides = self._step(rate, moves_fields=True), tuple(self.averages.sums)
        _, layout = self._move_couplings(state, [pairs], [step], [sides], self._moved)
        self._hand_over(state, layout)

    def _step(self, rate, **options):
        """Return the options of the kernel for a learning rate."""
        settings = self.settings
        decays = float(settings.momentum), float(settings.l2), float(settings.l1)
        return AscentStep(float(rate), *decays, **options)

    def gradient(self, state, X, rng):
        """Return the gradient of the log-likelihood of a batch, its sums, and products."""
        self._ensure_buffers(state)
        model = state.model
        X = sparse_or_states(model.layers[0], X, model.dtype)
        given = moments_given(model, X, self.order, self.n_threads) if self.sweeps else None
        return self.averages(model, X, self.states_of_model(state, X, rng, given), given)

    def states_of_model(self, state, X, rng, given):
        """Return mean-field solutions, samples or exact averages of the model.

        Persistent chains in `state` are advanced. `given` has the `moments_given` the rows.
        """
        model, settings = state.model, self.settings
        n_starts = settings.n_starts or X.shape[0]
        kind = settings.gradient if self.always_solved else self.kind_of_gradient(state)
        if kind in ("bp", "exact"):
            return bp_averages(model, settings) if kind == "bp" else exact_averages(model)
        if kind not in gradients.MEAN_FIELD:
            return self._samples(state, X, n_starts, rng, kind)
        if self.sweeps and n_starts <= X.shape[0]:
            rows = states(model.layers[0], X[:n_starts], model.dtype)
            return self.sweeps(model, rows, given[:, :n_starts])
        persistent = settings.starts == "persistent"
        if persistent and state.chains:
            n_layers = len(model.layers)
            init = state.chains[:n_layers], state.chains[n_layers:]
        else:
            init = starts(settings.starts, model, X, n_starts, rng)
        options = {"max_iter": settings.n_sweeps, "damping": settings.damping}
        options["n_threads"] = self.n_threads
        if kind == "adaptive_tap":
            solutions = few_iterations(model, init, **options)
        else:
            options |= {"acceleration": False, "log_partition": False}
            solutions = collapsed_tap(model, init, variances=False, order=self.order, **options)
        if persistent:
            state.chains = (*solutions.mean, *solutions.var)
        return solutions

    def kind_of_gradient(self, state):
        """Return the kind of gradient of a step: "pcd" if mean-field moments do not exist.

        The change is permanent, as the state then has chains, and is announced by a warning.
        """
        kind = self.settings.gradient
        if kind not in gradients.MEAN_FIELD or (len(state.chains) != 1 and can_follow(state.model)):
            return kind
        if len(state.chains) != 1:
            state.chains = ()
            warn_user(
                f"gradient={kind!r} cannot follow the machine any further (epoch "
                f"{state.epoch}): its mean-field iterations have no moments for unbounded units as "
                "strongly coupled as these. Learning continues with gradient='pcd'."
            )
        return "pcd"

    def _samples(self, state, X, n_starts, rng, kind):
        """Draw Gibbs samples of the even layers, from persistent chains or from the batch."""
        model = state.model
        if kind == "pcd" and state.chains:
            chains = state.chains[0]
        else:
            chains = even_layers(model, starts("data", model, X, n_starts, rng), rng)
        samples, _ = self.walks.sample(model.bipartite(), chains, rng)
        if kind == "pcd":
            state.chains = (samples,)
        return samples

    def ascend(self, state, gradient, sums, products, rate):
        """Take a step along the gradient, shortened if the machine would not exist.

        Precisions of unbounded units change in their logarithm, or are fixed if their scale is
        free.
        """
        self._ensure_buffers(state)
        model, settings = state.model, self.settings
        old, layers, free = model.layers, gradient.layers, self.averages.free
        if not self.bounded:
            pairs = zip(old, layers, strict=True)
            layers = tuple(by_log_precision(*pair, means_held=True) for pair in pairs)
            if free:
                layers = gradients.with_held_precisions(old, layers, free)
            for of_layer, tilt, layer in zip(sums, self.tilts, layers, strict=True):
                if tilt:
                    of_layer[1] = layer.field
        couplings, layers, steps, sides = self._directions(
            state, gradient.couplings, layers, rate, sums, products
        )
        previous = model
        if self.constrained:
            previous = model.moved([w.copy() for w in model.couplings], old)
        moves, layout = self._move_couplings(state, couplings, steps, sides)
        vector = joined(layers)
        for fields, products in zip(self.fields, moves, strict=True):
            if fields is not None:
                vector[fields] -= products
        vector *= rate
        self._velocity *= settings.momentum
        self._velocity += vector
        new = finite_sum(self._parameters, self._velocity, state.epoch)
        if not self.bounded:
            layers = as_vector(old, new)[0]
            if self.constrained:
                moved = ModelParameters(couplings=model.couplings, layers=layers)
                moved = after_step(previous, moved, state.velocity)
                layers = moved.layers
                for w, shortened in zip(model.couplings, moved.couplings, strict=True):
                    w[:] = shortened
                if layout is not None:
                    layout.fill(model)
            else:
                layers = layers_after(old, layers, state.velocity.layers)
            new = joined(layers)
        self._parameters[:] = new
        self._hand_over(state, layout)

    def _move_couplings(self, state, couplings, steps, sides, fields=None):
        """Take a step of the couplings in place; return products with offsets, and the layout."""
        layout = layout_of(state.model, self.order, "blocked") if self.packed else None
        copies = [layout.copies] if layout else None
        return self._matrices(couplings, steps, sides, state.epoch, copies, fields), layout

    def _hand_over(self, state, layout):
        """Make a new machine with the same arrays, as machines cache functions of parameters."""
        model = state.model
        self._model = state.model = model.moved(model.couplings, model.layers)
        if layout is not None:
            handed_over(layout, state.model, self.units_in_place)

    def _ensure_buffers(self, state):
        """Copy the model and velocity of a state into arrays that steps change in place."""
        if state.model is not self._model:
            state.model, self._parameters = copy_of_model(state.model)
            layers, self._velocity = as_vector(state.velocity.layers)
            couplings = state.velocity.couplings
            state.velocity = ModelParameters(couplings=couplings, layers=layers)
            self._matrices = MatrixAscent(state.model.couplings, couplings, self.n_threads)
            if self.moves_fields:
                of_layers = np.split(self._parameters, [len(couplings[0])])
                steps = np.split(self._velocity, [len(couplings[0])])
                self._moved = tuple(zip(of_layers, steps, strict=True))
            self._model = state.model

    def _directions(self, state, couplings, layers, rate, sums, products):
        """Return natural gradients, if any layer has one, with matching steps and offsets."""
        settings, free, units = self.settings, self.averages.free, state.model.layers
        step, sides = self._step(rate), gradients.offsets(sums, self.tilts)
        if state.preconditioners:
            all_units = [np.ones(n, bool) for n in state.model.sizes]
            natural = gradients.NaturalGradient(units, state.preconditioners, all_units)
            l1, decays = step.l1, [0.0] * len(couplings)
        elif free:
            means = [mean for mean, _ in sums]
            natural = gradients.natural_of_scales(units, means, products, free, settings.centred)
            l1, decays = 0.0, natural.of_decay(step.l1)
        else:
            return couplings, layers, [step] * len(couplings), sides
        moves = []
        for k, of_matrix in enumerate(zip(couplings, state.model.couplings, sides, strict=True)):
            g = gradients.matrix_of(*of_matrix, (step.l2, l1), self.n_threads)
            moves.append(natural.of_couplings(k, g, self.n_threads))
        steps = [step._replace(l2=0.0, l1=decay) for decay in decays]
        # The directions already include the terms with derivatives by fields.
        offsets = np.array([[1], [0]], state.model.dtype)
        sides = [tuple(side * offsets for side in pair) for pair in sides]
        return moves, natural.of_fields(layers), steps, sides


def train(model, X, settings, *, n_threads=None, **options):
    """Train an RBM or DBM by first-order steps: `fastmf.learning.training.trainer.train`."""
    return trainer.train(model, X, Plan(model, settings, n_threads), **options)
