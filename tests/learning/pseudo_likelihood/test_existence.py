"""Whether the maximum exists, beside one dense linear programme of all margins."""

import warnings

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning

import fastmf as mf
from fastmf.learning.pseudo_likelihood import existence
from fastmf.learning.pseudo_likelihood.resampling import with_replacement

SIZES = [3, 2, 4]


def separated(labels, sizes, fields, scores, edges=None, free=(True, True), shared=True):
    """Items with margins that rise along a direction along which none falls.

    Items have tables of fields and scores, and the log-odds are those of the definition.
    """
    d, columns, rows, item = len(sizes), {}, [], []
    edges = [(i, j) for i in range(d) for j in range(i + 1, d)] if edges is None else edges
    for x in np.unique(labels, axis=0):
        for i in range(d):
            for b in range(sizes[i]):
                if x[i] < 0 or b == x[i]:
                    continue
                row = {}
                for k in range(fields[i].shape[1]):
                    if free[0]:
                        row["field", i, k] = fields[i][x[i], k] - fields[i][b, k]
                for j in range(d):
                    if (min(i, j), max(i, j)) not in edges or x[j] < 0 or not free[1]:
                        continue
                    for k in range(scores[i].shape[1]):
                        for l in range(scores[j].shape[1]):
                            key = (i, k, j, l) if i < j or not shared else (j, l, i, k)
                            change = (scores[i][x[i], k] - scores[i][b, k]) * scores[j][x[j], l]
                            row[key] = row.get(key, 0) + change
                rows.append(row)
                item.append(i)
    for row in rows:
        for key in row:
            columns.setdefault(key, len(columns))
    M = np.zeros((len(rows), len(columns)))
    for k, row in enumerate(rows):
        for key, value in row.items():
            M[k, columns[key]] = value
    m, p = M.shape
    if not p:
        return set()
    found = linprog(
        np.r_[np.zeros(p), -np.ones(m)], np.hstack([-M, np.eye(m)]), np.zeros(m),
        bounds=[(None, None)] * p + [(0, 1)] * m,
    )  # fmt: skip
    return set(np.array(item)[found.x[p:] > 0.5].tolist())


def fitted(machine, X, **data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return machine.fit(X, **data)


def check(machine, expected, seen):
    """The verdict, and that all items that are named are separated."""
    assert machine.existence_.exists is (not expected)
    assert set(machine.existence_.units) <= expected
    assert machine.converged_ or machine.existence_.exists is False
    seen.append(machine.existence_.exists)


def random_rows(rng, sizes, n):
    """Rows of items that go together, some of them rare, copied or constant."""
    S = rng.normal(size=(n, 1)) * rng.choice([0.5, 2.0])
    noise = S + rng.normal(size=(n, len(sizes)))
    X = np.column_stack([
        np.digitize(x, np.quantile(noise, np.linspace(0, 1, q + 1)[1:-1]) + rng.choice([0, 0.8]))
        for x, q in zip(noise.T, sizes, strict=True)
    ])  # fmt: skip
    if rng.random() < 0.2:
        X[:, 0] = np.minimum(X[:, 1], sizes[0] - 1)
    return X


CHAIN = [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize(("graph", "weighted"), [(None, False), (CHAIN, True)])
def test_binary_machines(graph, weighted):
    seen, tables = [], [np.array([[0.0], [1.0]])] * 4
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(6, 80))
        X = random_rows(rng, [2] * 4, n)
        weights = rng.integers(0, 3, n).astype(float) if weighted else np.ones(n)
        if (np.ptp(X, axis=0) == 0).any() or not weights.any():
            continue
        expected = separated(X[weights > 0], [2] * 4, tables, tables, graph)
        machine = mf.FullyVisibleBoltzmannMachine(graph=graph)
        check(fitted(machine, X, sample_weight=weights), expected, seen)
    assert 3 < sum(seen) < len(seen) - 3


@pytest.mark.parametrize(
    ("thresholds", "penalties"),
    [("free", {}), ("blume_capel", {}), ("free", {"l2": 0.1}), ("blume_capel", {"l2_field": 0.1}),
     ("free", {"l1": 0.05})],
)  # fmt: skip
def test_ordinal_machines(thresholds, penalties):
    seen, scores = [], [np.arange(float(q))[:, None] for q in SIZES]
    fields = [np.eye(q)[:, 1:] for q in SIZES]
    if thresholds == "blume_capel":
        fields = [np.hstack([c, c**2])[:, : q - 1] for c, q in zip(scores, SIZES, strict=True)]
    free = "l2_field" not in penalties, not ({"l1", "l2"} & set(penalties))
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = random_rows(rng, SIZES, int(rng.integers(8, 60)))
        expected = separated(X, SIZES, fields, scores, free=free)
        machine = mf.OrdinalMachine(n_categories=SIZES, thresholds=thresholds, **penalties)
        check(fitted(machine, X), expected, seen)
    assert False in seen or penalties == {"l2_field": 0.1}
    assert True in seen


@pytest.mark.parametrize(
    ("options", "absent"),
    [({}, 0.0), ({}, 0.1), ({"solver": "asymmetric"}, 0.1), ({"graph": [(0, 1), (1, 2)]}, 0.1),
     ({"l2_field": 0.1}, 0.0), ({"l2": 0.1}, 0.1), ({"graph": [(0, 1)], "l2_field": 0.1}, 0.1)],
)  # fmt: skip
def test_potts_machines(options, absent):
    sizes, seen = [2, 3, 2], []
    tables = [np.eye(q) for q in sizes]
    free = "l2_field" not in options, "l2" not in options
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = random_rows(rng, sizes, int(rng.integers(20, 150)))
        X = np.where(rng.random(X.shape) < absent, -1, X)
        shared = options.get("solver") != "asymmetric"
        expected = separated(X, sizes, tables, tables, options.get("graph"), free, shared)
        check(fitted(mf.PottsMachine(n_states=sizes, **options), X), expected, seen)
    assert True in seen


def majority(rng):
    """Unit 3 is on where two of the first three are: separated, though all pairs of values meet."""
    X = rng.integers(0, 2, (200, 3))
    return np.column_stack([X, X.sum(1) >= 2])


def test_separation_that_pairs_do_not_show():
    X = majority(np.random.default_rng(0)).astype(int)
    for kind in (mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine, mf.PottsMachine):
        with pytest.warns(ConvergenceWarning, match="no maximum exists: the data separate"):
            machine = kind().fit(X)
        assert machine.existence_.exists is False and 3 in machine.existence_.units


def test_items_that_depend_on_each_other_linearly(monkeypatch):
    """The score of an item is a sum of two others, although all pairs of values meet."""
    monkeypatch.setattr("scipy.optimize.linprog", None)
    rng = np.random.default_rng(1)
    X = rng.integers(0, 2, (800, 5))
    X[:, 3] = X[:, :3].sum(1) % 2  # of one-hot columns this is not linear
    assert mf.OrdinalMachine().fit(X).existence_.exists
    scores = np.column_stack([X[:, 0] + X[:, 1] + X[:, 2], *X.T[[0, 1, 2, 4]]])
    with pytest.warns(ConvergenceWarning, match="no maximum exists"):
        machine = mf.OrdinalMachine().fit(scores)
    assert set(machine.existence_.units) >= {0, 1, 2, 3} and 4 not in machine.existence_.units


@pytest.mark.parametrize("n, d, scale", [(4000, 60, 0.3), (900, 130, 0.0)])
def test_proofs_for_machines_too_large_for_a_programme(n, d, scale, monkeypatch):
    monkeypatch.setattr("scipy.optimize.linprog", None)
    rng = np.random.default_rng(0)
    X = (scale * rng.normal(size=(n, 1)) + rng.normal(size=(n, d)) > 0).astype(int)
    assert mf.FullyVisibleBoltzmannMachine().fit(X).existence_.exists is True


def test_what_is_too_large_for_a_programme_and_for_a_proof_is_undecided(monkeypatch):
    objective = (
        mf.FullyVisibleBoltzmannMachine().fit(rare_table(np.random.default_rng(7)))._objective
    )
    assert existence.decided(objective).exists
    monkeypatch.setattr(existence, "BLOCK_ENTRIES", 0)
    found = existence.decided(objective)
    assert found.exists is None and "too many rows and units" in found.message


def test_a_solver_that_stopped_early_is_no_obstacle():
    X = np.random.default_rng(0).integers(0, 2, (300, 6))
    with pytest.warns(ConvergenceWarning, match="stopped after 1 iterations"):
        machine = mf.FullyVisibleBoltzmannMachine(max_iter=1, tol=1e-12).fit(X)
    assert machine.existence_.exists is True


# --- refits -----------------------------------------------------------------------------------


def rare_table(rng, n=200, rare=5, coupling=1.0):
    X = (coupling * rng.normal(size=(n, 1)) + rng.normal(size=(n, 5)) > 0).astype(int)
    X[:, 0] = 0
    X[rng.choice(n, rare, replace=False), 0] = 1
    return X


@pytest.mark.parametrize("kind", [mf.FullyVisibleBoltzmannMachine, mf.OrdinalMachine])
def test_bootstrap_samples_without_a_maximum_have_not_converged(kind, monkeypatch):
    X, tables = rare_table(np.random.default_rng(7)), [np.array([[0.0], [1.0]])] * 5
    machine, drawn = kind().fit(X), []
    assert machine.existence_.exists

    def recorded(*arguments):
        drawn.append(with_replacement(*arguments))
        return drawn[-1]

    module = "fastmf.estimators.networks.network.with_replacement"
    monkeypatch.setattr(module, recorded)
    with pytest.warns(ConvergenceWarning, match="have no maximum"):
        samples = machine.bootstrap(20, rng=0)
    rows = machine._objective.items().labels
    for weights, converged in zip(drawn, samples.converged, strict=True):
        assert converged == (not separated(rows[weights > 0], [2] * 5, tables, tables))
    assert 3 < samples.converged.sum() < 19
    spread = samples.couplings[samples.converged].std(0)[0, 1:]
    assert spread.max() < 3 * machine.standard_errors()[0][0, 1:].max()


def test_stability_of_rare_items():
    machine = mf.FullyVisibleBoltzmannMachine().fit(rare_table(np.random.default_rng(7)))
    with pytest.warns(ConvergenceWarning, match="have no maximum"):
        found = machine.stability(20, (0.1, 0.75))
    assert (np.isnan(found.strength) == ~found.converged).all()
    assert found.converged[0].sum() > found.converged[1].sum()


def test_permutations_without_a_maximum_are_left_out():
    """A difference of all couplings is not hidden by an item that few rows have."""
    rng = np.random.default_rng(3)
    machines = [
        mf.FullyVisibleBoltzmannMachine().fit(rare_table(rng, rare=8, coupling=c))
        for c in (1.4, 0.2)
    ]
    with pytest.warns(ConvergenceWarning, match="have no maximum"):
        found = mf.compare_groups(*machines, n_permutations=50).permutation
    assert 0.3 < found.converged < 1
    assert found.strength_p_value < 0.03
