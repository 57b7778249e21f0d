import numpy as np

import fastmf as mf
from fastmf.inference.fixed_point import stacked


def test_stacked_rows_are_those_of_both():
    rng = np.random.default_rng(0)
    below, above = (mf.Bernoulli(rng.normal(size=n)) for n in (8, 4))
    model = mf.RBM(rng.normal(size=(8, 4)), below, above)
    X = (rng.random((5, 8)) < 0.5).astype(float)
    whole = mf.tap(model, X)
    both = stacked(mf.tap(model, X[:2], history=True), mf.tap(model, X[2:]))
    for name in ("mean", "var", "b", "a"):
        for part, expected in zip(getattr(both, name), getattr(whole, name), strict=True):
            np.testing.assert_allclose(part, expected, atol=1e-12)
    np.testing.assert_allclose(both.log_partition, whole.log_partition, atol=1e-12)
    for name in ("converged", "n_iter", "message"):
        np.testing.assert_array_equal(getattr(both, name), getattr(whole, name))
    assert both.history is None
