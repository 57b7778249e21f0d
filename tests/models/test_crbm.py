import numpy as np
import pytest
from scipy import sparse

from fastmf.models import CRBM, exact, load


def crbm(n=4, m=3, f=2, dtype=float):
    rng = np.random.default_rng(0)
    shapes = (n, m), (n, f), (m, f), n, m
    return CRBM(*(rng.normal(size=shape).astype(dtype) for shape in shapes))


def test_free_energy_is_the_sum_over_hidden_states():
    model, X = crbm(), np.random.default_rng(1).normal(size=(2, 2))
    hidden = ((np.arange(8)[:, None] >> np.arange(3)) & 1).astype(float)
    for v in np.eye(4):
        for x in X:
            energies = model.energy(np.tile(v, (8, 1)), hidden, np.tile(x, (8, 1)))
            expected = -np.logaddexp.reduce(-energies)
            assert model.free_energy(v[None], x[None])[0] == pytest.approx(expected, abs=1e-12)


def test_given_features_it_is_an_rbm():
    model, x = crbm(), np.array([0.5, -1.0])
    states = ((np.arange(16)[:, None] >> np.arange(4)) & 1).astype(float)
    log_partition = np.logaddexp.reduce(-model.free_energy(states, np.tile(x, (16, 1))))
    assert exact(model.given(x)).log_partition == pytest.approx(log_partition, abs=1e-12)


def test_sparse_features_give_the_same_fields():
    model, X = crbm(), np.array([[0.0, 2.0], [1.0, 0.0]])
    for dense, other in zip(model.fields(X), model.fields(sparse.csr_matrix(X)), strict=True):
        np.testing.assert_allclose(dense, other, atol=1e-15)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("m", [0, 3])
def test_it_comes_back_from_a_file(tmp_path, dtype, m):
    model = crbm(m=m, dtype=dtype)
    model.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert repr(back) == repr(model)
    for name in ("weights", "visible_weights", "hidden_weights", "visible_bias", "hidden_bias"):
        np.testing.assert_array_equal(getattr(back, name), getattr(model, name), strict=True)


def test_bad_parameters_are_refused():
    good = crbm()
    parts = [good.weights, good.visible_weights, good.hidden_weights, good.visible_bias]
    with pytest.raises(ValueError, match=r"hidden_bias must have shape \(3,\)"):
        CRBM(*parts, np.zeros(4))
    with pytest.raises(ValueError, match="hidden_bias must be finite"):
        CRBM(*parts, np.full(3, np.nan))
    with pytest.raises(ValueError, match=r"hidden_bias must be finite, got .* in float32"):
        CRBM(*(part.astype(np.float32) for part in parts), np.full(3, 1e300))
    with pytest.raises(TypeError, match="hidden_bias must be an array of real numbers"):
        CRBM(*parts, np.array(["a"] * 3))


def test_features_of_any_kind_give_the_same_fields():
    model, X = crbm(), np.array([[0.0, 2.0], [1.0, 0.0]])
    for kind in (np.ndarray.tolist, sparse.csr_matrix, sparse.lil_matrix):
        for part, other in zip(model.fields(X), model.fields(kind(X)), strict=True):
            np.testing.assert_array_equal(part, other)


@pytest.mark.parametrize(
    "X, error",
    [
        (np.zeros((1, 5)), r"shape \(..., 2\)"),
        (sparse.csr_array(np.zeros((1, 5))), r"shape \(..., 2\)"),
        ([[0.0, np.nan]], "X must be finite"),
        (sparse.csr_array([[0.0, np.nan]]), "finite fields, got NaN"),
        (sparse.lil_array([[np.inf, 1.0]]), "finite fields"),
        (np.full((1, 2), 1e308), "finite fields, got NaN or infinity in float64"),
    ],
)
def test_bad_features_are_refused(X, error):
    with pytest.raises(ValueError, match=error):
        crbm().fields(X)
    with pytest.raises(TypeError, match="real numbers"):
        crbm().free_energy(np.zeros((1, 4)), [["a", "b"]])
    for bad in ("text", None):
        with pytest.raises((ValueError, TypeError), match="X must"):
            crbm().fields(bad)
