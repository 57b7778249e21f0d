"""Which beliefs on graphs are flagged."""

import numpy as np
from graph_models import Graph, forests, grid_couplings

import fastmf as mf


def test_a_fixed_point_of_small_weight_is_flagged():
    n = 10
    model = mf.BoltzmannMachine(np.ones((n, n)) - np.eye(n), mf.Ising(np.full(n, 0.05)))
    up = mf.belief_propagation(model, init=np.full(n * (n - 1), 2.0))
    down = mf.belief_propagation(model, init=np.full(n * (n - 1), -2.0))
    assert up.converged and down.converged and up.log_partition > down.log_partition + 0.5
    assert not down.reliable and "other fixed points weigh more" in down.message
    # The other state has a third of the weight.
    assert not up.reliable and "share of the weight" in up.message
    strong = mf.belief_propagation(model, field=np.full(n, 0.5))
    assert strong.reliable and strong.message == "converged"


def test_messages_that_need_damping_are_flagged():
    rng, n = np.random.default_rng(0), 12
    upper = np.triu(rng.choice([-3.0, 3.0], (n, n)), 1)
    model = mf.BoltzmannMachine(upper + upper.T, mf.Ising(rng.normal(size=n) / 10))
    found = mf.belief_propagation(model, max_iter=5000)
    assert not found.reliable
    if found.converged:
        assert "reliable" in found.message


def test_forests_and_weak_couplings_are_not_flagged():
    for _, edges, n in forests():
        for forbidden in (0, 0.25):
            found = mf.belief_propagation(Graph(edges, n, 10.0, forbidden).machine())
            assert found.reliable and found.unique
    for seed in range(5):
        ring = Graph([(0, 1), (1, 2), (2, 3), (0, 3)], 5, 0.5, 0.1, seed)
        assert mf.belief_propagation(ring.machine()).reliable


def test_flagged_rows_are_the_wrong_ones():
    """Most random graphs that are far off are flagged, and few of the others."""
    wrong, right = [], []
    edges = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 0), (1, 3)]
    for seed in range(60):
        graph = Graph(edges, 4, (1.0, 4.0, 8.0)[seed % 3], seed=seed)
        found = mf.belief_propagation(graph.machine())
        error = abs(found.mean - graph.solve()[1]).max()
        if found.converged:
            (wrong if error > 0.2 else right).append(not found.reliable)
    assert len(wrong) > 5 and np.mean(wrong) > 0.5
    assert len(right) > 20 and np.mean(right) < 0.2


def test_silent_errors_are_small_where_sums_are_not_exact(monkeypatch):
    monkeypatch.setattr("fastmf.inference.bp.graphs.reliability.MAX_ENTRIES", 0)
    couplings, silent, n_flagged = grid_couplings(4).toarray(), [], 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        own = np.triu(couplings * rng.normal(size=couplings.shape)) * 10 ** rng.uniform(-0.5, 0.6)
        model = mf.BoltzmannMachine(own + own.T, mf.Ising(rng.normal(size=16) / 2))
        found = mf.belief_propagation(model)
        if found.reliable:
            silent.append(abs(found.mean - mf.exact(model).mean).mean() / 2)
        n_flagged += found.converged and not found.reliable
    assert len(silent) > 10 and max(silent) < 0.15 and n_flagged >= 3


def test_loops_and_other_starts_are_reasons(monkeypatch):
    monkeypatch.setattr("fastmf.inference.bp.graphs.reliability.MAX_ENTRIES", 0)
    lattice = mf.BoltzmannMachine(grid_couplings(30, 0.3, torus=True), mf.Ising(np.zeros(900)))
    found = mf.belief_propagation(lattice)
    assert not found.reliable and "loop series" in found.message
    two = Graph([(0, 1), (1, 2), (0, 2)], 3, 0.3).machine()
    assert mf.belief_propagation(two).reliable
    monkeypatch.setattr(
        "fastmf.inference.bp.graphs.reliability._reasons", lambda *_: ("", "", None)
    )
    phases = mf.BoltzmannMachine((np.ones((10, 10)) - np.eye(10)) / 2, mf.Ising(np.full(10, 0.02)))
    found = mf.belief_propagation(phases)
    assert not found.reliable and "from 20 starts" in found.message


def frustrated(seed):
    """A strong sparse machine of spins of random signs."""
    rng, n = np.random.default_rng(seed), 16
    upper = np.triu(rng.normal(size=(n, n)) * (rng.random((n, n)) < 4 / n), 1)
    upper *= 10 ** rng.uniform(-0.3, 0.3)
    return mf.BoltzmannMachine(upper + upper.T, mf.Ising(rng.normal(size=n) / 10))


def test_two_orders_of_the_loop_series_find_frustrated_cycles(monkeypatch):
    monkeypatch.setattr("fastmf.inference.bp.graphs.reliability.MAX_ENTRIES", 0)
    counts, reasons = np.zeros((2, 2), int), []
    for seed in range(40, 140):
        model = frustrated(seed)
        found = mf.belief_propagation(model)
        if not found.converged:
            continue
        exact = mf.exact(model)
        errors = abs(found.mean - exact.mean) / 2
        nats = abs(found.log_partition - exact.log_partition)
        wrong = nats > 1 or errors.mean() > 0.05 or errors.max() > 0.2
        counts[int(wrong), int(found.reliable)] += 1
        reasons.append(found.message)
    # Without these orders 7 of the wrong ones are silent.
    (flagged, right), (found, silent) = counts
    assert right > flagged and silent < 5 and found > 20
    for why in ("spin glass", "two orders of the loop series"):
        assert any(why in text for text in reasons)


def test_graphs_too_large_for_all_checks_say_none(monkeypatch):
    for name, value in (("reliability.MAX_ENTRIES", 0), ("reliability.MAX_VALUES", 0)):
        monkeypatch.setattr(f"fastmf.inference.bp.graphs.{name}", value)
    monkeypatch.setattr("fastmf.inference.bp.graphs.reliability.MAX_EDGES", 0)
    monkeypatch.setattr("fastmf.inference.bp.loop_series.MAX_DENSE", 0)
    monkeypatch.setattr("fastmf.inference.bp.loop_series.MAX_ROWS", 0)
    for coupling, right in ((0.1, True), (0.7, None)):
        machine = mf.BoltzmannMachine(grid_couplings(4, coupling), mf.Ising(np.ones(16)))
        found = mf.belief_propagation(machine)
        assert found.loop_correction is None and found.unique == right
        assert found.reliable == right and found.message == "converged"


def test_naive_solutions_elsewhere_are_no_reason_where_starts_and_loops_agree(monkeypatch):
    """Naive mean field finds phases in a ring of spins, which has none and of which BP is right."""
    monkeypatch.setattr("fastmf.inference.bp.graphs.reliability.MAX_ENTRIES", 0)
    couplings = np.roll(np.eye(12), 1, 0) + np.roll(np.eye(12), -1, 0)
    model = mf.BoltzmannMachine(couplings, mf.Ising(np.full(12, 0.015)))
    found, exact = mf.belief_propagation(model), mf.exact(model)
    assert abs(found.log_partition - exact.log_partition) < 0.05
    assert abs(found.mean - exact.mean).max() < 0.02
    naive = mf.tap(model, -np.ones(12), order=1)
    assert naive.mean.max() < -0.9 and found.log_partition - naive.log_partition < 1.5
    assert found.reliable and found.message == "converged"
    # Of larger loop corrections there is a doubt.
    monkeypatch.setattr("fastmf.inference.bp.graphs.reliability.SMALL_LOOPS", 0.0)
    found = mf.belief_propagation(model)
    assert not found.reliable and "share of the weight" in found.message


def test_a_state_of_larger_weight_than_the_sum_is_a_reason():
    """No log-partition is below the exponent of a state; here random starts find none above."""
    rng = np.random.default_rng(1)
    couplings = np.triu(3 * rng.normal(size=(60, 60)), 1)
    model = mf.BoltzmannMachine(couplings + couplings.T, mf.Ising(rng.normal(size=60)))
    found = mf.belief_propagation(model, n_starts=20, rng=0, max_iter=200)
    state = mf.belief_propagation(model, algorithm="max").assignment
    assert found.log_partition >= -model.energy(state) or not found.reliable
