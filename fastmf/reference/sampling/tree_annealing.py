"""NumPy twin of `fastmf.kernels.sampling.tree_annealing`, with the same random numbers."""

import numpy as np
from scipy.special import logsumexp, softmax

from fastmf.reference.sampling.random import uniforms

# As in `fastmf.kernels.sampling.tree_annealing` and `spanning_tree`, which a reference does not
# import.
MIN_EFFECTIVE_SHARE = 0.5
N_BISECTIONS, MAX_ANNEALING_STEPS = 30, 1000
MAX_FIELD_RANGE, MAX_COUPLING_RANGE = 6.0, 3.0


def tree_annealing(problem, fields, missing, n_particles, settings, means, errors, work):
    """Probabilities of the states of missing columns, a row at a time."""
    for row in range(len(fields)):
        columns = np.flatnonzero(missing[row])
        ends = problem.offsets[columns + 1]
        states = np.concatenate(
            [np.arange(a, b) for a, b in zip(problem.offsets[columns], ends, strict=True)]
        )
        particles = _Particles(problem, fields[row, states], columns, states, n_particles[row])
        if particles.is_tree:
            means[row, states], errors[row] = particles.marginals, 0.0
            continue
        log_z, found = [], []
        for replicate in range(settings.max_replicates):
            one, mean = particles.replicate(settings, replicate)
            log_z.append(one)
            found.append(mean)
            if replicate + 1 < settings.min_replicates:
                continue
            weights = np.exp(np.array(log_z) - max(log_z))
            weights /= weights.sum()
            mean = weights @ found
            squares = weights**2 @ (np.array(found) - mean) ** 2 * len(found) / (len(found) - 1)
            error = np.sqrt(squares.max())
            if error <= settings.tol:
                break
        means[row, states], errors[row] = mean, error


class _Particles:
    """Particles of one row, their columns numbered from 0."""

    def __init__(self, problem, field, columns, states, n_particles):
        self.field, self.n_particles = field, n_particles
        self.couplings = problem.couplings[np.ix_(states, states)]
        sizes = problem.offsets[columns + 1] - problem.offsets[columns]
        ends = np.cumsum(sizes)
        self.blocks = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self.first = ends - sizes
        self.order, self.parent = _spanning_tree(problem.strength[np.ix_(columns, columns)])
        tree = np.zeros(self.couplings.shape, bool)
        for i in self.order[1:]:
            a, b = self.blocks[i], self.blocks[self.parent[i]]
            tree[a, b] = tree[b, a] = True
        self.is_tree = not self.couplings[~tree].any()
        self.base_field, self.base = self.field.copy(), np.where(tree, self.couplings, 0.0)
        if not self.is_tree:
            self._weaken()
        self._solve_tree()

    def _weaken(self):
        """Limit the ranges of fields and couplings of the tree, so that it freezes nothing."""
        for i, a in enumerate(self.blocks):
            self.base_field[a] *= _factor(self.field[a], MAX_FIELD_RANGE)
            if i != self.order[0]:
                b = self.blocks[self.parent[i]]
                self.base[a, b] *= _factor(self.base[a, b], MAX_COUPLING_RANGE)
                self.base[b, a] = self.base[a, b].T

    def _solve_tree(self):
        """Log-partition, conditional probabilities and marginals of the tree."""
        beliefs, self.given = self.base_field.copy(), {}
        for i in self.order[:0:-1]:
            parent = self.blocks[self.parent[i]]
            logs = beliefs[self.blocks[i], None] + self.base[self.blocks[i], parent]
            self.given[i] = softmax(logs, axis=0)
            beliefs[parent] += logsumexp(logs, axis=0)
        root = self.order[0]
        self.given[root] = softmax(beliefs[self.blocks[root]])[:, None]
        self.log_z = logsumexp(beliefs[self.blocks[root]])
        self.marginals = np.empty_like(beliefs)
        for i in self.order:
            parent = self.blocks[self.parent[i]]
            up = [1.0] if i == root else self.marginals[parent]
            self.marginals[self.blocks[i]] = self.given[i] @ up

    def replicate(self, settings, replicate):
        """Log-partition and probabilities of the states from one set of particles."""
        self.seed, self.step = settings.seed, replicate << 32
        labels, log_z, beta, n_steps = self._draw(), self.log_z, 0.0, 0
        while True:
            residual, n_steps = self._residual(labels), n_steps + 1
            step = 1 - beta if n_steps == MAX_ANNEALING_STEPS else _largest_step(residual, 1 - beta)
            weights = np.exp(step * (residual - residual.max()))
            log_z += step * residual.max() + np.log(weights.mean())
            if step == 1 - beta:
                break
            beta += step
            labels = labels[self._resampled(weights)]
            for _ in range(settings.n_sweeps):
                self._sweep(labels, beta)
        weights = weights / weights.sum()
        if n_steps == 1:
            one_hot = np.zeros((len(labels), len(self.field)))
            np.put_along_axis(one_hot, self.first + labels, 1.0, axis=1)
            mean = self.marginals + (weights - 1 / len(labels)) @ one_hot
        else:
            sweeps = range(settings.n_last_sweeps)
            mean = sum(weights @ self._sweep(labels, 1.0) for _ in sweeps)
        mean = np.maximum(mean, 0)
        for block in self.blocks:
            mean[block] /= mean[block].sum()
        return log_z, mean

    def _uniforms(self, n):
        self.step += 1
        return uniforms(self.seed, self.step, (self.n_particles, n))

    def _draw(self):
        """Labels of all particles, drawn from the tree."""
        labels = np.zeros((self.n_particles, len(self.blocks)), np.int64)
        u = self._uniforms(len(self.blocks))
        for i in self.order:
            up = labels[:, self.parent[i]] if i != self.order[0] else np.zeros(len(u), int)
            labels[:, i] = _drawn(self.given[i].T[up], u[:, i])
        return labels

    def _residual(self, labels):
        """Log-weight of each particle in the model, less that in the tree."""
        at = self.first + labels
        couplings = self.couplings - self.base
        pairs = [couplings[np.ix_(row, row)].sum() / 2 for row in at]
        return (self.field - self.base_field)[at].sum(1) + pairs

    def _sweep(self, labels, beta):
        """Draw all columns in turn, in place; the probabilities from which they were drawn."""
        field = (1 - beta) * self.base_field + beta * self.field
        couplings = (1 - beta) * self.base + beta * self.couplings
        logs = field + couplings[self.first + labels].sum(1)
        u, found = self._uniforms(len(self.blocks)), np.empty_like(logs)
        for i, block in enumerate(self.blocks):
            found[:, block] = softmax(logs[:, block], axis=1)
            new = _drawn(found[:, block], u[:, i])
            logs += couplings[self.first[i] + new] - couplings[self.first[i] + labels[:, i]]
            labels[:, i] = new
        return found

    def _resampled(self, weights):
        """Particles that take the places of all, by systematic resampling."""
        cumulative = np.cumsum(weights)
        n = len(weights)
        positions = (np.arange(n) + self._uniforms(1)[0, 0]) * (cumulative[-1] / n)
        return np.minimum(np.searchsorted(cumulative, positions, side="right"), n - 1)


def _spanning_tree(strength):
    """Columns from the root 0 on, and the parent of each in the maximum spanning tree (Prim)."""
    parent, best, order = np.zeros(len(strength), int), strength[0].copy(), [0]
    best[0] = -1
    while len(order) < len(strength):
        i = int(best.argmax())
        order.append(i)
        best[i] = -1
        closer = (strength[i] > best) & (best >= 0)
        best[closer], parent[closer] = strength[i, closer], i
    return order, parent


def _drawn(p, u):
    """The first state whose cumulative probability is above a uniform number, for each row."""
    return np.minimum((np.cumsum(p, axis=1) <= u[:, None]).sum(1), p.shape[1] - 1)


def _factor(table, max_range):
    """Factor that reduces the largest difference of a table to a limit."""
    return min(1.0, max_range / max(table.max() - table.min(), max_range))


def _largest_step(residual, left):
    """Largest step up to `left` that keeps enough particles effective."""

    def enough(step):
        weights = np.exp(step * (residual - residual.max()))
        return weights.sum() ** 2 >= MIN_EFFECTIVE_SHARE * len(weights) * (weights**2).sum()

    low, high = 0.0, left
    if enough(left):
        return left
    for _ in range(N_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low
