"""Arguments of the kernels: padding, types of messages, and how rows are divided."""

import numpy as np
import pytest
from bp_models import loopy

import fastmf as mf
from fastmf.inference.bp import _kernel_arguments
from fastmf.inference.bp._binary_units import BinaryUnits
from fastmf.inference.bp._options import BPOptions


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


def test_large_weights_are_computed_in_double_precision():
    small, large = units(dtype="float32"), units(scale=30.0, dtype="float32")
    assert 40 < large.max_weight < 340
    assert _kernel_arguments.message_dtype(BPOptions(), small) == np.float32
    assert _kernel_arguments.message_dtype(BPOptions(), large) == np.float64
    huge = units(scale=1e4)
    with pytest.raises(ValueError, match="weights must be at most 340"):
        _kernel_arguments.message_dtype(BPOptions(), huge)
    assert _kernel_arguments.message_dtype(BPOptions(algorithm="max"), huge) == np.float64
