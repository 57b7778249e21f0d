import numpy as np
import pytest
from scipy.sparse import csr_array

import fastmf as mf

X = np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


def test_an_instance_of_one_unit_stands_for_all():
    unit, wrong = mf.Gaussian(0.5, 2.0), mf.Gaussian(np.zeros(2), 1.0)
    rbm = mf.GeneralizedRBM(3, visible=unit, hidden=unit, n_epochs=0).fit(X.astype(np.float32))
    for prior in (rbm.visible_, rbm.hidden_):
        np.testing.assert_array_equal(prior.precision, np.full(3, 2.0, np.float32))
        assert prior.field.dtype == np.float32
    for layer in ("visible", "hidden"):
        with pytest.raises(ValueError, match=f"{layer} must have 3 units"):
            mf.GeneralizedRBM(3, **{layer: wrong}).fit(X)


@pytest.mark.parametrize("factor", [1e-200, 1e200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_whose_squares_are_no_numbers_are_refused(factor, dtype):
    rows = np.random.default_rng(0).normal(size=(20, 3))
    # Powers of float32 are a tenth of those of float64.
    scale = factor if dtype is np.float64 else factor**0.1
    bad = (rows * [1.0, scale, 1.0]).astype(dtype)
    for given in (bad, csr_array(bad)):
        for make in (mf.GeneralizedRBM, mf.DeepBoltzmannMachine):
            with pytest.raises(ValueError, match=r"squares .* in column 1: (multi|divi)"):
                make(visible="gaussian").fit(given)
    good = (rows * [1.0, scale**0.5, 1.0]).astype(dtype)
    found = mf.GeneralizedRBM(2, visible="gaussian", n_epochs=1, random_state=0).fit(good)
    assert np.isfinite(found.score_samples(good)).all()
