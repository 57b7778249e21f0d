"""Cases of the step of gradient ascent."""

import numpy as np

from fastmf.kernels.linear.product import pack, product_address
from fastmf.kernels.training.ascent import AscentStep, Pairs, ascent_work
from fastmf.reference.linear.product import unpacked
from kernel_cases.case import Case, chosen
from kernel_cases.machines import rbm


def pairs_of(size, dtype, rows=None):
    """Products of units, of both orders, and a gradient to add; "rows" are visible units."""
    rng, units, n_rows = np.random.default_rng(5), chosen(rows, size.n_visible), 4 * size.n_rows - 3
    lefts = rng.normal(size=(n_rows, size.n_visible)).astype(dtype)[:, units]
    rights = rng.normal(size=(n_rows, size.n_hidden)).astype(dtype)
    added = rng.normal(size=(size.n_visible, size.n_hidden)).astype(dtype)[units]
    packed = pack(rights / rights.dtype.type(size.n_rows))
    return Pairs(size.n_rows, np.ascontiguousarray(lefts), packed, added)


def ascent_arguments(size, dtype, rows=None):
    """Arguments of `ascend`; "rows" are visible units."""
    model, rng = rbm(size, dtype), np.random.default_rng(7)
    units, shape = chosen(rows, size.n_visible), (size.n_visible, size.n_hidden)
    velocity = rng.normal(size=shape).astype(dtype)[units]
    below, above = (rng.normal(size=(2, n)).astype(dtype) for n in shape)
    weights = np.array(model.weights[units])
    weights[:, 0] = 0  # no sign
    packed = tuple((pack(w), pack(w)) for w in (weights, weights.T))
    products = np.zeros((len(packed[1][0]), size.n_hidden), dtype)
    return (
        *(product_address(dtype), pairs_of(size, dtype, rows), weights, velocity),
        *(AscentStep(rate=0.1, momentum=0.5, l2=0.2, l1=0.3),),
        *((np.ascontiguousarray(below[:, units]), above), packed),
        *(ascent_work(weights.shape, weights.dtype), (np.zeros((2, len(units)), dtype), products)),
    )


def _results(arguments):
    _, _, weights, velocity, *_, packed, _, ((gradient_dots, squared_norms), _) = arguments
    shapes = zip(packed, weights.shape[::-1], strict=True)
    above, below = ([unpacked(panels, n) for panels in of_layer] for of_layer, n in shapes)
    return {"velocity": velocity, "weights": weights,
            "gradient_dots": gradient_dots, "squared_norms": squared_norms,
            "above": np.hstack(above), "below": np.vstack(below).T}  # fmt: skip


CASES = [
    Case("training.ascent.ascend", "decayed_and_centred", ascent_arguments,
         _results,
         {"float64": 1e-12, "float32": 1e-4}, large=True),
]  # fmt: skip
