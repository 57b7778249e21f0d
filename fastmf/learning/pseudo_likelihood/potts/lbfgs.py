"""L-BFGS for millions of variables: all products of vectors in one pass over them.

The direction of L-BFGS is a linear combination of the last steps, of the changes of the gradient
along them, and of the gradient, and its coefficients follow from the inner products of these
vectors alone (Chen, Wang & Zhou 2014). So an iteration reads each of them twice: once for the inner
products with the three that are new, once for the combination. SciPy's L-BFGS-B would compute in
double precision, and in one thread.
"""

from typing import NamedTuple

import numpy as np

from fastmf._threads.workers import for_each, one_blas_thread, workers_for
from fastmf.kernels.pseudo_likelihood.potts import aligned

# Pairs of steps and changes of the gradient that are kept.
N_PAIRS = 6
# Numbers of each vector in a chunk: those of all vectors stay in the cache.
_CHUNK_NUMBERS = 1 << 14
# Smallest decrease of the function, compared with that along the gradient, for a step to be taken.
_MIN_DECREASE = 1e-4
_MAX_BACKTRACKS = 20
# Units in the last place of the value below which a predicted decrease cannot be resolved.
_ROUNDING = 10.0


class Minimum(NamedTuple):
    """Result of a minimisation.

    Parameters
    ----------
    z : array
    history : list of float
        Values after each iteration.
    converged : bool
    """

    z: np.ndarray
    history: list
    converged: bool


class _Vectors:
    """Steps, changes of gradients, the gradient: rows of a matrix, with their inner products."""

    def __init__(self, size, dtype, n_threads):
        self.rows = aligned((2 * N_PAIRS + 1, size), dtype)
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
        found = parts.sum(0)
        self.products[:, new], self.products[new] = found, found.T

    def direction(self):
        """Coefficients of minus the approximate inverse Hessian times the gradient."""
        products, g = self.products, len(self.rows) - 1
        coefficients = np.zeros(g + 1)
        coefficients[g] = -1
        pairs = [(self.newest - k) % N_PAIRS for k in range(self.n_pairs)]
        factors = []
        for s in pairs:
            y = N_PAIRS + s
            factors.append(products[s] @ coefficients / products[s, y])
            coefficients[y] -= factors[-1]
        if pairs:
            s, y = pairs[0], N_PAIRS + pairs[0]
            coefficients *= products[s, y] / products[y, y]
        for s, factor in zip(reversed(pairs), reversed(factors), strict=True):
            y = N_PAIRS + s
            coefficients[s] += factor - products[y] @ coefficients / products[s, y]
        return coefficients


def minimise(objective, z, *, tol, max_iter, n_threads=None, callback=None):
    """Minimum of a convex function by L-BFGS.

    Parameters
    ----------
    objective : callable
        objective(z, gradient): the value; the gradient is filled.
    z : array of shape (n_variables,)
        The start; overwritten by the result.
    tol : float
        Ends when the predicted decrease of a step, half the product of gradient and direction, is
        smaller.
    max_iter : int
    n_threads : int, optional
    callback : callable, optional
        Called with the number of the iteration and the value.

    Returns
    -------
    Minimum
    """
    vectors = _Vectors(len(z), z.dtype, n_threads)
    gradient, trial_gradient = vectors.rows[-1], aligned(z.shape, z.dtype)
    with one_blas_thread():
        value = objective(z, gradient)
        vectors.update_products([len(vectors.rows) - 1])
        history, converged = [], False
        for iteration in range(max_iter):
            coefficients = vectors.direction()
            slope = float(vectors.products[-1] @ coefficients)
            # A smaller decrease could not be told from rounding errors.
            if not -slope / 2 > max(tol, np.finfo(z.dtype).eps * abs(value) / 2):
                converged = True
                break
            slot = vectors.newest if vectors.n_pairs == 0 else (vectors.newest + 1) % N_PAIRS
            found = _line_search(
                objective, z, vectors, (coefficients, slope, value), (slot, trial_gradient)
            )
            if found is None:
                # At the minimum, rounding errors are larger than any decrease.
                converged = abs(slope) < _ROUNDING * np.finfo(z.dtype).eps * abs(value)
                break
            value = found
            history.append(value)
            _keep_pair(vectors, slot, gradient, trial_gradient)
            if callback is not None:
                callback(iteration, value)
        if not history:
            history.append(value)
    return Minimum(z, history, converged)


def _line_search(objective, z, vectors, at, memory):
    """Change z by a step, which is stored in its row, so that the value decreases; that value."""
    (coefficients, slope, value), (slot, trial_gradient) = at, memory
    step = vectors.rows[slot]

    def take_first_step(_, chunk):
        new = coefficients.astype(z.dtype) @ vectors.rows[:, chunk]
        step[chunk] = new
        z[chunk] += new

    vectors.over_chunks(take_first_step)
    length = 1.0
    for _ in range(_MAX_BACKTRACKS):
        new = objective(z, trial_gradient)
        if new <= value + _MIN_DECREASE * length * slope:
            return new
        # The minimum of the parabola through both values, between a tenth and a half of the step.
        curvature = 2 * (new - value - length * slope) / length**2
        shorter = -slope / curvature if curvature > 0 and np.isfinite(new) else 0.0
        shorter = min(max(shorter, 0.1 * length), 0.5 * length)
        z -= (1 - shorter / length) * step
        step *= shorter / length
        length = shorter
    z -= step
    return None


def _keep_pair(vectors, slot, gradient, trial_gradient):
    """Keep the last step and the change of the gradient; a convex function has s'y > 0."""
    change = vectors.rows[N_PAIRS + slot]

    def update(_, chunk):
        np.subtract(trial_gradient[chunk], gradient[chunk], out=change[chunk])
        gradient[chunk] = trial_gradient[chunk]

    vectors.over_chunks(update)
    vectors.update_products([slot, N_PAIRS + slot, len(vectors.rows) - 1])
    products = vectors.products
    if products[slot, N_PAIRS + slot] > 1e-12 * products[N_PAIRS + slot, N_PAIRS + slot]:
        vectors.newest = slot
        vectors.n_pairs = min(vectors.n_pairs + 1, N_PAIRS)
    elif vectors.n_pairs == N_PAIRS:
        vectors.n_pairs -= 1
