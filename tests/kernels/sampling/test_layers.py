import numpy as np
import pytest

from fastmf._threads.workers import in_parallel
from fastmf.kernels.linear.product import pack, product_address
from fastmf.kernels.sampling.layers import (
    LayersPath,
    SampledLayer,
    anneal_layers,
    layers_work,
)
from fastmf.models import RBM
from fastmf.priors import Bernoulli, Ising
from fastmf.priors._compiled import units_of
from fastmf.reference.sampling.layers import anneal_layers as numpy_layers
from fastmf.reference.sampling.random import uniforms

VALUES = {Bernoulli: (0.0, 1.0), Ising: (-1.0, 1.0)}


def arguments(visible, hidden, dtype, n_sweeps=5, seed=7, n_rows=9):
    rng = np.random.default_rng(0)
    model = RBM(
        rng.normal(size=(13, 6)).astype(dtype),
        visible(rng.normal(size=13).astype(dtype)),
        hidden(rng.normal(size=6).astype(dtype)),
    )
    v = rng.choice(VALUES[visible], (n_rows, 13)).astype(dtype)
    units = [units_of(prior, dtype, ("draws", "log_partition")) for prior in model.layers]
    layers = (
        SampledLayer(units[0], pack(model.transposed)),
        SampledLayer(units[1], pack(model.weights)),
    )
    path = LayersPath(*(np.zeros(n, dtype) for n in model.sizes), np.ones(n_sweeps + 1))
    chains = v, np.zeros((n_rows, 6), dtype)
    work = layers_work(*layers, dtype, n_workers=3)
    return product_address(dtype), *layers, path, np.uint64(seed), chains, np.zeros(n_rows), work


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("visible", "hidden"), [(Bernoulli, Bernoulli), (Ising, Bernoulli)])
def test_kernel_and_twin_draw_the_same(visible, hidden, dtype):
    fast, plain = (arguments(visible, hidden, dtype) for _ in range(2))
    start = fast[5][0].copy()
    anneal_layers(*fast)
    numpy_layers(*plain)
    for compiled, twin in zip(fast[5], plain[5], strict=True):
        np.testing.assert_array_equal(compiled, twin)
    assert set(np.unique(fast[5][0])) == set(VALUES[visible])
    assert (fast[5][0] != start).any() and not fast[6].any()


def test_number_of_threads_and_company_do_not_matter():
    many = arguments(Bernoulli, Bernoulli, float, n_rows=60)
    one = arguments(Bernoulli, Bernoulli, float, n_rows=60)
    few = arguments(Bernoulli, Bernoulli, float, n_rows=4)
    in_parallel(anneal_layers, many, 3)
    for case in (one, few):
        anneal_layers(*case)
    np.testing.assert_array_equal(many[5][0], one[5][0])
    np.testing.assert_array_equal(many[5][0][:4], few[5][0])


def test_uniforms_are_uniform_and_uncorrelated():
    u = np.stack([uniforms(3, step, (400, 50)) for step in range(4)])
    n = u.size
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 4 / np.sqrt(12 * n)
    assert abs((u**2).mean() - 1 / 3) < 4 * np.sqrt(4 / 45 / n)
    u = (u - 0.5) * np.sqrt(12)
    for other in (u[:, :, 1:], u[:, 1:, :], u[1:]):
        same = u[: other.shape[0], : other.shape[1], : other.shape[2]]
        assert abs((same * other).mean()) < 4 / np.sqrt(other.size)
