from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

import fastmf as mf

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")

OPTIONS = dict(n_epochs=3, batch_size=100, l2=0.001, learning_rate=0.2, random_state=0)


def binary(dtype=float):
    rng = np.random.default_rng(0)
    first = rng.random((230, 4)) < 0.4
    return np.repeat(first, 3, axis=1).astype(dtype)


def real():
    rng = np.random.default_rng(1)
    return 1000 * rng.normal(size=(230, 2)) @ rng.normal(size=(2, 5)) + rng.normal(size=(230, 5))


@pytest.mark.parametrize("deep", [False, True])
def test_rows_in_blocks_give_what_rows_in_memory_give(deep):
    X, sizes = binary(), (5, 3) if deep else 5

    def machine():
        if deep:
            return mf.DeepBoltzmannMachine(sizes, pretraining_epochs=0, **OPTIONS)
        return mf.GeneralizedRBM(sizes, gradient="tap", **OPTIONS)

    whole = machine().fit(X)
    blocks = machine().fit(da.from_array(X, chunks=(60, 12)))
    other = mf.distributed.fit(machine(), da.from_array(X, chunks=(230, 5)))
    for a, b, c in zip(*map(weights, (whole, blocks, other)), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-9)
        np.testing.assert_array_equal(c, b)
    assert blocks.n_iter_ == 3 and blocks.get_params()["n_epochs"] == 3
    assert len(blocks.history_["log_likelihood"]) == 3
    np.testing.assert_allclose(blocks.score_samples(X[:5]), whole.score_samples(X[:5]), rtol=1e-5)


def weights(machine):
    found = machine.weights_
    return found if isinstance(found, tuple) else (found,)


def test_labels_of_categorical_units_in_blocks():
    X = np.random.default_rng(0).integers(0, 3, (230, 4)).astype(np.float32)
    X[:, 1] = (X[:, 0] + (np.random.default_rng(1).random(230) < 0.2)) % 3
    options = {"visible": "categorical", "gradient": "tap", **OPTIONS}
    whole = mf.GeneralizedRBM(3, **options).fit(X)
    blocks = mf.GeneralizedRBM(3, **options).fit(
        da.from_array(X, chunks=(60, 3)), validation_data=X[:50]
    )
    for a, b in zip(*map(weights, (whole, blocks)), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-6)
        assert b.dtype == np.float32
    assert len(blocks.history_["validation_log_likelihood"]) == blocks.n_iter_


def test_real_columns_are_learned_in_their_own_units():
    X = real()
    options = {"visible": "gaussian", "gradient": "cd", **OPTIONS, "learning_rate": 0.02}
    whole = mf.GeneralizedRBM(3, **options).fit(X)
    blocks = mf.GeneralizedRBM(3, **options).fit(da.from_array(X, chunks=(60, 5)))
    scores = [machine.score_samples(X).mean() for machine in (whole, blocks)]
    alone = whole.pointwise_
    independent = (alone.log_prob(X) - alone.log_partition(0.0, 0.0)).sum(1).mean()
    assert min(scores) > independent - 0.1
    # Chains of chunks have other random numbers.
    np.testing.assert_allclose(scores[1], scores[0], atol=0.3)


@pytest.mark.parametrize("size, gradient, weighted", [(4, "exact", False), (20, "tap", True)])
def test_the_same_defaults_and_weights_give_the_same_scores(size, gradient, weighted):
    X, weights = np.tile(binary(), 2), np.arange(230) % 4 if weighted else None
    lazy = da.from_array(X, chunks=(60, 12)), weights if weights is None else da.from_array(weights)
    machines = [
        mf.GeneralizedRBM(size, n_epochs=3, random_state=0).fit(rows, sample_weight=w)
        for rows, w in ((X, weights), lazy)
    ]
    assert [machine.gradient_ for machine in machines] == [gradient] * 2
    scores = [machine.score_samples(X) for machine in machines]
    np.testing.assert_allclose(*scores, rtol=1e-9)
    np.testing.assert_allclose(*(m.history_["log_likelihood"] for m in machines), rtol=1e-9)


@pytest.mark.parametrize("chunks", [(230, 12), (50, 5)])
def test_features_of_blocks(chunks):
    X = binary(np.float32)
    machine = mf.GeneralizedRBM(5, **OPTIONS).fit(X)
    lazy = mf.distributed.transform(machine, da.from_array(X, chunks=chunks))
    assert lazy.shape == (230, 5) and lazy.dtype == np.float32
    np.testing.assert_array_equal(lazy.compute(), machine.transform(X))
    some = mf.distributed.transform(machine, da.from_array(X, chunks=(50, 12))[60:180])
    np.testing.assert_array_equal(some.compute(), machine.transform(X[60:180]))


@pytest.mark.parametrize("gradient", ["cd", "exact"])
def test_blocks_of_sparse_rows_are_rows(gradient):
    X, rbm = binary(), mf.GeneralizedRBM(5, **OPTIONS | {"gradient": gradient})
    dense = da.from_array(X, chunks=(100, 12))
    machines = [clone(rbm).fit(rows) for rows in (dense, dense.map_blocks(csr_array))]
    np.testing.assert_array_equal(*(machine.model_.weights for machine in machines))
    for function in (mf.distributed.score_samples, mf.distributed.transform):
        of_blocks = [function(machines[0], x) for x in (dense, dense.map_blocks(csr_array))]
        np.testing.assert_array_equal(*of_blocks)


@pytest.mark.parametrize("options, says", [
    ({"early_stopping": True}, "early_stopping is not possible"),
    ({"callbacks": [mf.evaluation.Checkpoint("run.npz")]}, "checkpoints are not offered"),
    ({"n_starts": 10}, "n_starts must be None"), ({"gradient": "pcd"}, "persistent chains"),
])  # fmt: skip
def test_options_that_are_not_possible(options, says):
    X = da.from_array(binary(), chunks=(100, 12))
    with pytest.raises(ValueError, match=says):
        mf.GeneralizedRBM(5, **{"gradient": "tap"} | OPTIONS | options).fit(X)


def test_rows_that_are_not_possible():
    X = binary()
    with pytest.raises(TypeError, match="X must be a Dask array"):
        mf.distributed.fit(mf.GeneralizedRBM(5), X)
    with pytest.raises(TypeError, match="X must be a Dask array"):
        mf.distributed.transform(mf.GeneralizedRBM(5, **OPTIONS).fit(X), X)
    lazy = da.from_array(X, chunks=(100, 12))
    with pytest.raises(ValueError, match="sample_weight must be a number or have shape"):
        mf.GeneralizedRBM(5).fit(lazy, sample_weight=np.ones(30))
    frame = SimpleNamespace(to_delayed=list, to_dask_array=list)
    with pytest.raises(TypeError, match=r"take its to_dask_array\(lengths=True\)"):
        mf.GeneralizedRBM(5).fit(frame)
    for wrong in (lazy[:, 0], lazy[:0], lazy[:, :0]):
        with pytest.raises(ValueError, match="shape"):
            mf.distributed.fit(mf.GeneralizedRBM(5), wrong)


def test_chunks_of_unknown_sizes_are_refused():
    X = da.from_array(np.ones((40, 3)), chunks=(10, 3))
    unknown = X[X[:, 0] > 0]
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        mf.GeneralizedRBM(2, n_epochs=1, random_state=0).fit(unknown)
