"""Bounds of the log-partition against enumeration, of all kinds of machines."""

import tracemalloc

import numpy as np
import pytest
from kernel_cases.machines import fully_visible
from scipy import sparse
from scipy.special import logsumexp

import fastmf as mf


def units(rng, kind, n, dtype=np.float64):
    """A prior of n units (groups) of a kind."""
    field = rng.normal(size=n) * rng.choice([0, 0.3, 2])
    made = {
        "ising": lambda: mf.Ising(field),
        "bernoulli": lambda: mf.Bernoulli(field),
        "binomial": lambda: mf.Binomial(field, np.full(n, 3)),
        "categorical": lambda: mf.Categorical(rng.normal(size=(n, 3))),
    }[kind]()
    return type(made)(*(np.asarray(part, dtype) for part in made)) if dtype != np.float64 else made


def width(kind, n):
    return 3 * n if kind == "categorical" else n


def symmetric(rng, kind, n, strength):
    size = width(kind, n)
    couplings = np.triu(rng.normal(size=(size, size)) * strength, 1)
    if kind == "categorical":
        couplings *= np.kron(1 - np.eye(n), np.ones((3, 3)))
    return couplings + couplings.T


def random_machine(rng, strength):
    kinds = ["ising", "bernoulli", "binomial", "categorical"]
    first, second = rng.choice(kinds, 2)
    n, m, k = rng.integers(1, 6, 3)
    shape = width(first, n), width(second, m)
    weights = rng.normal(size=shape) * strength
    match rng.integers(3):
        case 0:
            return mf.RBM(weights, units(rng, first, n), units(rng, second, m))
        case 1:
            return mf.BoltzmannMachine(symmetric(rng, first, n, strength), units(rng, first, n))
        case _:
            more = rng.normal(size=(shape[1], k)) * strength
            layers = units(rng, first, n), units(rng, second, m), units(rng, "ising", k)
            return mf.DBM([weights, more], layers)


def test_bounds_of_random_machines_hold_at_all_strengths():
    rng, n_close = np.random.default_rng(0), 0
    for _ in range(15):
        strength = 10 ** rng.uniform(-1, np.log10(15))
        model = random_machine(rng, strength)
        log_partition = mf.exact(model, averages=False).log_partition
        found = mf.log_partition_bounds(model, n_starts=5)
        assert found.lower <= log_partition <= found.upper, model
        assert found.lower <= found.estimate <= found.upper
        n_close += found.upper - found.lower < 1
    assert n_close > 3


@pytest.mark.parametrize("strength", [0.1, 1.0, 15.0])
@pytest.mark.parametrize("max_iter", [1, 2, 64])
def test_upper_bound_holds_after_any_number_of_sweeps(strength, max_iter):
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(7, 6)) * strength
    model = mf.RBM(weights, units(rng, "ising", 7), units(rng, "ising", 6))
    found = mf.log_partition_bounds(model, n_starts=2, max_iter=max_iter)
    assert mf.exact(model, averages=False).log_partition <= found.upper


def test_independent_units_and_pairs_are_exact():
    alone = mf.BoltzmannMachine(np.zeros((4, 4)), mf.Ising(np.array([0.1, -2, 30, 0])))
    pair = mf.RBM(np.array([[2.0]]), mf.Ising(np.array([0.3])), mf.Bernoulli(np.array([-1.0])))
    star = mf.RBM(np.array([[2.0, -1, 3]]), mf.Ising(np.ones(1)), mf.Ising(np.zeros(3)))
    for model in (alone, pair, star):
        log_partition = mf.exact(model).log_partition
        assert np.isclose(mf.log_partition_bounds(model).upper, log_partition, atol=1e-6)
    found = mf.log_partition_bounds(alone)
    assert np.isclose(found.lower, found.upper, rtol=1e-10)
    no_hidden = mf.RBM(np.zeros((4, 0)), alone.prior, mf.Ising(np.zeros(0)))
    assert np.allclose(mf.log_partition_bounds(no_hidden, field=np.ones(4)).lower,
                       mf.log_partition_bounds(alone, field=np.ones(4)).upper)  # fmt: skip


def test_curie_weiss_is_bounded_where_tap_is_wrong():
    model = mf.BoltzmannMachine(np.ones((10, 10)) - np.eye(10), mf.Ising(np.full(10, 0.01)))
    log_partition = mf.exact(model).log_partition
    found = mf.log_partition_bounds(model)
    assert mf.tap(model).log_partition < found.lower <= log_partition <= found.upper
    # The two solutions up and down have all of the weight.
    assert abs(found.estimate - log_partition) < 0.01


def test_rows_of_fields_and_clamped_units_against_sums_over_states():
    rng = np.random.default_rng(2)
    weights = rng.normal(size=(5, 4))
    model = mf.RBM(weights, mf.Bernoulli(rng.normal(size=5)), mf.Ising(rng.normal(size=4)))
    field, clamp = rng.normal(size=(3, 5)), np.full((3, 5), np.nan)
    clamp[1, :2], clamp[2] = [1, 0], [1, 0, 1, 1, 0]
    states = (np.arange(32)[:, None] >> np.arange(5) & 1).astype(float)
    own = model.visible.log_prob(states).sum(1)
    log_weights = own + model.hidden.log_partition(states @ weights, 0.0).sum(1)
    found = mf.log_partition_bounds(model, field=field, clamp=clamp)
    for row in range(3):
        fits = np.all(np.isnan(clamp[row]) | (states == clamp[row]), axis=1)
        right = logsumexp((log_weights + states @ field[row])[fits])
        assert found.lower[row] <= right <= found.upper[row]
    assert np.allclose([found.lower[2], found.upper[2]], right)


def test_strong_couplings_are_bounded_by_a_state_of_large_weight():
    """Random starts alone are 8 to 22 nats below the sums of these machines."""
    for seed, joined in ((0, False), (8, False), (1, True), (9, True)):
        rng = np.random.default_rng(seed)
        weights = rng.normal(size=(24, 14)) * 4
        layers = (mf.Ising(rng.normal(size=n)) for n in weights.shape)
        model = mf.RBM(weights, *layers)
        exact = mf.exact(model).log_partition
        machine = fully_visible(model) if joined else model
        found = mf.log_partition_bounds(machine)
        assert exact - 4 < found.lower <= exact <= found.upper


def test_gaussian_units_are_integrated_out():
    rng = np.random.default_rng(3)
    visible = mf.Gaussian(rng.normal(size=6), np.full(6, 2.0))
    for hidden in (mf.Bernoulli(rng.normal(size=5)), mf.Ising(np.zeros(5))):
        model = mf.RBM(rng.normal(size=(6, 5)) / 3, visible, hidden)
        log_partition = mf.exact(model).log_partition
        found = mf.log_partition_bounds(model)
        assert found.lower <= log_partition <= found.upper < log_partition + 3
        given = np.array([0.5, *[np.nan] * 5])
        right = _with_first_unit_at(model, 0.5)
        found = mf.log_partition_bounds(model, clamp=given)
        assert found.lower <= right <= found.upper < right + 3
    both = mf.RBM(rng.normal(size=(6, 2)) / 5, visible, mf.Gaussian(np.ones(2), np.full(2, 2.0)))
    found = mf.log_partition_bounds(both)
    assert np.allclose([found.lower, found.upper], both.integrate_gaussians().log_partition)
    improper = mf.RBM(9 * np.ones((6, 2)), visible, mf.Gaussian(np.ones(2), np.full(2, 2.0)))
    assert mf.log_partition_bounds(improper).lower == np.inf


def _with_first_unit_at(model, x):
    """Log-partition of the other units, by enumeration with the first unit in their fields."""
    rest = mf.RBM(
        model.weights[1:],
        mf.Gaussian(*(part[1:] for part in model.visible)),
        model.hidden._replace(field=model.hidden.field + x * model.weights[0]),
    )
    own = model.visible.log_prob(np.array([x, *np.zeros(model.n_visible - 1)]))[0]
    return mf.exact(rest).log_partition + own


def test_units_without_upper_bound_have_a_lower_one():
    hidden = mf.TruncatedGaussian(np.zeros(3), np.ones(3), np.zeros(3), np.full(3, 2.0))
    model = mf.RBM(np.ones((4, 3)) / 4, mf.Ising(np.zeros(4)), hidden)
    found, log_partition = mf.log_partition_bounds(model), mf.exact(model).log_partition
    assert found.upper == np.inf
    assert log_partition - 0.5 < found.lower <= log_partition


def test_bounds_of_float32_machines_are_those_in_double_precision():
    rng = np.random.default_rng(4)
    weights = (rng.normal(size=(12, 8)) * 3).astype(np.float32)
    zeros = np.zeros(12, np.float32), np.zeros(8, np.float32)
    model = mf.RBM(weights, *map(mf.Bernoulli, zeros))
    double = mf.RBM(weights.astype(float), *(mf.Bernoulli(z.astype(float)) for z in zeros))
    found = mf.log_partition_bounds(model)
    assert found.lower <= mf.exact(double, averages=False).log_partition <= found.upper


def test_bounds_of_many_units_of_which_some_are_not_coupled():
    """600 units in 150 equal parts of four, so that ln Z is known."""
    rng = np.random.default_rng(5)
    part = np.triu(rng.normal(size=(4, 4)), 1)
    small = mf.BoltzmannMachine(part + part.T, mf.Ising(rng.normal(size=4)))
    couplings = sparse.block_diag([sparse.csr_array(small.couplings)] * 150, format="csr")
    model = mf.BoltzmannMachine(
        sparse.csr_array(couplings), mf.Ising(np.tile(small.prior.field, 150))
    )
    found = mf.log_partition_bounds(model, n_starts=2, max_iter=64)
    right = 150 * mf.exact(small).log_partition
    assert found.lower <= right <= found.upper < right + 150


def sparse_symmetric(rng, kind, n, strength):
    """Couplings of the units on a cycle with a chord and a tail."""
    graph = np.zeros((n, n))
    ring = np.arange(n - 1)
    graph[ring, np.roll(ring, 1)] = graph[0, 2] = graph[n - 2, n - 1] = 1
    size = width(kind, n) // n
    whole = symmetric(rng, kind, n, strength) * np.kron(graph + graph.T > 0, np.ones((size, size)))
    return sparse.csr_array(whole)


@pytest.mark.parametrize("kind", ["ising", "bernoulli", "binomial", "categorical"])
def test_sparse_couplings_have_the_bounds_of_dense_ones(kind):
    rng = np.random.default_rng(6)
    for strength in (0.2, 4.0):
        couplings, prior = sparse_symmetric(rng, kind, 7, strength), units(rng, kind, 7)
        field = rng.normal(size=(2, width(kind, 7)))
        clamp = np.full((2, 7), np.nan)
        clamp[1, [0, 3]] = 1
        whole = mf.BoltzmannMachine(couplings.toarray(), prior)
        given = {"field": field, "clamp": clamp}
        right = mf.log_partition_bounds(whole, **given)
        found = mf.log_partition_bounds(mf.BoltzmannMachine(couplings, prior), **given)
        assert np.allclose(found.upper, right.upper, rtol=1e-12)
        assert np.allclose(found.lower, right.lower, atol=1e-6)
        for k in range(2):
            log_partition = mf.exact(whole, field=field[k], clamp=clamp[k]).log_partition
            assert found.lower[k] <= log_partition <= found.upper[k]


def test_sparse_units_without_upper_bound_have_a_lower_one():
    rng = np.random.default_rng(7)
    couplings = sparse_symmetric(rng, "ising", 6, 0.2)
    prior = mf.Gaussian(rng.normal(size=6), np.full(6, 2.0))
    found = mf.log_partition_bounds(mf.BoltzmannMachine(couplings, prior))
    # The largest bound of a product of Gaussians is at the exact means.
    mean = np.linalg.solve(np.diag(prior.precision) - couplings.toarray(), prior.field)
    own = prior.log_partition(np.zeros(6), np.zeros(6)) - prior.field**2 / prior.precision / 2
    assert found.upper == np.inf
    assert np.isclose(found.lower, own.sum() + prior.field @ mean / 2)


def test_chains_of_many_units_have_both_bounds_in_memory_of_their_edges():
    """The upper bound of a forest is the log-partition, here by transfer matrices."""
    rng, n, x = np.random.default_rng(8), 3_000, np.array([-1.0, 1.0])
    couplings, field = rng.normal(size=n - 1), rng.normal(size=n) / 2
    log_sums = field[0] * x
    for coupling, own in zip(couplings, field[1:], strict=True):
        log_sums = np.logaddexp(*(log_sums[:, None] + coupling * np.outer(x, x))) + own * x
    right = np.logaddexp(*log_sums)
    chain = sparse.csr_array(sparse.diags_array([couplings, couplings], offsets=[1, -1]))
    model = mf.BoltzmannMachine(chain, mf.Ising(field))
    tracemalloc.start()
    found = mf.log_partition_bounds(model, n_starts=5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert right - 0.1 * n < found.lower <= found.estimate <= found.upper
    assert right <= found.upper < right + 1e-6
    assert peak < 20e6  # couplings alone have 72e6 bytes when they are dense


def test_lattices_of_many_units_against_transfer_matrices():
    """Strips of 4 x 100 spins: states of a column are summed column by column."""
    rng, height, length = np.random.default_rng(9), 4, 100
    down = rng.normal(size=(length, height - 1)) * 0.4
    along, field = rng.normal(size=(length - 1, height)) * 0.4, rng.normal(size=(length, height))
    x = 2.0 * (np.arange(2**height)[:, None] >> np.arange(height) & 1) - 1
    own = field @ x.T + down @ (x[:, 1:] * x[:, :-1]).T
    log_sums = own[0]
    for k in range(1, length):
        log_sums = logsumexp(log_sums[:, None] + (x * along[k - 1]) @ x.T, axis=0) + own[k]
    inside = np.pad(down, [(0, 0), (0, 1)]).ravel()[:-1]
    diagonals, offsets = [inside, inside, *[along.ravel()] * 2], [1, -1, height, -height]
    lattice = sparse.csr_array(sparse.diags_array(diagonals, offsets=offsets))
    found = mf.log_partition_bounds(
        mf.BoltzmannMachine(lattice, mf.Ising(field.ravel())), n_starts=2
    )
    right, n = logsumexp(log_sums), field.size
    assert right - 0.1 * n < found.lower <= right <= found.upper < right + 0.1 * n


def test_bad_arguments_are_refused():
    model = mf.RBM(np.ones((3, 2)), mf.Ising(np.zeros(3)), mf.Ising(np.zeros(2)))
    with pytest.raises(ValueError, match="got booleans"):
        mf.log_partition_bounds(model, clamp=np.array([True, False, False]))
    with pytest.raises(ValueError, match="n_starts"):
        mf.log_partition_bounds(model, n_starts=0)
    with pytest.raises(TypeError, match="model must be"):
        mf.log_partition_bounds(np.ones((3, 2)))


# --- bounds of machines with forbidden pairs of states: against elimination -----------------------


@pytest.mark.parametrize(("seed", "period"), [(0, 6), (1, 2), (3, 6), (4, 3), (7, 2)])
def test_forbidden_pairs_have_both_bounds(seed, period):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 4, 6)
    prior = mf.Categorical([rng.normal(size=size) for size in sizes])
    group = np.repeat(np.arange(6), sizes)
    couplings = rng.normal(size=(len(group),) * 2)
    couplings[rng.random(couplings.shape) < 0.15] = -np.inf
    couplings = np.triu(np.where((group[:, None] - group) % period == 0, 0, couplings), 1)
    couplings = couplings + np.triu(couplings, 1).T
    clamp = np.full(6, np.nan)
    clamp[0] = seed % 2 if seed > 2 else np.nan
    for kind in (np.array, sparse.csr_array):
        model = mf.BoltzmannMachine(kind(couplings), prior)
        right = mf.exact(model, clamp=clamp).log_partition
        found = mf.log_partition_bounds(model, clamp=clamp)
        assert found.lower <= right <= found.upper
        assert right - 2 < found.lower <= found.estimate <= found.upper < right + 4


def test_machines_without_any_state():
    couplings = np.zeros((4, 4))
    couplings[:2, 2:] = couplings[2:, :2] = -np.inf
    found = mf.log_partition_bounds(
        mf.BoltzmannMachine(couplings, mf.Categorical(np.zeros((2, 2))))
    )
    assert found.lower == found.upper == found.estimate == -np.inf


def test_a_product_of_allowed_states_is_exact():
    """Units have two of three colours each: whatever is forbidden, they are independent."""
    couplings = np.full((6, 6), 0.7)
    couplings[2, :] = couplings[:, 2] = couplings[5, :] = couplings[:, 5] = -np.inf
    couplings[:3, :3] = couplings[3:, 3:] = 0
    model = mf.BoltzmannMachine(couplings, mf.Categorical(np.arange(6.0).reshape(2, 3) * [1, 1, 0]))
    found = mf.log_partition_bounds(model)
    right = 0.7 + np.log(1 + np.e) + np.log(np.exp(3) + np.exp(4))
    assert right - 1e-6 < found.lower <= right + 1e-12 and right <= found.upper < right + 1e-3


def test_sparse_forbidden_pairs_of_many_units_and_all_units_clamped():
    """Colourings of a path of 5,000 vertices by three colours: 3 2^(n - 1)."""
    n = 5_000
    first = np.arange(3 * (n - 1))
    ends = np.hstack([first, first + 3]), np.hstack([first + 3, first])
    couplings = sparse.csr_array((np.full(6 * (n - 1), -np.inf), ends), shape=(3 * n, 3 * n))
    model = mf.BoltzmannMachine(couplings, mf.Categorical(np.zeros((n, 3))))
    found, right = mf.log_partition_bounds(model, n_starts=3), np.log(3) + (n - 1) * np.log(2)
    # Every second unit at one colour leaves two colours to each of the others.
    assert 0.2 * n < found.lower <= right <= found.upper < right + 1e-6
    found = mf.log_partition_bounds(model, n_starts=1, clamp=np.arange(n) % 2)
    assert -1e-9 < found.lower <= 0 <= found.upper < 1e-9


def test_other_units_with_forbidden_pairs_are_refused():
    couplings = np.zeros((5, 5))
    couplings[0, 2] = couplings[2, 0] = -np.inf
    units = mf.Concatenated(mf.Categorical(np.zeros((2, 2))), mf.Ising(np.zeros(1)))
    with pytest.raises(TypeError, match="between Categorical units only"):
        mf.log_partition_bounds(mf.BoltzmannMachine(couplings, units))
