import numpy as np
import pytest

import fastmf as mf

da = pytest.importorskip("dask.array")
pytest.importorskip("distributed")

from fastmf import distributed as mfd  # noqa: E402
from fastmf._outcomes import MESSAGES  # noqa: E402
from fastmf.distributed import _MESSAGE  # noqa: E402

FIELDS = ("mean", "var", "log_partition", "converged", "n_iter", "residual", "message")


def machine(rng, n_visible=12, n_hidden=7):
    weights = rng.normal(scale=0.6, size=(n_visible, n_hidden))
    return mf.RBM(
        weights, mf.Bernoulli(rng.normal(size=n_visible)), mf.Bernoulli(np.zeros(n_hidden))
    )


def same(lazy, eager):
    for name in FIELDS:
        left, right = getattr(lazy, name), getattr(eager, name)
        for x, y in zip(*(v if isinstance(v, tuple) else (v,) for v in (left, right)), strict=True):
            assert x.shape == y.shape
            found = x.compute(scheduler="threads", num_workers=2)
            assert x.dtype == found.dtype
            np.testing.assert_array_equal(found, y)


def test_tap_of_blocks_is_tap_of_all_rows():
    rng = np.random.default_rng(0)
    model, X = machine(rng), (rng.random((53, 12)) < 0.4).astype(float)
    lazy = mfd.tap(model, da.from_array(X, chunks=(17, 5)))
    assert lazy.mean[0].chunks == ((17, 17, 17, 2), (12,))
    same(lazy, mf.tap(model, X))


def test_whatever_has_rows_is_cut_like_them():
    rng = np.random.default_rng(5)
    model, X = machine(rng), (rng.random((11, 12)) < 0.4).astype(float)
    field, mask = rng.normal(size=(11, 12)), rng.random((11, 12)) < 0.5
    rows = da.from_array(X, chunks=(4, 12))
    values, lazy_values = np.where(mask, X, np.nan), da.where(mask, rows, np.nan)
    lazy = mfd.tap(model, field=da.from_array(field, chunks=(4, 5)), clamp=values)
    same(lazy, mf.tap(model, field=field, clamp=values))
    lazy = mfd.tap(model, precision=(abs(field), None), clamp=(lazy_values, None))
    same(lazy, mf.tap(model, precision=(abs(field), None), clamp=(values, None)))
    empty = da.concatenate([rows[:4], rows[:0], rows[4:]])
    same(mfd.tap(model, empty), mf.tap(model, X))


def test_it_goes_on_from_earlier_results():
    rng = np.random.default_rng(9)
    model, X = machine(rng), (rng.random((11, 12)) < 0.4).astype(float)
    rows = da.from_array(X, chunks=((4, 1, 6), 12))
    first, lazy = mf.tap(model, X, max_iter=3), mfd.tap(model, rows, max_iter=3)
    expected = mf.tap(model, first, field=X)
    same(mfd.tap(model, lazy, field=rows), expected)
    same(mfd.tap(model, lazy, field=X), expected)
    # A row of its own for each row, even where a block has just one.
    same(mfd.tap(model, first, field=da.from_array(X, chunks=(1, 12))), expected)
    one = mf.tap(model)
    same(mfd.tap(model, one, field=rows), mf.tap(model, one, field=X))


def test_rows_that_do_not_converge_say_so_in_their_block():
    rng = np.random.default_rng(2)
    model, X = machine(rng), (rng.random((9, 12)) < 0.4).astype(float)
    found = mfd.tap(model, da.from_array(X, chunks=4), max_iter=2, damping=0.0)
    assert not found.converged.compute().any()
    assert all(text.startswith("not converged") for text in found.message.compute())


def test_there_is_room_for_every_message():
    messages = list(MESSAGES.values())
    assert all(np.array(text, _MESSAGE) == text for text in messages)


def test_scores_of_blocks_are_scores_of_all_rows():
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(3)
    X = (rng.random((60, 10)) < 0.3).astype(float)
    rbm = mf.GeneralizedRBM(4, n_epochs=2, random_state=0).fit(X)
    rows = da.from_array(X, chunks=(25, 10))
    lazy = mfd.score_samples(rbm, rows)
    # The product of the data with the weights is BLAS, whose sums depend on the number of rows.
    np.testing.assert_allclose(lazy.compute(), rbm.score_samples(X), rtol=1e-13)
    # A selection may leave nothing of a block.
    few = np.arange(60) < 20
    lazy = mfd.score_samples(rbm, rows[da.from_array(few, chunks=25)])
    np.testing.assert_allclose(lazy.compute(), rbm.score_samples(X[few]), rtol=1e-13)


def test_bad_input_is_met_at_the_door():
    rng = np.random.default_rng(4)
    model, X = machine(rng), da.zeros((6, 12), chunks=3)
    with pytest.raises(TypeError, match="clamp must be a Dask array"):
        mfd.tap(model, np.zeros((6, 12)))
    with pytest.raises(ValueError, match="history"):
        mfd.tap(model, X, history=True)
    with pytest.raises(ValueError, match="order"):
        mfd.tap(model, X, order=7)
    with pytest.raises(ValueError, match="12"):
        mfd.tap(model, da.zeros((6, 11), chunks=3))
    with pytest.raises(ValueError, match="equally many rows"):
        mfd.tap(model, X, field=da.zeros((5, 12), chunks=3))
    with pytest.raises(ValueError, match=r"clamp of shape \(5, 12\) beside 6 rows"):
        mfd.tap(model, X, clamp=np.zeros((5, 12)))
    with pytest.raises(ValueError, match="two axes"):
        mfd.tap(model, X[0])
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        mfd.tap(model, X[X[:, 0] > 0])
    with pytest.raises(ValueError, match="array of starts"):
        mfd.tap(model, 6, field=X)
    with pytest.raises(TypeError, match="X must be a Dask array"):
        mfd.score_samples(None, np.zeros((6, 12)))
    with pytest.raises(ValueError, match="n_features"):
        mfd.score_samples(None, X[0])
