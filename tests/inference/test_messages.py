import numpy as np
import pytest

from fastmf.inference.messages import messages
from fastmf.models import RBM, exact
from fastmf.priors import Bernoulli
from fastmf.reference import messages as twin


def problem(n, m, scale=1.0, rows=3, dtype=float):
    rng = np.random.default_rng([n, m])
    weights = (scale * rng.normal(size=(n, m))).astype(dtype)
    return (
        weights,
        rng.normal(size=(rows, n)).astype(dtype),
        rng.normal(size=(rows, m)).astype(dtype),
    )


@pytest.mark.parametrize("n, m", [(5, 1), (1, 4), (1, 1)])
@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_sum_product_is_exact_on_trees(n, m, scale):
    weights, b, c = problem(n, m, scale)
    found = messages(weights, b, c, n_iter=4)
    pairs = np.zeros_like(weights)
    for row in range(len(b)):
        answer = exact(RBM(weights, Bernoulli(b[row]), Bernoulli(c[row])))
        assert found.log_partition[row] == pytest.approx(answer.log_partition, abs=1e-9)
        for mean, expected in zip(found.mean, answer.mean, strict=True):
            np.testing.assert_allclose(mean[row], expected, atol=1e-10)
        pairs += answer.pairwise / len(b)
    np.testing.assert_allclose(found.pairs, pairs, atol=1e-10)
    assert (found.residual < 1e-10).all()


def test_max_product_on_trees_is_the_joint_map():
    weights, b, c = problem(5, 1, 2.0, rows=20)
    found = messages(weights, b, c, algorithm="max", n_iter=4)
    states = (np.arange(64)[:, None] >> np.arange(6)) & 1
    for row in range(20):
        score = states[:, :5] @ weights @ states[:, 5:].T
        values = score.diagonal() + states[:, :5] @ b[row] + states[:, 5:] @ c[row]
        decoded = np.concatenate([found.visible[row] > 0, found.hidden[row] > 0])
        np.testing.assert_array_equal(decoded, states[values.argmax()])


def test_a_converged_row_of_mixed_product_is_a_local_maximum():
    weights, b, c = problem(6, 3, rows=40)
    found = messages(weights, b, c, algorithm="mixed", n_iter=60)
    assert (found.residual < 1e-9).sum() >= 30

    def value(v, row):
        return v @ b[row] + np.logaddexp(0, v @ weights + c[row]).sum()

    for row in np.flatnonzero(found.residual < 1e-9):
        v = (found.visible[row] > 0).astype(float)
        for i in range(6):
            assert value(v, row) >= value(np.where(np.arange(6) == i, 1 - v, v), row) - 1e-12


def test_the_bethe_log_partition_is_stationary():
    weights, b, c = problem(5, 4, rows=1)
    found = messages(weights, b, c, n_iter=300)
    assert found.residual[0] < 1e-14
    for i, j in ((0, 0), (3, 2)):
        up, down = weights.copy(), weights.copy()
        up[i, j] += 1e-5
        down[i, j] -= 1e-5
        values = [messages(w, b, c, n_iter=300).log_partition[0] for w in (up, down)]
        assert (values[0] - values[1]) / 2e-5 == pytest.approx(found.pairs[i, j], abs=1e-8)


@pytest.mark.parametrize("algorithm", ["sum", "max", "mixed"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.0, 1.0, 25.0])
def test_pairs_and_extremes_against_the_twin(algorithm, dtype, scale):
    weights, b, c = problem(9, 7, scale, dtype=dtype)
    found = messages(weights, 30 * b, 30 * c, algorithm=algorithm, n_iter=3)
    assert all(np.isfinite(part).all() for part in found)
    if scale > 1:
        return
    pairs = np.zeros((1, 9, 7))
    out = np.zeros((3, 9)), np.zeros((3, 7)), np.zeros(3), np.zeros(3), pairs
    code = {"sum": 0, "max": 1, "mixed": 2}[algorithm]
    twin.messages(np.exp(weights), 30 * b, 30 * c, code, 3, 0, 0.0, 1, None, *out)
    close = 1e-9 if dtype is np.float64 else 1e-3
    np.testing.assert_allclose(found.pairs, pairs[0] / 3, atol=close)
    np.testing.assert_allclose(found.log_partition, out[2], rtol=close, atol=close)


def test_threads_do_not_change_a_bit():
    weights, b, c = problem(60, 40, 0.3, rows=50, dtype=np.float32)
    one, two = (messages(weights, b, c, n_iter=20, n_threads=k) for k in (1, 2))
    for part, other in zip(one, two, strict=True):
        np.testing.assert_array_equal(part, other)


def test_weights_out_of_range_are_refused():
    with pytest.raises(ValueError, match="weights of at most 300"):
        messages(np.full((2, 2), 1000.0), np.zeros((1, 2)), np.zeros((1, 2)))
