"""Genotypes in bytes, memory-mapped files and sparse matrices: fits as of arrays."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

import fastmf as mf
from fastmf.estimators.common.data import mean_and_deviation

KNOWN = {"noise_variance": 1.0, "slab_variance": 0.1, "inclusion_probability": 0.02}
pytestmark = pytest.mark.usefixtures("fine")
SLOW, WIDE = pytest.mark.slow, (60, 150)


def genotypes(n, p, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.binomial(2, rng.uniform(0.05, 0.5, p), (n, p)).astype(np.int8)
    X[:, 1::10] = X[:, ::10][:, : len(range(1, p, 10))]  # copies
    X[:, 4] = 1  # constant
    return X, X[:, 2] - X[:, 7] + rng.normal(size=n)


def stored(X, kind, folder):
    if "memmap" in kind:
        path = folder / f"{len(list(folder.iterdir()))}.npy"
        np.save(path, X.astype(np.float32 if "float32" in kind else np.int8))
        return np.load(path, mmap_mode="r")
    return {"csr": sparse.csr_array, "csc": sparse.csc_matrix, "int8": np.asarray}[kind](X)


@pytest.mark.parametrize(
    "kind, shape",
    [
        *((kind, (120, 40)) for kind in ("memmap", "csr")),
        *((kind, WIDE) for kind in ("int8", "csr")),
        *(pytest.param(kind, WIDE, marks=SLOW) for kind in ("memmap", "float32 memmap", "csc")),
    ],
)
def test_fits_are_those_of_arrays(kind, shape, tmp_path, monkeypatch):
    X, y = genotypes(*shape)
    rows = np.random.default_rng(1).binomial(2, 0.3, (7, shape[1])).astype(np.int8)
    flat = {"unpenalised": [3, 8], "fit_intercept": False}
    single = {"blocks": None, "standardize": False}
    for options in (KNOWN, KNOWN | flat, KNOWN | single, *([{}] if kind == "int8" else [])):
        dense = mf.SpikeSlabRegressor(**options).fit(X.astype(float), y)
        with monkeypatch.context() as patch:
            patch.setattr("fastmf._common.rows.BLOCK_ENTRIES", 4700)
            ours = mf.SpikeSlabRegressor(**options).fit(stored(X, kind, tmp_path), y)
            predicted = ours.predict(stored(rows, kind, tmp_path), return_std=True)
        rtol, atol = (1e-4, 1e-3) if options else (0.02, 0.1)
        for name in ("coef_", "coef_var_", "inclusion_probability_", "intercept_"):
            expected = getattr(dense, name)
            np.testing.assert_allclose(getattr(ours, name), expected, rtol=rtol, atol=1e-4)
        assert ours.log_evidence_ == pytest.approx(dense.log_evidence_, abs=atol)
        np.testing.assert_array_equal(ours.blocks_, dense.blocks_)
        for mine, other in zip(
            predicted, dense.predict(rows.astype(float), return_std=True), strict=True
        ):
            np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["int8", pytest.param("csr", marks=pytest.mark.slow)])
def test_weights_files_and_reports(kind, tmp_path, monkeypatch):
    X, y = genotypes(60, 80)
    weights = np.random.default_rng(0).integers(0, 3, 60)
    dense = mf.SpikeSlabRegressor(**KNOWN).fit(X.astype(float), y, weights)
    monkeypatch.setattr("fastmf._common.rows.BLOCK_ENTRIES", 4700)
    ours = mf.SpikeSlabRegressor(**KNOWN).fit(stored(X, kind, tmp_path), y, weights)
    np.testing.assert_allclose(ours.coef_, dense.coef_, atol=1e-5)
    np.testing.assert_allclose(ours.log_evidence_, dense.log_evidence_, atol=1e-3)
    ours.save(tmp_path / "fit.npz")
    loaded = mf.SpikeSlabRegressor.load(tmp_path / "fit.npz")
    for a, b in zip(*(m.predict(X, return_std=True) for m in (ours, loaded)), strict=True):
        np.testing.assert_array_equal(a, b)
    for first, second in zip(ours.credible_sets(), dense.credible_sets(), strict=True):
        assert set(first.features) == set(second.features)
    draws = ours.sample_coefficients(100, 0)
    np.testing.assert_allclose(draws.mean(0), dense.sample_coefficients(100, 0).mean(0), atol=0.05)


def test_standardised_moments_of_rows():
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(50, 4)) * [1, 1e-3, 1e3, 0] + 1e5, rng.random(50)
    mean, deviation = mean_and_deviation("X", X, True, weights)
    expected = np.average(X, axis=0, weights=weights)
    np.testing.assert_allclose(mean, expected, rtol=1e-14)
    square = np.average((X - expected) ** 2, axis=0, weights=weights)
    np.testing.assert_allclose(deviation, np.sqrt(square), rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("shape", [(8000, 200), pytest.param((240, 5000), marks=pytest.mark.slow)])
def test_memory_is_that_of_bytes(shape, monkeypatch):
    monkeypatch.setattr("fastmf._common.rows.BLOCK_ENTRIES", 50_000)
    X, y = genotypes(*shape)
    y = X[:, 2] - X[:, 7] + 0.2 * np.random.default_rng(0).normal(size=len(X))
    model = mf.SpikeSlabRegressor(
        noise_variance=0.04, slab_variance=0.3, inclusion_probability=2 / X.shape[1], blocks=None
    )
    model.fit(X, y).predict(X[:1], return_std=True)  # compiles, which does not count
    tracemalloc.start()
    model.fit(X, y)
    model.predict(X, return_std=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert set(np.flatnonzero(model.inclusion_probability_ > 0.5)) == {2, 7}
    assert peak < 0.6 * 8 * X.size, f"{peak / X.nbytes:.1f} times X"  # 8 for a copy


@pytest.mark.parametrize("kind", ["int8", "csr", "csc"])
def test_classes_take_them_too(kind, tmp_path):
    X, y = genotypes(60, 20)
    options = {"slab_variance": 0.5, "inclusion_probability": 0.1}
    ours = mf.SpikeSlabClassifier(**options).fit(stored(X, kind, tmp_path), y > 0)
    dense = mf.SpikeSlabClassifier(**options).fit(X.astype(float), y > 0)
    np.testing.assert_allclose(ours.coef_, dense.coef_, atol=1e-9)
    probability = ours.predict_proba(stored(X, kind, tmp_path))
    np.testing.assert_allclose(probability, dense.predict_proba(X), atol=1e-9)
