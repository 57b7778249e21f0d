"""NumPy twin of `fastmf.kernels.bp.graphs`."""

import numpy as np

from fastmf._outcomes import ALL, FOLLOWING, GAIN_TOLERANCE, LOG_EPSILON, MAX_FORESTS, MAX_ROUNDS


def _row(array, index):
    return array[min(index, len(array) - 1)]


def receives(state, distance, step):
    """Whether a unit sends a message to the neighbours at these distances in the order."""
    if state.receivers == FOLLOWING:
        return (distance > 0) == (step > 0)
    return np.full(np.shape(distance), state.receivers == ALL)


def send_odds(problem, state, place, step):
    """Update beliefs of two-valued units of a row, one after another, and their messages."""
    (index, _), n_units = place, len(problem.starts) - 1
    damping, largest = state.damping[index], 0.0
    for i in np.arange(n_units)[::step]:
        slots = np.arange(problem.starts[i], problem.starts[i + 1])
        received = state.messages[index, problem.reverse[slots]]
        odds, before = _row(problem.odds, index)[i] * received.prod(), state.beliefs[index, i]
        state.beliefs[index, i] = odds
        p, q = odds / (1 + odds), 1 / (1 + odds)
        slots = slots[receives(state, problem.neighbours[slots] - i, step)]
        back = state.messages[index, problem.reverse[slots]]
        e, sent = problem.exponentials[slots], state.messages[index, slots]
        new = (e * p + q * back) / (e * q * back + p)
        mixed = (1 - damping) * new / (1 + new) + damping * sent / (1 + sent)
        new = mixed / (1 - mixed) if damping else new
        change = abs(new - sent) / np.minimum(new, sent)
        state.messages[index, slots] = new
        largest = max(largest, abs(odds - before) / min(odds, before), change.max(initial=0))
    state.residual[index] = largest


def binary_terms(problem, state, terms, pairs, queue):
    """Compute terms of the Bethe log-partition, and pair beliefs."""
    units = np.repeat(np.arange(terms.shape[1]), np.diff(problem.starts))
    k = np.flatnonzero(problem.neighbours > units)
    i, j, e = units[k], problem.neighbours[k], problem.exponentials[k]
    for index, odds in enumerate(state.beliefs):
        p, q = odds / (1 + odds), 1 / (1 + odds)
        terms[index] = np.log1p(odds)
        back, sent = state.messages[index, problem.reverse[k]], state.messages[index, k]
        message = (e * p[i] + q[i] * back) / (e * q[i] * back + p[i])
        ratio = (q[i] + p[i] / (e * back)) * (q[j] + p[j] * message / sent)
        np.add.at(terms[index], i, np.log(e) / 2 + np.log(ratio))
        if len(pairs):
            both, none = e * p[i] * p[j], e * q[i] * back * q[j] * sent
            one = p[i] * q[j] * sent + q[i] * back * p[j]
            pairs[index, problem.edges[k]] = both / (both + none + one)


def log_sum(x, axis=None):
    """Compute log sum exp(x); -inf if all x are -inf."""
    with np.errstate(divide="ignore"):
        return np.logaddexp.reduce(x, axis=axis)


def _states(problem, i):
    return slice(problem.first_state[i], problem.first_state[i + 1])


def _message(problem, k):
    return slice(problem.first_entry[k], problem.first_entry[k + 1])


def _field(problem, index, i):
    return problem.field[min(index, len(problem.field) - 1), _states(problem, i)]


def table_of(problem, k, n):
    """Return the table of a slot: rows are the n states of the sender."""
    edge = problem.edges[k]
    table = problem.tables[problem.first_value[edge] : problem.first_value[edge + 1]]
    return table.reshape(-1, n).T if problem.transposed[k] else table.reshape(n, -1)


def _change(new, old):
    unchanged = (new == old) | ((new < old) & (old < LOG_EPSILON))
    both = np.isfinite(new) & np.isfinite(old)
    with np.errstate(invalid="ignore"):
        change = np.where(both, abs(new - old) / (1 + abs(new)), 1.0)
    return np.where(unchanged, 0.0, change).max(initial=0)


def _cavity(belief, message):
    possible = belief > -np.inf
    return np.where(possible, belief - np.where(possible, message, 0), -np.inf)


def _belief(problem, state, index, i):
    """Compute the logarithms of the belief of a unit, and their largest change."""
    total = _field(problem, index, i).copy()
    for k in range(problem.starts[i], problem.starts[i + 1]):
        received = state.messages[index, _message(problem, problem.reverse[k])]
        total += problem.probability[problem.edges[k]] * received
    before = state.beliefs[index, _states(problem, i)].copy()
    state.beliefs[index, _states(problem, i)] = total
    if total.max() == -np.inf:
        return total, np.inf
    return total, _change(total - total.max(), before - before.max())


def _send(problem, state, place, step):
    """Update beliefs of the units of a row, one after another, and the messages that they send."""
    (index, _), n_units = place, len(problem.starts) - 1
    damping, largest = state.damping[index], 0.0
    for i in np.arange(n_units)[::step]:
        belief, change = _belief(problem, state, index, i)
        largest = max(largest, change)
        if largest == np.inf:
            break
        for k in range(problem.starts[i], problem.starts[i + 1]):
            if not receives(state, problem.neighbours[k] - i, step):
                continue
            cavity = _cavity(belief, state.messages[index, _message(problem, problem.reverse[k])])
            terms = cavity[:, None] + table_of(problem, k, len(belief))
            sent = terms.max(0) if problem.maximum else log_sum(terms, axis=0)
            if sent.max() == -np.inf:
                sent, largest = np.zeros_like(sent), np.inf
            sent = sent - sent.max()
            old = state.messages[index, _message(problem, k)].copy()
            if damping:
                mixed = np.isfinite(sent) & np.isfinite(old)
                sent[mixed] = (1 - damping) * sent[mixed] + damping * old[mixed]
                sent -= sent.max()
            state.messages[index, _message(problem, k)] = sent
            largest = max(largest, _change(sent, old))
    state.residual[index] = largest


def graph_sweep(send, problem, state, rows, step, queue):
    """Sweep some rows once, unit after unit, forwards or backwards."""
    sender = send_odds if hasattr(problem, "odds") else _send
    for index in rows:
        sender(problem, state, (index, 0), step)


def _given(problem, labels, i, n):
    """Yield exponents of the states of a unit with each neighbour: pairs (slot, array)."""
    for k in range(problem.starts[i], problem.starts[i + 1]):
        yield k, table_of(problem, k, n)[:, labels[problem.neighbours[k]]]


def _decode(problem, beliefs, messages, labels):
    for i in range(len(labels)):
        total = beliefs[problem.first_state[i] : problem.first_state[i + 1]].copy()
        for k, exponents in _given(problem, labels, i, len(total)):
            if problem.neighbours[k] < i:
                back = problem.first_entry[problem.reverse[k]]
                message = messages[back : back + len(total)]
                message = problem.probability[problem.edges[k]] * message
                total -= np.where((total > -np.inf) & (message > -np.inf), message, 0)
                total += exponents
        labels[i] = total.argmax()


def _climb(problem, field, labels):
    """Move single units while one gains; return whether no move gains any more."""
    n_units = len(labels)
    n_tried = n_rejected = 0
    while n_rejected < n_units and n_tried < MAX_ROUNDS * n_units:
        i = n_tried % n_units
        total = field[problem.first_state[i] : problem.first_state[i + 1]].copy()
        for _, exponents in _given(problem, labels, i, len(total)):
            total += exponents
        best, n_tried, n_rejected = total.argmax(), n_tried + 1, n_rejected + 1
        if total[best] > -np.inf:
            gain = total[best] - total[labels[i]]
            if gain > GAIN_TOLERANCE * (1 + abs(total[best])):
                labels[i], n_rejected = best, 0
    return n_rejected >= n_units


def decode_graph(problem, state, moves, labels, optimal, objective, queue):
    """Decode assignments from beliefs of max-product, and optionally improve them."""
    for index, states in enumerate(labels):
        field = problem.field[min(index, len(problem.field) - 1)]
        _decode(problem, state.beliefs[index], state.messages[index], states)
        if moves:
            optimal[index] = _climb(problem, field, states)
        objective[index] = field[problem.first_state[:-1] + states].sum()
        for i, n in enumerate(np.diff(problem.first_state)):
            couplings = _given(problem, states, i, n)
            behind = (x[states[i]] for k, x in couplings if problem.neighbours[k] > i)
            objective[index] += sum(behind)


def induced_forest(problem, order):
    """Return which units are in the induced forest that grows in the given order."""
    n_units = len(problem.starts) - 1
    above, taken = list(range(n_units)), np.zeros(n_units, bool)

    def root(i):
        while above[i] != i:
            i = above[i]
        return i

    for i in order:
        neighbours = problem.neighbours[problem.starts[i] : problem.starts[i + 1]]
        roots = [root(j) for j in neighbours if taken[j]]
        if len(set(roots)) == len(roots):
            taken[i] = True
            for r in roots:
                above[r] = i
    return taken


def _rooted(problem, taken):
    """Order units of a forest, parents before children; return them and slots to parents."""
    parent, sequence, seen = np.full(len(taken), -1), [], ~taken
    for first in np.flatnonzero(taken):
        tree = [] if seen[first] else [first]
        seen[first] = True
        for i in tree:
            slots = range(problem.starts[i], problem.starts[i + 1])
            for k in [k for k in slots if not seen[problem.neighbours[k]]]:
                j = problem.neighbours[k]
                seen[j], parent[j] = True, problem.reverse[k]
                tree.append(j)
        sequence += tree
    return sequence, parent


def _exponent(problem, field, states):
    total = field[problem.first_state[:-1] + states].sum()
    for i, n in enumerate(np.diff(problem.first_state)):
        for k in range(problem.starts[i], problem.starts[i + 1]):
            j = problem.neighbours[k]
            total += table_of(problem, k, n)[states[i], states[j]] if j > i else 0.0
    return total


def _maximise(problem, field, states, taken):
    """Move the units of a forest to their most probable states given all others."""
    sequence, parent = _rooted(problem, taken)
    sizes, starts = np.diff(problem.first_state), problem.starts
    totals = np.split(field, problem.first_state[1:-1])
    for i in sequence:
        for k in range(starts[i], starts[i + 1]):
            j = problem.neighbours[k]
            if not taken[j]:
                totals[i] = totals[i] + table_of(problem, k, sizes[i])[:, states[j]]
    for i in sequence[::-1]:
        if parent[i] >= 0:
            given, above = totals[i][:, None], problem.neighbours[parent[i]]
            totals[above] = totals[above] + (given + table_of(problem, parent[i], sizes[i])).max(0)
    for i in sequence:
        total = totals[i]
        if parent[i] >= 0:
            above = states[problem.neighbours[parent[i]]]
            total = total + table_of(problem, parent[i], sizes[i])[:, above]
        states[i] = total.argmax()


def forest_move(problem, order, noise, labels, objective, memory, queue):
    """Move the units of random forests, one after another, to their most probable states."""
    for index, states in enumerate(labels):
        field, waiting = problem.field[min(index, len(problem.field) - 1)], order
        for _ in range(MAX_FORESTS):
            taken = induced_forest(problem, waiting)
            _maximise(problem, field + noise[index], states, taken)
            waiting = [i for i in waiting if not taken[i]]
            if not waiting:
                break
        objective[index] = _exponent(problem, field, states)
