"""Arguments of the kernels: padding, types of messages, and how rows are divided."""

import numpy as np
import pytest
from bp_models import loopy

import fastmf as mf
from fastmf._jit.vectors import lanes_of
from fastmf.inference.bp import _kernel_arguments
from fastmf.inference.bp._binary_units import BinaryUnits
from fastmf.inference.bp._options import BPOptions
from fastmf.kernels.bp.arguments import PADDING_MULTIPLE


def units(scale=0.7, **options):
    return BinaryUnits(loopy(scale=scale, **options), (None, None))


@pytest.mark.parametrize("scale", [0.01, 1.0, 10.0, 100.0, 339.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_so_many_messages_are_numbers(dtype, scale):
    weights = np.full((9, 7), min(scale, 39.0) if dtype == "float32" else scale, dtype)
    model = mf.RBM(weights, *loopy(dtype=dtype).layers)
    settings, _, _ = _kernel_arguments.prepared(
        BPOptions(), BinaryUnits(model, (None, None)), dtype, 1
    )
    message = np.exp(weights[0, 0])
    with np.errstate(over="raise", under="raise"):
        for sign in (1, -1):
            np.power(message, sign * settings.flush_every)
            np.power(np.float64(message), sign * settings.log_every)
            np.power(np.float64(message), sign * settings.max_factors)
    assert settings.log_every % settings.flush_every == 0 < settings.log_every


def test_padding_has_no_coupling_and_is_zero():
    for algorithm in ("sum", "max", "mixed"):
        options = BPOptions(algorithm=algorithm)
        _, problem, record = _kernel_arguments.prepared(options, units(), float, 3)
        assert record.hidden.shape == (3, PADDING_MULTIPLE[algorithm])
        assert (problem.weights[:, 7:] == 0).all() and (problem.exponentials[:, 7:] == 1).all()
        assert (np.exp(problem.hidden_field[:, 7:]) == 0).all()


def test_large_weights_are_computed_in_double_precision():
    small, large = units(dtype="float32"), units(scale=30.0, dtype="float32")
    assert 40 < large.max_weight < 340
    assert _kernel_arguments.message_dtype(BPOptions(), small) == np.float32
    assert _kernel_arguments.message_dtype(BPOptions(), large) == np.float64
    huge = units(scale=1e4)
    with pytest.raises(ValueError, match="weights must be at most 340"):
        _kernel_arguments.message_dtype(BPOptions(), huge)
    assert _kernel_arguments.message_dtype(BPOptions(algorithm="max"), huge) == np.float64


def test_messages_are_kept_for_each_row_only_where_they_are_read():
    def n_messages(n_rows=5, has_init=False, **options):
        return _kernel_arguments.message_layout(BPOptions(**options), units(), n_rows, has_init)[1][
            0
        ]

    assert n_messages() == 1
    assert n_messages(messages=True) == n_messages(pairwise=True) == n_messages(has_init=True) == 5
    assert n_messages(pairwise="mean") == 5
    assert n_messages(algorithm="mixed", has_init=True) == 1


@pytest.mark.parametrize("algorithm", ["sum", "mixed"])
@pytest.mark.parametrize("n_hidden", [1, 480, 481, 500, 512, 1000, 1024])
def test_rows_are_whole_vectors_and_no_multiple_of_4_kb_apart(n_hidden, algorithm):
    n_padded, multiple = _kernel_arguments._padded(n_hidden, algorithm), PADDING_MULTIPLE[algorithm]
    assert n_padded % multiple == n_padded % lanes_of("float32") == 0
    assert 0 <= n_padded - n_hidden < 2 * multiple
    assert n_padded % 512 != 0


def test_what_is_not_wanted_is_not_compiled():
    def settings(**options):
        return _kernel_arguments.prepared(BPOptions(**options), units(), float, 1)[0]

    assert settings().bethe != 0 == settings(algorithm="max").bethe
    assert settings(algorithm="max").add_softplus == 0 != settings(algorithm="mixed").add_softplus
