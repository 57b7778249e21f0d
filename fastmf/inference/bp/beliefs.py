"""The results of belief propagation, on an RBM and on a graph."""

from dataclasses import dataclass

import numpy as np

from fastmf._outcomes import is_converged, messages_of
from fastmf._threads.workers import computed_once, in_parallel, workers_for
from fastmf.inference.fixed_point import FixedPoint, average, trace_of
from fastmf.kernels.bp import belief_propagation as bp_kernels
from fastmf.kernels.bp.messages import TILE_UNITS
from fastmf.special import sigmoid_pair

BETTER = "another assignment is more probable, by {:.3g} nats; take {}"
NO_STATE = "no state is possible"


@dataclass(frozen=True, eq=False, repr=False)
class Beliefs(FixedPoint):
    """Result of `belief_propagation` and `most_probable`, a `FixedPoint`.

    Parameters
    ----------
    log_partition : float or array
        Bethe log-partition, or `score`.
    assignment : tuple of arrays (visible, hidden)
        Sum-product: the more probable value of each unit. `most_probable`: the best visible
        assignment, and the best hidden assignment given it; `reliable` says whether it passed the
        checks, while `converged` and `mean` describe the messages.
    score : float or array, optional
        Max-product: minus the energy of the assignment, a lower bound of the maximum.
        Mixed-product: log of the sum of exp(-energy) over the hidden units, likewise.
        Sum-product: None.
    bound : float or array, optional
        `most_probable` with bound=True: certified upper bound of the score of all assignments.
    local_maximum : bool or array, optional
        Whether no flip of one visible unit raises `score`. None without a search.
    messages : array of shape (n_visible, n_hidden) or (n_rows, n_visible, n_hidden), optional
        Log-ratios m(high) / m(low) of the messages from visible to hidden units, with
        pairwise=True.
    pairwise : array of shape (n_visible, n_hidden) or (n_rows, n_visible, n_hidden), optional
        Expected products <v_i h_j>, of each row or averaged over rows, computed from the beliefs of
        both units and the message to the hidden unit. Eq. 18 of Ping & Ihler (2017), which uses
        both last messages, agrees at fixed points, but not in rows that have not converged.
    damping : float or array
        Damping of the row at its end (a sweep that confirms convergence is undamped).
    method : {"belief propagation", "several starts", "elimination"}
        How algorithm="auto" solved the model.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.RBM(np.ones((3, 2)), mf.Bernoulli(np.zeros(3)), mf.Bernoulli(np.zeros(2)))
    >>> best = mf.most_probable(model)
    >>> best.assignment, best.score
    ((array([1., 1., 1.]), array([1., 1.])), np.float64(6.0))
    """

    assignment: tuple | None = None
    score: np.ndarray | float | None = None
    bound: np.ndarray | float | None = None
    local_maximum: np.ndarray | bool | None = None
    messages: np.ndarray | None = None
    pairwise: np.ndarray | None = None
    damping: np.ndarray | float = 0.0
    method: str = "belief propagation"

    @property
    def objective(self):
        """The same as `score`."""
        return self.score

    @computed_once
    def spectral_radius(self):
        """Upper bound of the spectral radius of Mooij and Kappen (2007), or None.

        Below 1, sum-product has one fixed point, whatever the fields, and converges to it from any
        messages; 0 for a forest. Computed on first access; None after `pickle`.
        """
        compute = self.__dict__.pop("_radius", None)
        return None if compute is None else compute()

    @property
    def unique(self):
        """True if sum-product is proved to have one fixed point, whatever the fields; else None.

        The proof is a `spectral_radius` below 1.
        """
        radius = self.spectral_radius
        return True if radius is not None and radius < 1 else None

    def _judged(self):
        """Return the rows that are checked; assignments are checked without convergence, too."""
        return super()._judged() if self.score is None else np.ones(self.converged.size, bool)

    def _mixed(self, weights):
        """Return the fields that a `FixedPoint` lacks, for the mixture of all rows."""
        beliefs, decode = self.__dict__["_states"]
        pairs = self.pairwise
        return {
            "assignment": decode((weights @ beliefs)[None]),
            "pairwise": None if pairs is None else average(weights, pairs),
            "damping": self.damping.max(keepdims=True),
            "messages": None,
        }

    def __getstate__(self):
        """Leave out attributes that refer to the model."""
        state = super().__getstate__()
        return {k: v for k, v in state.items() if k not in ("_radius", "_states")}


def beliefs_of(options, units, ends, single=False, local_maximum=None):
    """Make the `Beliefs` of rows that have ended; without the axis of rows if `single`."""
    model, record = units.model, ends.record
    dtype, (n, m) = model.dtype, model.weights.shape
    of_units = np.concatenate([record.visible, record.hidden[:, :m]], axis=1)
    p, q = sigmoid_pair(of_units)
    log_odds, *pairs = ((x[:, :n], x[:, n:]) for x in (of_units, p, q))
    means, variances = units.means(zip(*pairs, strict=True))
    assignment, score = [x > 0 for x in log_odds], None
    if options.decodes:
        best = record.best.astype(dtype)  # and the best hidden units given these
        hidden = units.fields[1] + (best @ model.weights) * units.factor > 0
        assignment, score = (record.best, hidden), record.objective + units.constant
    tilts = [
        x / scale - field
        for x, scale, field in zip(log_odds, units.scales, units.prior_fields, strict=True)
    ]
    layers = {"mean": means, "var": variances, "b": tilts, "assignment": units.values(assignment)}
    rows = {
        "log_partition": record.bethe + units.constant if score is None else score,
        "score": score,
        "local_maximum": local_maximum,
        "messages": ends.messages,
    }
    averaged = {}
    (averaged if options.pairwise == "mean" else rows)["pairwise"] = ends.pairs
    result = of_record(record, single, dtype, layers, rows, **averaged)
    if score is None:
        result.__dict__["_states"] = p - q, lambda x: units.values(np.split(x > 0, [n], 1))
    return result


def of_record(record, single, dtype, layers, rows, kind=Beliefs, **shared):
    """Make the `Beliefs` of a record; without the axis of rows if `single`."""

    def row(x):
        return x[0] if single and x is not None else x

    def cast(x, dtype):
        if isinstance(x, tuple | list):
            return tuple(cast(part, dtype) for part in x)
        return None if x is None else row(np.asarray(x, dtype))

    # Labels of groups stay integers.
    fields = {name: cast(x, None if name == "assignment" else dtype) for name, x in layers.items()}
    b = fields["b"]
    zeros = tuple(map(np.zeros_like, b)) if isinstance(b, tuple) else np.zeros_like(b)
    rows = {
        "converged": is_converged(record.status),
        "n_iter": record.n_iter,
        "residual": record.residual,
        "message": messages_of(record.status),
        "history": trace_of(record),
        "damping": record.damping,
    } | rows
    return kind(
        a=None if b is None else zeros,
        **fields,
        **{name: row(x) for name, x in rows.items()},
        **shared,
    )


def log_messages(options, units, messages):
    """Return log-messages without padding, in the type of the model."""
    logs = messages[:, :, : units.model.weights.shape[1]].copy()
    if options.algorithm == "sum":
        np.log(logs, out=logs)
    return logs.astype(units.model.dtype, copy=False)


def pair_products(options, units, problem, messages, record):
    """Compute expected products <v_i h_j> of each row, or their average over rows."""
    m, mean = units.model.weights.shape[1], options.pairwise == "mean"
    out = _pairs_of_messages(options, problem, messages, record)[:, :, :m]
    if units.factor != 1:
        (o_v, o_h), (s_v, s_h) = units.offsets, units.scales
        p_v, p_h = (sigmoid_pair(x)[0] for x in (record.visible, record.hidden[:, :m]))
        if mean:
            p_v, p_h = (x.mean(0, keepdims=True) for x in (p_v, p_h))
        out = o_v * o_h + o_v * s_h * p_h[:, None] + o_h * s_v * p_v[:, :, None] + s_v * s_h * out
    out = np.ascontiguousarray(out, dtype=units.model.dtype)
    return out[0] if mean else out


def _pairs_of_messages(options, problem, messages, record):
    """Compute the probabilities that both units of a pair are 1, from the messages of all rows."""
    n_rows, mean = len(record.visible), options.pairwise == "mean"
    out = np.zeros((1 if mean else n_rows, *messages.shape[1:]), messages.dtype)
    beliefs = np.stack(sigmoid_pair(record.hidden)).astype(messages.dtype, copy=False)
    scales = sigmoid_pair(record.visible)[0] * (1 / n_rows if mean else 1.0)
    scales = scales.astype(messages.dtype, copy=False)
    n_tasks = -(-messages.shape[1] // TILE_UNITS)
    n_workers = workers_for(n_tasks, 10 * messages.size, options.n_threads)
    arguments = problem, messages, beliefs, scales, np.zeros(1, np.int64), out
    in_parallel(bp_kernels.pair_beliefs, arguments, n_workers)
    return out


# --- scores of assignments ------------------------------------------------------------------------


def margin_of(objective):
    """Return the largest difference of objectives that may be rounding."""
    return 1e-9 * (1 + abs(objective))


def reasons(given, best, advice):
    """Return the reason why each row is not reliable: a better assignment, or no possible state."""
    texts = []
    for objective, highest in zip(given, best, strict=True):
        is_lower = highest > -np.inf and highest - objective > margin_of(highest)
        text = BETTER.format(highest - objective, advice) if is_lower else ""
        texts.append(NO_STATE if highest == -np.inf else text)
    return texts


@dataclass(frozen=True, eq=False, repr=False)
class GraphBeliefs(Beliefs):
    """Result of `belief_propagation` for a `BoltzmannMachine`: the `Beliefs` of a graph.

    There is one layer: `mean`, `var`, `b`, `a` and `assignment` are arrays. The assignment has
    labels for groups of states.

    Parameters
    ----------
    edges : int array of shape (n_edges, 2)
        Pairs of coupled units (groups of states are one), the smaller number first.
    edge_probability : array of shape (n_edges,), optional
        Tree-reweighted: probability of each edge in a spanning tree.
    messages : array of shape (n_messages,) or (n_rows, n_messages), optional
        Log-messages, as `init` takes them.
    pairwise : array of shape (n_edges,), (n_values,) or with rows, optional
        Expected products <x_i x_j> of two-valued units. For other units, probabilities of the pairs
        of states, a table of n_states[i] * n_states[j] numbers for each edge: see `table`.
    n_states : int array of shape (n_units,)
        Number of states of each unit.

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> chain = np.diag([1.0, 2.0], 1) + np.diag([1.0, 2.0], -1)
    >>> found = mf.belief_propagation(mf.BoltzmannMachine(chain, mf.Ising(np.zeros(3))))
    >>> found.edges.tolist()
    [[0, 1], [1, 2]]
    >>> np.isclose(found.log_partition, np.log(8 * np.cosh(1) * np.cosh(2)))
    np.True_
    """

    edges: np.ndarray | None = None
    edge_probability: np.ndarray | None = None
    n_states: np.ndarray | None = None

    def table(self, i, j, row=None):
        """Return the probabilities of pairs of states of two coupled, not two-valued, units.

        Parameters
        ----------
        i, j : int
            Units, in either order.
        row : int, optional
            Row of the result, if it has rows.

        Returns
        -------
        array of shape (n_states[i], n_states[j])

        Raises
        ------
        ValueError
            If there are no pair beliefs, or none of these units.
        """
        if self.pairwise is None or self.pairwise.shape[-1] == len(self.edges):
            raise ValueError("tables need pairwise=True and units that are not two-valued.")
        at = np.flatnonzero((self.edges == sorted((i, j))).all(1))
        if not len(at):
            raise ValueError(f"units {i} and {j} are not coupled.")
        counts = self.n_states[self.edges].prod(1)
        first = counts[: at[0]].sum()
        values = self.pairwise if row is None else self.pairwise[row]
        values = values[..., first : first + counts[at[0]]]
        table = values.reshape(self.n_states[self.edges[at[0]]])
        return table if i < j else table.T
