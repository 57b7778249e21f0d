"""Which answers are reliable where no exact sums are made, against enumeration."""

import pickle
from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array

import fastmf as mf
from fastmf.inference.checks.judge import Answer, Reason, agree

SOLVERS = {
    "tap": mf.tap,
    "naive mean field": partial(mf.tap, order=1),
    "relaxed_bp": mf.relaxed_bp,
    "adaptive_tap": mf.adaptive_tap,
    "belief_propagation": mf.belief_propagation,
}


@pytest.fixture
def no_exact_sums(monkeypatch):
    """Small machines are judged as large ones are, which exact sums would decide first."""
    for name in ("MAX_NUMBERS", "MAX_ENTRIES"):
        monkeypatch.setattr(f"fastmf.inference.checks.judge.{name}", 0)


def symmetric(upper):
    upper = np.triu(upper, 1)
    return upper + upper.T


def glass(n, temperature, seed=0, field=0.0):
    rng = np.random.default_rng(seed)
    couplings = symmetric(rng.normal(size=(n, n)) / np.sqrt(n) / temperature)
    return mf.BoltzmannMachine(couplings, mf.Ising(field * rng.normal(size=n)))


def curie_weiss(n, strength, field=0.01):
    couplings = strength / n * (1 - np.eye(n))
    return mf.BoltzmannMachine(couplings, mf.Ising(np.full(n, field)))


def joined(x):
    return np.concatenate(x) if isinstance(x, tuple) else x


def error(model, answer, width):
    """Largest ratio of an error to the error from which on an answer is wrong."""
    exact = mf.exact(model)
    off = abs(joined(answer.mean) - joined(exact.mean)) / width
    nats = abs(answer.log_partition - exact.log_partition)
    return max(nats, off.mean() / 0.05, off.max() / 0.2)


def machines():
    """Weak and strong machines of two values, of groups and of more values; their ranges."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        scale = 10 ** rng.uniform(-0.7, 0.4)
        yield glass(10, 1 / scale, seed, 0.3), 2.0
        layers = [mf.Bernoulli(rng.normal(size=n)) for n in (9, 6)]
        yield mf.RBM(2 * scale * rng.normal(size=(9, 6)) / 3, *layers), 1.0
        sparse = symmetric(rng.normal(size=(11, 11)) * (rng.random((11, 11)) < 0.3))
        yield mf.BoltzmannMachine(csr_array(2 * scale * sparse), mf.Ising(np.zeros(11))), 2.0
        tables = symmetric(scale * rng.normal(size=(12, 12)))
        tables[np.kron(np.eye(4), np.ones((3, 3))) > 0] = 0
        yield mf.BoltzmannMachine(tables, mf.Categorical(rng.normal(size=(4, 3)))), 1.0
        scores = symmetric(scale * rng.normal(size=(5, 5))) / 3
        yield mf.BoltzmannMachine(scores, mf.Binomial(-scores.sum(1), 2)), 2.0


@pytest.mark.usefixtures("no_exact_sums")
@pytest.mark.parametrize("solver", SOLVERS)
def test_wrong_answers_are_flagged_and_right_ones_are_not(solver):
    wrong = silent = right = false = 0
    for model, width in machines():
        try:
            answer = SOLVERS[solver](model)
        except (TypeError, ValueError):  # units that the solver does not take
            continue
        if not answer.converged:
            continue
        size = error(model, answer, width)
        wrong, silent = wrong + (size > 1), silent + (size > 1 and bool(answer.reliable))
        right, false = right + (size < 0.5), false + (size < 0.5 and answer.reliable == np.False_)
    assert wrong >= 4 and silent <= wrong / 8
    assert right >= 10 and false <= right / 20


@pytest.mark.parametrize("solver", SOLVERS)
def test_one_of_two_phases_is_no_answer_for_the_machine(solver):
    """Sum over magnetisations: 30 spins in a weak field, of which the other phase has a share."""
    model = curie_weiss(30, 2.0)
    answer = SOLVERS[solver](model)
    assert answer.converged and abs(answer.mean[0]) > 0.6
    assert not answer.reliable and Reason.HELD_UNITS in answer.message


@pytest.mark.usefixtures("no_exact_sums")
@pytest.mark.parametrize("solve", [mf.tap, mf.relaxed_bp, mf.adaptive_tap])
def test_a_start_chooses_one_of_two_phases(solve):
    model = curie_weiss(10, 3.0)
    assert not solve(model).reliable
    up = solve(model, np.ones(10))
    assert up.converged and up.mean.min() > 0.9
    assert up.reliable and up.message == "converged"
    rows = solve(model, np.ones((2, 10)), field=np.zeros((2, 10)))
    assert rows.reliable.tolist() == [True, True]


@pytest.mark.usefixtures("no_exact_sums")
def test_mixtures_of_phases_are_reliable():
    model = curie_weiss(12, 4.0)
    for answer in (mf.mixture(mf.tap, model, 10), mf.mixture(mf.belief_propagation, model, 10)):
        assert error(model, answer, 2.0) < 0.5 and answer.reliable


def test_spin_glass_is_flagged_below_its_critical_temperature_only():
    for temperature, right in ((2.0, True), (0.4, False)):
        for solve in (mf.tap, mf.relaxed_bp):
            answer = solve(glass(60, temperature))
            assert answer.converged and abs(answer.mean).max() < 1e-6
            assert answer.reliable == right


@pytest.mark.usefixtures("no_exact_sums")
def test_reasons_are_named():
    paramagnet = mf.tap(curie_weiss(10, 4.0, 0.0))
    assert paramagnet.converged and Reason.HELD_UNITS in paramagnet.message
    frustrated = mf.tap(glass(16, 0.2))
    assert frustrated.converged and not frustrated.reliable
    assert any(reason in frustrated.message for reason in Reason)
    groups = np.kron(3 * (1 - np.eye(4)), np.eye(3))
    potts = mf.BoltzmannMachine(groups, mf.Categorical(np.zeros((4, 3))))
    assert Reason.HELD_UNITS in mf.tap(potts).message
    # The same solution, unstable, from a start of its own.
    started = mf.tap(potts, (np.full(12, 1 / 3), np.full(12, 2 / 9)))
    assert started.converged and Reason.MESSAGES in started.message


@pytest.mark.usefixtures("no_exact_sums")
def test_clamped_rows_are_judged_with_their_values():
    model, clamp = curie_weiss(10, 10.0), np.where(np.arange(10) < 9, 1.0, np.nan)
    assert not mf.tap(model).reliable
    assert mf.tap(model, clamp=clamp).reliable
    assert mf.tap(model, np.ones(10), clamp=clamp).reliable
    assert mf.belief_propagation(model, clamp=clamp).reliable


@pytest.mark.usefixtures("no_exact_sums")
def test_rows_of_fields_are_judged_each_alone():
    model = curie_weiss(10, 10.0)
    field = np.array([0.0, 3.0])[:, None] * np.ones(10)
    for solve in SOLVERS.values():
        assert solve(model, field=field).reliable.tolist() == [False, True]


@pytest.mark.usefixtures("no_exact_sums")
def test_units_that_are_not_discrete_are_compared_with_adaptive_tap():
    weights = np.random.default_rng(0).normal(size=(9, 3))
    bounded = mf.TruncatedGaussian(np.zeros(3), np.full(3, 4.0), -3.0, 3.0)
    for strength, right in ((0.5, True), (1.0, False)):
        model = mf.RBM(strength * weights, mf.Ising(np.full(9, 0.1)), bounded)
        answer = mf.tap(model)
        exact = mf.exact(model)
        assert answer.converged
        assert (abs(answer.mean[0] - exact.mean[0]).max() < 0.1) == right == answer.reliable


@pytest.mark.usefixtures("no_exact_sums")
def test_answers_on_graphs_whose_held_units_do_not_settle_are_compared_with_other_starts():
    rng, n = np.random.default_rng(23), 26
    couplings = np.triu(rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.2), 1)
    model = mf.BoltzmannMachine(couplings + couplings.T, mf.Ising(0.3 * rng.normal(size=n)))
    answer = mf.belief_propagation(model)
    assert answer.converged and answer.reliable in (True, False)


def test_large_machines_are_not_judged():
    weights = np.random.default_rng(0).normal(size=(784, 500)) / 40
    model = mf.RBM(weights.astype(np.float32), mf.Bernoulli(np.zeros(784)), mf.Ising(np.zeros(500)))
    assert mf.tap(model, max_iter=20, tol=1e-2).reliable is None
    X = (np.random.default_rng(1).random((3, 784)) < 0.5).astype(np.float32)
    answer = mf.tap(model, X, tol=1e-2)
    assert answer.reliable is None and answer.converged.all()
    assert (answer.message == "converged").all()


def test_what_was_not_asked_for_or_did_not_converge():
    model = glass(20, 2.0)
    assert mf.tap(model, log_partition=False).reliable is None
    short = mf.tap(glass(50, 1.5), np.ones(50), max_iter=1)
    assert not short.converged and short.reliable == np.False_
    assert short.message.startswith("not converged") and "reliable" not in short.message


def test_pickles_hold_verdicts_that_were_read():
    answer = mf.tap(curie_weiss(12, 4.0))
    assert pickle.loads(pickle.dumps(answer)).reliable is None
    assert not answer.reliable
    again = pickle.loads(pickle.dumps(answer))
    assert again.reliable == answer.reliable and again.message == answer.message


def test_solutions_keep_verdicts_and_messages():
    """Below the critical temperature TAP's paramagnet is wrong, and adaptive TAP has states."""
    model = glass(16, 0.25)
    tap = mf.evaluation.solutions(model, 20, rng=0)
    assert tap.reliable.shape == tap.message.shape == (len(tap.free_energy),)
    exact = mf.exact(model).log_partition
    assert not (tap.reliable & (tap.log_partition > exact + 1)).any()
    states = mf.evaluation.solutions(model, 20, solver="adaptive_tap", rng=0)
    assert states.converged.any() and states.log_partition[states.converged].max() < exact + 1
    with pytest.raises(ValueError, match="solver"):
        mf.evaluation.solutions(model, 3, solver="belief_propagation")


@pytest.mark.parametrize("scale", [1e60, 1e160])
@pytest.mark.parametrize("sparse", [False, True])
def test_huge_couplings_do_not_overflow(scale, sparse):
    couplings = scale * glass(30, 1.0).couplings
    model = mf.BoltzmannMachine(
        csr_array(couplings) if sparse else couplings, mf.Ising(np.zeros(30))
    )
    assert mf.tap(model).reliable in (None, False)


def test_agreement():
    ranges, answer = np.full(4, 2.0), Answer(3.0, np.zeros(4))
    for nats, means, same in (
        (1.0, np.full(4, 0.1), True), (1.1, np.zeros(4), False), (0.0, np.full(4, 0.11), False),
        (0.0, np.array([0.39, 0, 0, 0]), True), (0.0, np.array([0.41, 0, 0, 0]), False),
        (np.nan, np.zeros(4), False),
    ):  # fmt: skip
        assert agree(answer, Answer(3 + nats, means), ranges) == same


# --- checks of beliefs: fixed points of small weight are flagged, and uniqueness is proved --------


def random_machine(strength, seed=0, n=10, units=mf.Ising):
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(n, n - 1)) * strength
    return mf.RBM(weights, units(rng.normal(size=n)), units(rng.normal(size=n - 1)))


def test_fixed_point_of_small_weight_is_flagged():
    model = mf.RBM(np.ones((8, 7)), mf.Ising(np.full(8, 0.5)), mf.Ising(np.zeros(7)))
    down = np.full((8, 7), -4.0)
    exact = mf.exact(model).log_partition
    wrong, right = mf.belief_propagation(model, init=down), mf.belief_propagation(model)
    assert wrong.converged and wrong.log_partition < exact - 5
    assert wrong.reliable == np.False_ and Reason.EXACT in wrong.message
    assert abs(right.log_partition - exact) < 0.1
    assert right.reliable and right.message == "converged"


def test_uniqueness_is_proved_where_couplings_are_weak():
    assert mf.belief_propagation(random_machine(0.05)).unique is True
    strong = mf.belief_propagation(random_machine(2.0))
    assert strong.unique is None
    weak = mf.belief_propagation(random_machine(0.05))
    assert weak.unique and weak.spectral_radius < 1
    tree = mf.RBM(np.full((1, 5), 3.0), mf.Ising(np.zeros(1)), mf.Ising(np.zeros(5)))
    assert mf.belief_propagation(tree).unique


def test_results_without_checks_say_none():
    model = random_machine(0.1)
    decoded = mf.most_probable(model, search=False)
    assert decoded.reliable is None and decoded.unique is None
    found = pickle.loads(pickle.dumps(mf.belief_propagation(model)))
    assert found.reliable is None and found.unique is None
