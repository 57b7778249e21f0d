"""Sparse couplings and forbidden pairs of states: the same machine as with a dense matrix."""

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse

import fastmf as mf
from fastmf.models.boltzmann import dense_machine

SIZES = (2, 3, 2, 4)


def tables(rng, sizes=SIZES, pairs=((0, 1), (1, 2), (0, 3)), forbidden=False):
    """Symmetric couplings of states with tables for some pairs of groups."""
    starts = np.cumsum([0, *sizes])
    couplings = np.zeros((starts[-1], starts[-1]))
    for i, j in pairs:
        table = rng.normal(size=(sizes[i], sizes[j]))
        if forbidden:
            table[0, -1] = -np.inf
        couplings[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = table
        couplings[starts[j] : starts[j + 1], starts[i] : starts[i + 1]] = table.T
    return couplings


def groups(rng, sizes=SIZES):
    return mf.Categorical([rng.normal(size=q) for q in sizes])


def spins(rng, n=7, density=0.4, dtype=np.float64):
    couplings = np.triu(rng.normal(size=(n, n)) * (rng.random((n, n)) < density), 1)
    return (couplings + couplings.T).astype(dtype), mf.Ising(rng.normal(size=n).astype(dtype))


FORMATS = ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csr_matrix])
def test_every_format_is_kept_as_a_canonical_csr_array(form, make):
    couplings, prior = spins(np.random.default_rng(0))
    machine = mf.BoltzmannMachine(make(couplings).asformat(form), prior)
    kept = machine.couplings
    assert type(kept) is sparse.csr_array and kept.has_canonical_format
    np.testing.assert_array_equal(kept.toarray(), couplings)
    with pytest.raises(ValueError, match="read-only"):
        kept.data[0] = 1


def test_duplicates_zeros_and_unsorted_indices():
    rows, columns = [0, 2, 0, 1, 2, 1, 0], [2, 0, 1, 0, 0, 2, 2]
    values = [1.0, 1.0, 3.0, 3.0, 1.0, 0.0, 1.0]
    given = sparse.coo_array((values, (rows, columns)), shape=(3, 3))
    kept = mf.BoltzmannMachine(given, mf.Ising(np.zeros(3))).couplings
    assert kept.indices.tolist() == [1, 2, 0, 0] and kept.data.tolist() == [3, 2, 3, 2]


def test_the_caller_s_matrix_is_neither_changed_nor_shared():
    couplings, prior = spins(np.random.default_rng(1))
    given = sparse.csr_array(couplings)
    machine = mf.BoltzmannMachine(given, prior)
    given.data[:] = 7
    np.testing.assert_array_equal(machine.couplings.toarray(), couplings)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_energy_of_spins(dtype):
    rng = np.random.default_rng(2)
    couplings, prior = spins(rng, dtype=dtype)
    dense = mf.BoltzmannMachine(couplings, prior)
    machine = mf.BoltzmannMachine(sparse.coo_array(couplings), prior)
    x = rng.choice([-1.0, 1.0], (2, 3, 7))
    assert machine.dtype == dtype and machine.n_units == 7
    np.testing.assert_allclose(machine.energy(x), dense.energy(x), rtol=1e-6)
    np.testing.assert_allclose(machine.energy(x[0, 0]), dense.energy(x[0, 0]), rtol=1e-6)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_energy_of_states_with_forbidden_pairs(make):
    rng = np.random.default_rng(3)
    couplings, prior = tables(rng, forbidden=True), groups(rng)
    machine = mf.BoltzmannMachine(make(couplings), prior)
    labels = np.stack(np.meshgrid(*map(np.arange, SIZES), indexing="ij"), -1).reshape(-1, 4)
    flat = prior.starts + labels
    expected = [
        -sum(couplings[r[i], r[j]] for i in range(4) for j in range(i)) - prior.field[r].sum()
        for r in flat
    ]
    found = machine.energy(labels)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.isposinf(found).any() and not np.isnan(found).any()
    log_partition = np.log(np.exp(-np.array(expected)).sum())
    np.testing.assert_allclose(mf.exact(machine).log_partition, log_partition, rtol=1e-12)


@pytest.mark.parametrize("forbidden", [False, True])
def test_files_and_copies_are_the_same_bit_by_bit(tmp_path, forbidden):
    rng = np.random.default_rng(4)
    couplings = sparse.csr_array(tables(rng, forbidden=forbidden))
    machine = mf.BoltzmannMachine(couplings, groups(rng))
    machine.save(tmp_path / "machine.npz")
    others = mf.load(tmp_path / "machine.npz"), copy.deepcopy(machine), copy.copy(machine)
    for other in (*others, pickle.loads(pickle.dumps(machine))):
        assert other.couplings.has_canonical_format and not other.couplings.data.flags.writeable
        np.testing.assert_array_equal(other.couplings.toarray(), couplings.toarray())
        np.testing.assert_array_equal(other.prior.field, machine.prior.field)


def test_a_machine_without_couplings():
    machine = mf.BoltzmannMachine(sparse.csr_array((3, 3)), mf.Ising(np.zeros(3)))
    assert repr(machine) == "BoltzmannMachine(3 Ising, 0 sparse couplings, float64)"
    assert machine.energy(np.ones(3)) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"couplings.indices": np.array([1, 9])}, "wrong indices"),
        ({"couplings.indices": np.array([-1, 0])}, "wrong indices"),
        ({"couplings.indptr": np.array([0, 2, 1])}, "wrong indices"),
        ({"couplings.indptr": np.zeros(0, int)}, "not a model"),
        ({"couplings.data": np.array([1.0, np.nan])}, "finite"),
        ({"couplings.data": np.array([1.0, 2.0])}, "symmetric"),
        ({"couplings.data": np.array(["a", "b"])}, "must hold floats"),
    ],
)
def test_damaged_files(tmp_path, change, message):
    pair = sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])
    machine = mf.BoltzmannMachine(pair, mf.Ising(np.zeros(2)))
    machine.save(tmp_path / "machine.npz")
    with np.load(tmp_path / "machine.npz") as file:
        arrays = dict(file) | change
    np.savez(tmp_path / "damaged.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        mf.load(tmp_path / "damaged.npz")


def changed(entries):
    couplings = np.zeros((3, 3))
    for place, value in entries.items():
        couplings[place] = value
    return couplings


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("couplings, message", [
    (np.zeros((3, 4)), "square"), (changed({(0, 1): 1}), "symmetric"),
    (changed({(1, 1): 1}), "diagonal"), (changed({(0, 1): np.nan, (1, 0): np.nan}), "finite"),
    (changed({(0, 1): np.inf, (1, 0): np.inf}), "finite"),
    (changed({(0, 1): -np.inf, (1, 0): -np.inf}), "finite"),
    (np.zeros((4, 4)), "prior must have 4 units.*got 3"),
])  # fmt: skip
def test_bad_couplings(make, couplings, message):
    with pytest.raises(ValueError, match=message):
        mf.BoltzmannMachine(make(couplings), mf.Ising(np.zeros(3)))


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_bad_couplings_of_states(make):
    prior = mf.Concatenated(mf.Ising(np.zeros(1)), mf.Categorical(np.zeros((2, 2))))
    for i, j, value, message in (
        (0, 1, -np.inf, "only pairs of states"),
        (1, 2, 1.0, "states of one group"),
        (1, 2, -np.inf, "states of one group"),
        (1, 3, np.inf, "finite"),
    ):
        couplings = np.zeros((5, 5))
        couplings[i, j] = couplings[j, i] = value
        with pytest.raises(ValueError, match=message):
            mf.BoltzmannMachine(make(couplings), prior)
    couplings[1, 3] = -np.inf
    couplings[3, 1] = 1
    with pytest.raises(ValueError, match="differ by inf"):
        mf.BoltzmannMachine(make(couplings), prior)


def test_bad_types():
    with pytest.raises(TypeError, match="real numbers"):
        mf.BoltzmannMachine(sparse.csr_array([[0, 1j], [1j, 0]]), mf.Ising(np.zeros(2)))
    with pytest.raises(ValueError, match="non-empty"):
        mf.BoltzmannMachine(sparse.csr_array((0, 0)), mf.Ising(np.zeros(1)))
    broken = sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])
    broken.indices[0] = 40
    with pytest.raises(ValueError, match="wrong indices"):
        mf.BoltzmannMachine(broken, mf.Ising(np.zeros(2)))


def test_integers_and_rounding():
    ones = sparse.csr_array(np.array([[0, 1], [1, 0]]))
    assert mf.BoltzmannMachine(ones, mf.Ising(np.zeros(2))).dtype == np.float64
    rounded = sparse.csr_array([[0.0, 1.0], [1.0 + 4e-16, 0.0]])
    kept = mf.BoltzmannMachine(rounded, mf.Ising(np.zeros(2))).couplings.toarray()
    np.testing.assert_array_equal(kept, kept.T)


def test_solvers_of_dense_couplings_take_small_sparse_ones_and_refuse_the_rest():
    rng = np.random.default_rng(7)
    couplings, prior = spins(rng)
    machine = mf.BoltzmannMachine(sparse.csr_array(couplings), prior)
    np.testing.assert_array_equal(dense_machine("it", machine).couplings, couplings)
    large = mf.BoltzmannMachine(sparse.csr_array((5000, 5000)), mf.Ising(np.zeros(5000)))
    for solve in (mf.relaxed_bp, mf.adaptive_tap):
        with pytest.raises(ValueError, match=f"{solve.__name__} takes sparse.*at most 4096 units"):
            solve(large)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("solve", [mf.tap, mf.evaluation.gibbs_chains])
def test_solvers_refuse_forbidden_pairs_by_name(make, solve):
    rng = np.random.default_rng(8)
    machine = mf.BoltzmannMachine(make(tables(rng, forbidden=True)), groups(rng))
    with pytest.raises(ValueError, match=f"-inf forbid.*{solve.__name__}.*belief_propagation"):
        solve(machine)


# --- the energy of a sparse linear model, and the checks of its parameters ------------------------


def test_energy_is_minus_the_log_of_the_joint_density():
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=(4, 3))
    prior = mf.Gaussian([0.1, 0.2, 0.3], 2.0)
    model = mf.SparseLinearModel(X, y, 0.5, prior)
    for row, energy in zip(w, model.energy(w), strict=True):
        density = np.exp(-((y - X @ row) ** 2)) / np.sqrt(np.pi)  # variance 1 / 2
        weight = np.exp(prior.field * row - row**2)
        assert energy == pytest.approx(-np.log(density).sum() - np.log(weight).sum(), rel=1e-12)


def test_energy_with_a_latent_variable_of_each_row():
    rng = np.random.default_rng(1)
    X, y, w = rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=(2, 4, 8))
    latent = mf.SparseLinearModel(X, y, 0.5, mf.Gaussian(np.zeros(8), 2.0))
    columns = np.concatenate([X, -np.eye(5)], axis=1)
    other = mf.SparseLinearModel(columns, y, 0.5, mf.Gaussian(np.zeros(8), 2.0))
    assert latent.has_latent and not other.has_latent
    assert (latent.n_features, latent.n_units) == (3, 8)
    np.testing.assert_allclose(latent.energy(w), other.energy(w), rtol=1e-13)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"y": np.zeros(4)}, ValueError, r"y must have shape \(5,\)"),
        ({"noise_variance": 0.0}, ValueError, "positive and finite"),
        ({"noise_variance": "1"}, TypeError, "must be a number"),
        ({"prior": mf.Ising([0.0])}, ValueError, "must have 3 units"),
        ({"prior": mf.Ising}, TypeError, "must be a unit prior"),
        ({"X": np.full((5, 3), np.nan)}, ValueError, "X must be finite"),
        ({"row_weights": 2.0}, ValueError, "without latent variables"),
        ({"row_weights": [1.0, 0, 1, 1, 1]}, ValueError, "leave rows of weight 0 out"),
        ({"row_weights": np.ones(4)}, ValueError, r"of shape \(5,\)"),
    ],
)
def test_what_is_refused(change, error, message):
    given = {"X": np.ones((5, 3)), "y": np.zeros(5), "noise_variance": 1.0}
    given |= {"prior": mf.Ising(np.zeros(3))} | change
    with pytest.raises(error, match=message):
        mf.SparseLinearModel(**given)


def test_weights_of_rows(tmp_path):
    weights = np.array([0.5, 1.0, 2.0, 1.0, 3.0])
    arguments = np.ones((5, 3)), np.zeros(5), 1.0, mf.Gaussian(np.zeros(8), 1.0)
    model = mf.SparseLinearModel(*arguments, row_weights=weights)
    np.testing.assert_array_equal(model.unit_weights(), [1, 1, 1, *weights])
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(mf.load(tmp_path / "model.npz").row_weights, weights)
    with pytest.raises(ValueError, match="repeat the rows"):
        model.energy(np.zeros(8))
    equal = mf.SparseLinearModel(*arguments, row_weights=np.ones(5))
    assert not equal.has_weights and equal.unit_weights() is None


@pytest.mark.parametrize("w", [np.ones(6), np.ones(5) + 1j, 1.0])
def test_coefficients_of_another_number_are_refused(w):
    X = np.random.default_rng(0).normal(size=(40, 5))
    prior = mf.GaussBernoulli(np.zeros(5), np.ones(5), np.zeros(5))
    model = mf.SparseLinearModel(X, X[:, 0], 0.1, prior)
    with pytest.raises(ValueError, match="w must hold real numbers, 5 in the last axis"):
        model.prediction(w)
    assert model.prediction([[1, 0, 0, 0, 0]]).shape == (1, 40)
