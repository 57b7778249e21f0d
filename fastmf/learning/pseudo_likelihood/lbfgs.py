"""L-BFGS for millions of variables: all products of vectors in one pass over them.

The direction of L-BFGS is a linear combination of the last steps, of the changes of the gradient
along them, and of the gradient, and its coefficients follow from the inner products of these
vectors alone (Chen, Wang & Zhou 2014). So an iteration reads each of them twice: once for the inner
products with the three that are new, once for the combination. SciPy's L-BFGS-B would compute in
double precision, and in one thread.

With an l1 penalty the gradient is that of the penalised function in the orthant into which it
falls, and steps end where a variable would change its sign (Andrew & Gao 2007). Variables that are
zero move along the gradient, the others along the direction of L-BFGS among them (Schmidt 2010).
"""

import numpy as np

from fastmf._threads.workers import for_each, one_blas_thread, workers_for
from fastmf.kernels.pseudo_likelihood.potts import aligned
from fastmf.learning.pseudo_likelihood.fit import MIN_DECREASE, TOLERANCE_ROWS, Fit, Minimum

MAX_LBFGS_ITER = 1000
# Pairs of steps and changes of the gradient that are kept.
N_PAIRS = 6
# The same for problems of up to a few thousand variables, whose gradients cost more than pairs.
N_PAIRS_OF_SMALL_PROBLEMS = 20
# Numbers of each vector in a chunk: those of all vectors stay in the cache.
_CHUNK_NUMBERS = 1 << 14
_MAX_BACKTRACKS = 20
# Units in the last place of the value below which a predicted decrease cannot be resolved.
_ROUNDING = 10.0
# Iterations in which steps are taken even if their gain is below the tolerance. Where a penalty
# outweighs the data no step gains more than that, and couplings would stay at zero.
_FEW_ITERATIONS = 5


class _Vectors:
    """Steps, changes of gradients, the gradient: rows of a matrix, with their inner products."""

    def __init__(self, size, dtype, n_threads, n_kept):
        self.n_kept = n_kept
        self.rows = aligned((2 * n_kept + 1, size), dtype)
        self.rows[...] = 0
        self.products = np.zeros((len(self.rows), len(self.rows)))
        self.n_pairs = self.newest = 0
        self.chunks = [
            slice(i, min(i + _CHUNK_NUMBERS, size)) for i in range(0, size, _CHUNK_NUMBERS)
        ]
        self.n_workers = workers_for(len(self.chunks), self.rows.size, n_threads)

    def over_chunks(self, function):
        """Call a function with the number and slice of each chunk, in several threads."""
        for_each(lambda task: function(*task), enumerate(self.chunks), self.n_workers)

    def update_products(self, new):
        """Compute the inner products of some rows with all."""
        parts = np.empty((len(self.chunks), len(self.rows), len(new)))

        def multiply(k, chunk):
            rows = self.rows[:, chunk]
            parts[k] = rows @ rows[new].T

        self.over_chunks(multiply)
        result = parts.sum(0)
        self.products[:, new], self.products[new] = result, result.T

    def direction(self, products):
        """Coefficients of minus the approximate inverse Hessian times the gradient."""
        g = len(self.rows) - 1
        coefficients = np.zeros(g + 1)
        coefficients[g] = -1
        pairs = [(self.newest - k) % self.n_kept for k in range(self.n_pairs)]
        pairs = [s for s in pairs if self.is_convex(products, s)]
        factors = []
        for s in pairs:
            y = self.n_kept + s
            factors.append(products[s] @ coefficients / products[s, y])
            coefficients[y] -= factors[-1]
        if pairs:
            s, y = pairs[0], self.n_kept + pairs[0]
            coefficients *= products[s, y] / products[y, y]
        for s, factor in zip(reversed(pairs), reversed(factors), strict=True):
            y = self.n_kept + s
            coefficients[s] += factor - products[y] @ coefficients / products[s, y]
        return coefficients

    def next_slot(self):
        """Row of the next step."""
        return self.newest if self.n_pairs == 0 else (self.newest + 1) % self.n_kept

    def is_convex(self, products, slot):
        """Whether a pair has s'y > 0, as it has if the function is strictly convex along it."""
        y = self.n_kept + slot
        return products[slot, y] > 1e-12 * products[y, y]

    def accept(self, slot):
        """Keep the pair in rows `slot` and `n_kept + slot`."""
        self.update_products([slot, self.n_kept + slot, len(self.rows) - 1])
        if self.is_convex(self.products, slot):
            self.newest = slot
            self.n_pairs = min(self.n_pairs + 1, self.n_kept)
        elif self.n_pairs == self.n_kept:
            self.n_pairs -= 1


class _Steps:
    """Steps of a function without penalty: the gradient is the last row of the vectors."""

    def __init__(self, objective, z, vectors):
        self.objective, self.z, self.vectors = objective, z, vectors
        self.gradient, self.trial_gradient = vectors.rows[-1], aligned(z.shape, z.dtype)

    def start(self):
        """The value at the start."""
        return self.objective(self.z, self.gradient)

    def direction(self):
        """The direction, and the derivative along it."""
        products = self.vectors.products
        coefficients = self.vectors.direction(products)
        return coefficients, float(products[-1] @ coefficients)

    def _move(self, coefficients, slot):
        """Change z by the whole step along a direction, stored in its row."""
        step, z = self.vectors.rows[slot], self.z

        def move(_, chunk):
            new = coefficients.astype(z.dtype) @ self.vectors.rows[:, chunk]
            step[chunk] = new
            z[chunk] += new

        self.vectors.over_chunks(move)
        return step

    def take(self, coefficients, slot, derivative, value):
        """Change z by a step, stored in its row, so that the value decreases; that value."""
        step, z = self._move(coefficients, slot), self.z
        length = 1.0
        for _ in range(_MAX_BACKTRACKS):
            new = self.objective(z, self.trial_gradient)
            if new <= value + MIN_DECREASE * length * derivative:
                return new
            shorter = _shorter(length, derivative, new - value)
            z -= (1 - shorter / length) * step
            step *= shorter / length
            length = shorter
        z -= step
        return None

    def take_small(self, coefficients, slot, value):
        """Change z by a step whose gain may be below rounding; the value, None if it rises."""
        step = self._move(coefficients, slot)
        new = self.objective(self.z, self.trial_gradient)
        if new <= value + _ROUNDING * np.finfo(step.dtype).eps * abs(value):
            return min(new, value)
        self.z -= step
        return None

    def keep_pair(self, slot):
        """Keep the last step and the change of the gradient."""
        change = self.vectors.rows[self.vectors.n_kept + slot]
        gradient, trial_gradient = self.gradient, self.trial_gradient

        def update(_, chunk):
            np.subtract(trial_gradient[chunk], gradient[chunk], out=change[chunk])
            gradient[chunk] = trial_gradient[chunk]

        self.vectors.over_chunks(update)


class _StepsInOrthants(_Steps):
    """Steps of a function plus l1 @ |z|: the last row is the gradient in the orthant below."""

    def __init__(self, objective, z, vectors, l1):
        super().__init__(objective, z, vectors)
        self.gradient, self.l1 = np.empty_like(z), l1

    def start(self):
        """The value at the start."""
        value = self.objective(self.z, self.gradient) + self.l1 @ abs(self.z)
        self._set_last_row()
        return value

    def _set_last_row(self):
        g, l1 = self.gradient, self.l1
        at_zero = np.sign(g) * np.maximum(abs(g) - l1, 0)
        self.vectors.rows[-1] = np.where(self.z == 0, at_zero, g + l1 * np.sign(self.z))

    def direction(self):
        """The direction, and the derivative along it."""
        vectors, downhill = self.vectors, -self.vectors.rows[-1]
        free = (self.z != 0) | (self.l1 == 0)
        rows = vectors.rows[:, free]
        products = rows @ rows.T
        # Variables that leave zero have the curvature of the last step.
        scale, y = 1.0, vectors.n_kept + vectors.newest
        if vectors.n_pairs:
            scale = vectors.products[vectors.newest, y] / vectors.products[y, y]
        step = scale * downhill
        step[free] = vectors.direction(products) @ rows
        return step, -float(step @ downhill)

    def take(self, step, slot, derivative, value):
        """Change z by a step, stored in its row, so that the value decreases; that value."""
        z, before = self.z, self.z.copy()
        downhill, length = -self.vectors.rows[-1], 1.0
        orthant = np.where(before == 0, downhill, before)
        for _ in range(_MAX_BACKTRACKS):
            z[:] = before + length * step
            z[(self.l1 > 0) & (z * orthant <= 0)] = 0
            new = self.objective(z, self.trial_gradient) + self.l1 @ abs(z)
            if new <= value - MIN_DECREASE * downhill @ (z - before):
                self.vectors.rows[slot] = z - before
                return new
            length = _shorter(length, derivative, new - value)
        z[:] = before
        return None

    def take_small(self, step, slot, value):
        """None: which variables leave zero is decided by steps that gain more."""
        return None

    def keep_pair(self, slot):
        """Keep the last step and the change of the gradient."""
        super().keep_pair(slot)
        self._set_last_row()


def _shorter(length, derivative, change):
    """Minimum of the parabola through both values, between a tenth and a half of the step."""
    curvature = 2 * (change - length * derivative) / length**2
    shorter = -derivative / curvature if curvature > 0 and np.isfinite(change) else 0.0
    return min(max(shorter, 0.1 * length), 0.5 * length)


def minimise(
    objective, z, *, tol, max_iter, l1=None, n_pairs=N_PAIRS, n_threads=None, callback=None
):
    """Minimum of a convex function by L-BFGS."""
    vectors = _Vectors(len(z), z.dtype, n_threads, n_pairs)
    if l1 is None:
        steps = _Steps(objective, z, vectors)
    else:
        steps = _StepsInOrthants(objective, z, vectors, l1)
    with one_blas_thread():
        value = steps.start()
        vectors.update_products([len(vectors.rows) - 1])
        history, converged = _iterate(steps, value, tol, max_iter, callback)
    return Minimum(z, history or [value], converged)


def _iterate(steps, value, tol, max_iter, callback):
    """Values after each iteration, and whether the minimum was found."""
    vectors, eps = steps.vectors, np.finfo(steps.z.dtype).eps
    history, converged, smallest = [], False, np.inf
    for iteration in range(max_iter):
        slot = vectors.next_slot()
        direction, derivative = steps.direction()
        # A smaller decrease could not be told from rounding errors.
        converged = not -derivative / 2 > max(tol, eps * abs(value) / 2)
        if converged:
            # As long as the gradient shrinks.
            if iteration >= _FEW_ITERATIONS or not 0 < -derivative < smallest:
                break
            smallest = -derivative
            result = steps.take_small(direction, slot, value)
        else:
            result = steps.take(direction, slot, derivative, value)
        if result is None:
            # At the minimum, rounding errors are larger than any decrease.
            converged |= abs(derivative) < _ROUNDING * eps * abs(value)
            break
        value = result
        history.append(value)
        steps.keep_pair(slot)
        vectors.accept(slot)
        if callback is not None:
            callback(iteration, value)
    return history, converged


def lbfgs(objective, start, *, l1=0.0, tol=1e-5, max_iter=MAX_LBFGS_ITER):
    """Maximum of a composite likelihood by L-BFGS, in its own well-scaled coordinates."""
    coordinates = objective.coordinates(separate=l1 > 0)

    def function(z, gradient):
        value, by_parameters = objective.value_and_gradient(coordinates.to_parameters(z))
        gradient[:] = coordinates.gradient(by_parameters)
        np.negative(gradient, out=gradient)
        return -value

    penalty, z = None, coordinates.from_parameters(start)
    if l1:
        penalty = np.zeros(len(z))
        penalty[objective.n_fields :] = l1 / coordinates.scale[objective.n_fields :]
    result = minimise(
        function, z, tol=tol / 100 / TOLERANCE_ROWS, max_iter=max_iter, l1=penalty,
        n_pairs=N_PAIRS_OF_SMALL_PROBLEMS, n_threads=objective.n_threads,
    )  # fmt: skip
    history = [-objective.total * value for value in result.history]
    return Fit(coordinates.to_parameters(result.z), history, result.converged)
