"""Exact sums of rows against enumeration, and the verdicts that follow from them."""

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.inference.checks import judge
from fastmf.inference.checks.judge import Reason, exact_rows
from fastmf.inference.fixed_point import FixedPoint, Question, with_check
from fastmf.kernels.mean_field.units import Tilt
from fastmf.priors.concatenated import concatenate

SOLVERS = mf.tap, mf.relaxed_bp, mf.adaptive_tap, mf.belief_propagation


def symmetric(rng, n, scale):
    upper = np.triu(rng.normal(size=(n, n)) * scale, 1)
    return upper + upper.T


def ring(n, coupling, units=mf.Ising):
    couplings = coupling * (np.eye(n, k=1) + np.eye(n, k=n - 1))
    return mf.BoltzmannMachine(couplings + couplings.T, units(np.full(n, 0.2)))


def rows_by_hand(states, log_weights, tilt, values):
    """Log-partition and means of each row, by a list of all states."""
    x = np.array(states, float)
    for k in range(len(values)):
        field, precision, clamped = (part[min(k, len(part) - 1)] for part in tilt)
        logs = log_weights + x @ field - x**2 @ precision / 2
        logs = logs[(x == values[k])[:, clamped].all(1)]
        kept = x[(x == values[k])[:, clamped].all(1)]
        total = np.log(np.exp(logs).sum())
        yield total, np.exp(logs - total) @ kept


def assert_rows(model, states, log_weights, tilt, values):
    found = exact_rows(model, tilt, values)
    rows = list(rows_by_hand(states, log_weights, tilt, values))
    assert len(rows) == len(found.log_partition)
    for k, (log_partition, mean) in enumerate(rows):
        assert np.isclose(found.log_partition[k], log_partition)
        assert np.allclose(found.mean[k], mean)


def a_tilt(rng, n_rows, n):
    field, precision = rng.normal(size=(n_rows, n)), rng.random((1, n))
    return Tilt(field, precision, rng.random((n_rows, n)) < 0.3)


@pytest.mark.parametrize("limit", ["MAX_NUMBERS", "MAX_ENTRIES"])
@pytest.mark.parametrize("sparse", [False, True])
def test_fully_visible_machines(monkeypatch, limit, sparse):
    monkeypatch.setattr(judge, limit, 0)
    rng = np.random.default_rng(0)
    couplings, scores = symmetric(rng, 5, 0.5), np.array([0.0, 1, 2])
    log_weights = rng.normal(size=(5, 3))
    kind = csr_array if sparse else np.array
    model = mf.BoltzmannMachine(kind(couplings), mf.Ordinal(log_weights))
    states = list(itertools.product(scores, repeat=5))
    logs = [
        x @ couplings @ x / 2 + log_weights[np.arange(5), x.astype(int)].sum()
        for x in map(np.array, states)
    ]
    values = rng.choice(scores, size=(4, 5))
    assert_rows(model, states, logs, a_tilt(rng, 4, 5), values)


def test_layers_with_groups_and_clamps_on_both_sides():
    rng = np.random.default_rng(1)
    fields, weights = rng.normal(size=(2, 3)), rng.normal(size=(7, 3)) / 2
    visible = concatenate([mf.Categorical(fields), mf.Bernoulli(np.array([0.3]))])
    model = mf.RBM(weights, visible, mf.Ising(np.array([0.1, -0.2, 0.3])))
    states, logs = [], []
    for a, b, x in itertools.product(range(3), range(3), (0, 1)):
        for h in itertools.product((-1.0, 1.0), repeat=3):
            v = np.concatenate([np.eye(3)[a], np.eye(3)[b], [x]])
            states.append(np.concatenate([v, h]))
            own = fields[0, a] + fields[1, b] + 0.3 * x + np.dot(h, [0.1, -0.2, 0.3])
            logs.append(own + v @ weights @ h)
    precision = rng.random((1, 10)) * (np.arange(10) >= 6)
    tilt = Tilt(rng.normal(size=(3, 10)), precision, np.zeros((3, 10), bool))
    tilt.clamped[1, [0, 1, 2, 6]], tilt.clamped[2, 7] = True, True
    values = np.array([states[0], states[40], states[77]])
    assert_rows(model, states, np.array(logs), tilt, values)
    tilt = tilt._make(np.tile(part, (2000 if len(part) > 1 else 1, 1)) for part in tilt)
    sums = exact_rows(model, tilt, np.tile(values, (2000, 1)))
    expected = exact_rows(model, tilt._make(part[:3] for part in tilt), values)
    np.testing.assert_allclose(sums.mean, np.tile(expected.mean, (2000, 1)), atol=1e-12)


def test_gaussian_units_beside_discrete_ones():
    rng = np.random.default_rng(2)
    model = mf.RBM(
        rng.normal(size=(6, 4)) / 2,
        mf.Gaussian(rng.normal(size=6), np.ones(6)),
        mf.Ising(rng.normal(size=4)),
    )
    none = Tilt(np.zeros((1, 10)), np.zeros((1, 10)), np.zeros((1, 10), bool))
    found, exact = exact_rows(model, none, np.zeros((1, 10))), mf.exact(model)
    assert np.isclose(found.log_partition[0], exact.log_partition)
    assert np.allclose(found.mean[0], np.concatenate(exact.mean))
    assert np.allclose(found.width[0, :6], 4 * np.sqrt(exact.var[0]))
    assert np.allclose(found.width[0, 6:], 2)
    mixed = concatenate([model.visible, mf.Bernoulli(np.zeros(2))])
    model = mf.RBM(rng.normal(size=(8, 4)), mixed, model.hidden)
    wider = Tilt(np.zeros((1, 12)), np.zeros((1, 12)), np.zeros((1, 12), bool))
    found = exact_rows(model, wider, np.zeros((1, 12)))
    assert np.allclose(found.width[0, 6:], [1, 1, 2, 2, 2, 2])


def test_rows_without_a_state_do_not_spoil_others():
    weights = np.zeros((3, 3))
    weights[0, 2] = -np.inf
    model = mf.RBM(np.ones((3, 2)) / 4, mf.Ordinal(weights), mf.Bernoulli(np.zeros(2)))
    tilt = Tilt(np.zeros((1, 5)), np.zeros((1, 5)), np.arange(5)[None] == 0)
    values = np.array([[2.0, 0, 0, 0, 0], [1.0, 0, 0, 0, 0]])
    found = exact_rows(model, tilt, values)
    assert np.isnan(found.log_partition[0]) and np.isfinite(found.mean).all()
    states = np.array(list(itertools.product(*[range(3)] * 3, *[range(2)] * 2)))
    logs = states[:, :3].sum(1) * states[:, 3:].sum(1) / 4
    log_partition, mean = next(rows_by_hand(states, logs, tilt, values[1:]))
    assert np.isclose(found.log_partition[1], log_partition)
    assert np.allclose(found.mean[1], mean)


def test_no_sums_where_they_take_long():
    none = Tilt(np.zeros((1, 60)), np.zeros((1, 60)), np.zeros((1, 60), bool))
    dense = mf.BoltzmannMachine(np.ones((60, 60)) - np.eye(60), mf.Ising(np.zeros(60)))
    layers = mf.RBM(np.ones((30, 30)), mf.Ising(np.zeros(30)), mf.Ising(np.zeros(30)))
    assert exact_rows(dense, none, np.zeros((1, 60))) is None
    assert exact_rows(layers, none, np.zeros((1, 60))) is None
    long = ring(60, 0.5)
    assert exact_rows(long, none, np.zeros((1, 60))) is not None
    many = np.zeros((1000, 60))
    assert exact_rows(long, none._replace(field=many), many) is None
    # Rows with the same tilts have the same sums.
    assert exact_rows(long, none, many).mean.shape == (1000, 60)


def verdict(found, exact, width):
    """Whether a row is as near to exact sums as one that is reliable."""
    parts = [x if isinstance(x, tuple) else (x,) for x in (found.mean, exact.mean)]
    errors = abs(np.concatenate(parts[0]) - np.concatenate(parts[1])) / width
    right = errors.mean() <= 0.05 and errors.max() <= 0.2
    return right and abs(found.log_partition - exact.log_partition) <= 1


def machines():
    """Weak to strong machines of units of all kinds, and the width of their values."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        scale = 10 ** rng.uniform(-1, 0.3)
        yield mf.BoltzmannMachine(symmetric(rng, 7, scale), mf.Ising(rng.normal(size=7) / 3)), 2
        couplings = csr_array(symmetric(rng, 7, 2 * scale))
        yield mf.BoltzmannMachine(couplings, mf.Bernoulli(rng.normal(size=7))), 1
        ordinal = mf.Ordinal(rng.normal(size=(4, 4)))
        yield mf.BoltzmannMachine(symmetric(rng, 4, scale / 2), ordinal), 3
        potts = np.kron(symmetric(rng, 4, 2 * scale), np.eye(3))
        yield mf.BoltzmannMachine(potts, mf.Categorical(rng.normal(size=(4, 3)))), 1
        sizes = 5, 4, 3
        layers = [mf.Ising(rng.normal(size=n) / 3) for n in sizes]
        weights = [rng.normal(size=pair) * scale for pair in itertools.pairwise(sizes)]
        yield mf.DBM(weights, layers), 2
        yield mf.RBM(weights[0].astype(np.float32), *layers[:2]), 2
        groups = mf.Categorical(rng.normal(size=(2, 3)))
        yield mf.RBM(rng.normal(size=(6, 4)) * scale, groups, mf.Bernoulli(np.zeros(4))), 1


def test_converged_rows_are_reliable_if_and_only_if_they_are_right():
    n_wrong = n_right = 0
    for model, width in machines():
        exact = mf.exact(model)
        for solve in SOLVERS:
            try:
                found = solve(model)
            except (TypeError, ValueError):  # units that the solver does not take
                continue
            if found.converged:
                right = verdict(found, exact, width)
                assert found.reliable == right, (solve.__name__, str(model), found.message)
                n_wrong, n_right = n_wrong + (not right), n_right + right
    assert n_wrong > 10 and n_right > 25


def test_mixtures_of_starts_and_rows_of_fields():
    two_phases = mf.BoltzmannMachine(0.5 * (1 - np.eye(10)), mf.Ising(np.full(10, 0.05)))
    field = np.zeros((3, 10))
    field[1], field[2] = -0.1, 3.0
    found = mf.mixture(mf.tap, two_phases, 10, field=field)
    alone = mf.tap(two_phases, field=field)
    for k in range(3):
        exact = mf.exact(two_phases, field=field[k])
        for rows in (found, alone):
            errors = abs(rows.mean[k] - exact.mean).max() / 2
            right = abs(rows.log_partition[k] - exact.log_partition) <= 1 and errors <= 0.05
            assert rows.reliable[k] == right
    assert found.reliable.all() and not alone.reliable.all()


def test_starts_of_rows_may_lead_to_one_of_several_phases():
    two_phases = mf.BoltzmannMachine(1 - np.eye(10), mf.Ising(np.full(10, 0.01)))
    starts = np.ones((2, 10)) * [[1], [-1]]
    assert mf.tap(two_phases, starts).reliable.all()
    assert not mf.tap(two_phases, starts[0] * 0).reliable
    # Far from the only phase that there is, with all the weight.
    for solve in (mf.relaxed_bp, mf.adaptive_tap):
        found = solve(ring(5, 1.5), np.ones(5))
        assert found.converged and not found.reliable


def test_means_of_one_phase_are_flagged_though_its_log_partition_is_close():
    weights, field = np.full((8, 8), 0.6), np.zeros(8)
    field[:] = 0.05
    model = mf.RBM(weights, mf.Ising(field), mf.Ising(-2 * field))
    exact = mf.exact(model)
    for found in (mf.tap(model), mf.relaxed_bp(model), mf.adaptive_tap(model)):
        far = abs(np.concatenate(found.mean) - np.concatenate(exact.mean)).max() > 0.4
        assert found.converged and far and not found.reliable


def answer(mean, log_partition, question):
    """A converged row that some solver might return."""
    zeros = np.zeros_like(mean)
    record = log_partition, np.True_, 1, 0.0, np.str_("converged")
    return with_check(FixedPoint(mean, zeros, zeros, zeros, *record), question)


def test_a_solution_of_half_the_weight_may_have_other_means_up_to_half_their_range():
    model = mf.BoltzmannMachine(np.zeros((3, 3)), mf.Ising(np.full(3, 3.0)))
    exact, none = mf.exact(model), Tilt(*np.zeros((2, 1, 3)), np.zeros((1, 3), bool))

    def reason(shift, weight, whole):
        value = exact.log_partition + np.log(weight)
        return answer(exact.mean - shift, value, Question(model, none, whole)).message

    # Other methods say that this is no solution, but not exact sums.
    assert Reason.EXACT not in reason(0.9, 0.5, False)
    assert Reason.EXACT in reason(1.9, 0.5, False)
    # From three quarters of the weight on, and without a start of its own, it is the machine.
    assert Reason.EXACT in reason(0.9, 0.5, True)
    assert Reason.EXACT in reason(0.9, 0.8, False)


def test_clamped_units_that_fix_all_others():
    model = ring(6, 3.0)
    clamp = np.array([1, np.nan, 1, np.nan, -1, np.nan])
    found, exact = mf.tap(model, clamp=clamp), mf.exact(model, clamp=clamp)
    assert found.reliable == verdict(found, exact, 2) and found.reliable
    whole = mf.tap(model, clamp=np.ones(6))
    assert whole.reliable and whole.message == "converged"
