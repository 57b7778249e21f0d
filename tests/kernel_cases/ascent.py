"""Cases of the step of gradient ascent."""

import numpy as np

from fastmf.kernels.linear.product import pack, product_address
from fastmf.kernels.training.ascent import AscentStep, Pairs, ascent_memory
from fastmf.reference.linear.product import unpacked
from kernel_cases.case import Case, chosen
from kernel_cases.machines import rbm


def pairs_of(size, dtype, rows=None):
    """Rows of units of all kinds, and a gradient to add; "rows" are visible units."""
    rng, units, shape = np.random.default_rng(5), chosen(rows, size.n_visible), (4, size.n_rows)
    lefts = rng.normal(size=(*shape, size.n_visible)).astype(dtype)[..., units]
    rights = rng.normal(size=(*shape, size.n_hidden)).astype(dtype)
    added = rng.normal(size=(size.n_visible, size.n_hidden)).astype(dtype)[units]
    lefts, rights = list(map(np.ascontiguousarray, lefts)), list(rights)
    lefts[2], rights[2] = lefts[2][:-3].copy(), np.hstack([lefts[2], rights[2]])[:-3]
    return Pairs(tuple(lefts), tuple(rights), (0, 0, lefts[2].shape[1], 0), added)


def ascent_arguments(size, dtype, rows=None, moves_fields=False):
    """Arguments of `ascend`; "rows" are visible units."""
    model, rng = rbm(size, dtype), np.random.default_rng(7)
    units, shape = chosen(rows, size.n_visible), (size.n_visible, size.n_hidden)
    velocity = rng.normal(size=shape).astype(dtype)[units]
    below, above = (rng.normal(size=(2, n)).astype(dtype) for n in shape)
    weights = np.array(model.weights[units])
    weights[:, 0] = 0  # no sign
    packed = tuple((pack(w), pack(w)) for w in (weights, weights.T))
    fields = [tuple(rng.normal(size=(2, w.shape[0])).astype(dtype)) for w in (weights, weights.T)]
    return (
        *(product_address(dtype), pairs_of(size, dtype, rows), weights, velocity),
        AscentStep(rate=0.1, momentum=0.5, l2=0.2, l1=0.3, moves_fields=moves_fields),
        *((np.ascontiguousarray(below[:, units]), above), tuple(fields), packed),
        *ascent_memory(weights.shape, weights.dtype),
    )


def from_rows(size, dtype, rows=None):
    """Arguments with offsets and gradients by fields that are computed from the rows."""
    return ascent_arguments(size, dtype, rows, moves_fields=True)


def _results(arguments):
    _, _, weights, velocity, _, sides, fields, packed, _, results = arguments
    shapes = zip(packed, weights.shape[::-1], strict=True)
    above, below = ([unpacked(panels, n) for panels in of_layer] for of_layer, n in shapes)
    return {"velocity": velocity, "weights": weights, "below": sides[0], "above": sides[1],
            "move_below": results.below, "move_above": results.above,
            "squared_norm": results.squared_norm, "fields": np.hstack(sum(fields, ())),
            "packed_above": np.hstack(above), "packed_below": np.vstack(below).T}  # fmt: skip


TOLERANCES = {"float64": 1e-12, "float32": 1e-4}
CASES = [
    Case("training.ascent.ascend", "decayed_and_centred", ascent_arguments, _results, TOLERANCES),
    Case("training.ascent.ascend", "from_rows", from_rows, _results, TOLERANCES, large=True),
]
