"""One step of gradient ascent on a matrix of couplings W, in one pass over it.

A gradient G is an average of products l_r r_r' of states of the units below and above over rows r,
and of these products times W (`Pairs`). With offsets m, l of the units below and above, and
gradients dv, dh by their fields,

    G <- G - l2 W - l1 S - (m dh' + dv l')
    velocity <- momentum velocity + rate G
    W <- W + velocity

S is a subgradient of the absolute values of the new W, between -1 and 1 where they are 0. The new W
is thus its value without S, soft-thresholded by rate l1. In preconditioned gradients S is the sign
of the old W, which does not set W to 0.
"""

from typing import NamedTuple

import numpy as np

from fastmf._common.memory import aligned
from fastmf._jit.intrinsics import fetch_and_increment, larger, row, smaller
from fastmf._jit.kernel import REORDER, kernel
from fastmf.kernels.linear.product import (
    CHUNK_ROWS,
    Work,
    add_multiple,
    copy,
    panel_width,
    product,
    set_to_zero,
)

# Rows of the layer above that a worker packs at once; more are packed again for each task.
PACKED_ROWS = 8 * CHUNK_ROWS


class AscentStep(NamedTuple):
    """Step size, momentum and weight decay."""

    rate: float  # learning rate
    momentum: float  # weight of the last step in this one
    l2: float  # weight decay: l2 W + l1 S is subtracted from the gradient (this and the next)
    l1: float
    # Whether to set offsets and gradients by fields from the rows of the gradient, and to move the
    # fields.
    moves_fields: bool = False


class Pairs(NamedTuple):
    """Rows of units of two layers, whose products are averaged to a gradient by their couplings.

    The kinds of rows are second moments of the model, second moments given the data, states of the
    model, and data. Averages of the first two are multiplied by the couplings. Averages over the
    model, of even kinds, are subtracted.
    """

    # For each kind, C-contiguous arrays that have the units below from their first column on, and
    # the units above from these columns on.
    lefts: tuple
    rights: tuple
    columns: tuple
    added: np.ndarray  # (n_left, n_right): a gradient to add; or (0, 0)


class AscentMemory(NamedTuple):
    """Scratch memory of `ascend`, with the workers on the first axis."""

    gradients: np.ndarray  # (2, width, n_columns)
    lefts: np.ndarray  # (PACKED_ROWS, width): rows of some units
    rights: np.ndarray  # (n_panels, PACKED_ROWS, width): packed rows
    above: np.ndarray  # (2, n_right): offsets and gradients by fields
    totals: np.ndarray  # float64 (2, n_units): sums over rows of the model and of the data


class AscentResults(NamedTuple):
    """Products of the gradient with offsets, and squared norms."""

    below: np.ndarray  # (n_left,): product with the offsets above
    above: np.ndarray  # (n_right,): product with the offsets below
    squared_norm: np.ndarray  # (1,): of all couplings
    # For each task, its part of `above`, (n_tasks, n_right), and of the squared norm, (n_tasks,).
    parts: np.ndarray
    squared_norms: np.ndarray


def ascent_memory(shape, dtype, n_workers=1):
    """Return work memory and results of `ascend` for couplings of a shape."""
    (n_left, n), width = shape, panel_width(dtype)
    n_tasks, n_panels = -(-n_left // width), -(-n // width)
    scratch = AscentMemory(
        aligned((n_workers, 2, width, n_panels * width), dtype),
        aligned((n_workers, PACKED_ROWS, width), dtype),
        aligned((n_workers, n_panels, PACKED_ROWS, width), dtype, np.zeros),
        aligned((n_workers, 2, n), dtype),
        aligned((n_workers, 2, max(width, n)), np.float64),
    )
    sizes = n_left, n, 1, (n_tasks, n), n_tasks
    results = AscentResults(*(np.zeros(size, dtype) for size in sizes))
    return Work(scratch, np.zeros(3, np.int64)), results  # 3: the number of tasks done


@kernel(mode="merged")
def _set_sides(kinds, columns, first, n, totals, mean, difference):
    """Set the means of some units over the data, and subtract those of the model."""
    for k in range(2):
        rows, total = kinds[2 + k], row(totals, (k, 0), n)
        set_to_zero(total)
        for r in range(rows.shape[0]):
            x = row(rows, (r, columns[2 + k] + first), n)
            for j in range(n):
                total[j] += x[j]
    n_model, n_data = larger(1, kinds[2].shape[0]), larger(1, kinds[3].shape[0])
    for j in range(n):
        of_data = totals[1, j] / n_data
        mean[j], difference[j] = of_data, of_data - totals[0, j] / n_model


@kernel(mode="merged")
def _pack_rows(pairs, kind, chunk, n_rows, first, n_units, lefts, rights, begin, n):
    """Copy rows of model and data: some units below, and panels of signed averages above."""
    n_model, n_data = pairs.lefts[kind].shape[0], pairs.lefts[kind + 1].shape[0]
    dtype = lefts.dtype.type
    for r in range(n_rows):
        of_data, k, scale = np.int64(0), chunk + r, -1 / larger(1, n_model)
        if k >= n_model:
            of_data, k, scale = np.int64(1), k - n_model, 1 / n_data
        below, above = pairs.lefts[kind + of_data], pairs.rights[kind + of_data]
        copy(row(below, (k, first), n_units), row(lefts, (r, 0), n_units))
        above = row(above, (k, pairs.columns[kind + of_data]), n)
        _pack_row(above, dtype(scale), begin + r, rights)


@kernel(mode="merged")
def _pack_row(source, factor, r, packed):
    """Copy a multiple of a row to panels of columns."""
    width = packed.shape[2]
    for p in range(packed.shape[0]):
        target = row(packed, (p, r, 0), smaller(width, source.shape[0] - p * width))
        for k in range(target.shape[0]):
            target[k] = factor * source[p * width + k]


@kernel(mode="merged")
def _add_products(gradients, weights, first, n_units, second):
    """Add products of rows, of second moments times the couplings, to the gradient."""
    n = weights.shape[1]
    for i in range(n_units):
        w, total = row(weights, (first + i, 0), n), row(gradients, (0, i, 0), n)
        p = row(gradients, (1, i, 0), n)
        for j in range(n):
            total[j] += w[j] * p[j] if second else p[j]


@kernel(mode="merged")
def _sum_pairs(address, pairs, weights, first, n_units, gradients, rows, is_first):
    """Set rows of `gradients[0]` to the gradient by the couplings of some units (`Pairs`).

    Rows above are packed once for all tasks of a worker, if all of them fit in its memory.
    """
    (lefts, rights), n, start, into = rows, weights.shape[1], np.int64(0), np.int64(0)
    n_plain = pairs.lefts[2].shape[0] + pairs.lefts[3].shape[0]
    n_second = pairs.lefts[0].shape[0] + pairs.lefts[1].shape[0]
    all_fit = n_plain + n_second <= PACKED_ROWS
    n_panels = rights.shape[0] if is_first or not all_fit else 0
    for kind in (2, 0):
        second = kind == 0
        begin = n_plain if second and all_fit else np.int64(0)
        for chunk in range(0, n_second if second else n_plain, PACKED_ROWS):
            n_rows = smaller(PACKED_ROWS, (n_second if second else n_plain) - chunk)
            packed, panels = rights[:, begin : begin + n_rows], rights[:n_panels]
            _pack_rows(pairs, kind, chunk, n_rows, first, n_units, lefts, panels, begin, n)
            of_units = lefts[:n_rows, :n_units].T
            product(address, of_units, n_units, start, packed, gradients[into], n)
            if into == 1:
                _add_products(gradients, weights, first, n_units, second)
            into = np.int64(1)
    for i in range(n_units):
        total = row(gradients, (0, i, 0), n)
        if into == 0:
            set_to_zero(total)
        if pairs.added.shape[0] > 0:
            add_multiple(weights.dtype.type(1), row(pairs.added, (first + i, 0), n), total)


@kernel(mode="merged")
def finish_gradient(weights, gradient, l2, below, above):
    """Subtract weight decay and the terms of centring from the gradient of one unit."""
    (offset, field_gradient), (offsets, field_gradients) = below, above
    decay = weights.dtype.type(l2)
    for j in range(weights.shape[0]):
        g = gradient[j] - decay * weights[j]
        gradient[j] = g - (offset * field_gradients[j] + field_gradient * offsets[j])


@kernel(mode="merged")
def ascend_row(weights, gradient, velocity, step, offsets):
    """Move the couplings of one unit along their gradient, from which l1 S is subtracted.

    Returns the product of gradient and offsets, and the squared norm of the couplings. There are
    two loops, as LLVM does not vectorise a loop that needs many checks for overlapping arrays.
    """
    dtype = weights.dtype.type
    rate, momentum, threshold = dtype(step[0]), dtype(step[1]), dtype(step[0] * step[2])
    zero, inverse = dtype(0), dtype(1 / step[0] if step[0] > 0 else 0)
    gradient_dot = squared_norm = zero
    for j in range(weights.shape[0]):
        change = momentum * velocity[j] + rate * gradient[j]
        weight = weights[j] + change
        decay = larger(-threshold, smaller(threshold, weight))
        # Selected, as a rounded difference need not be 0.
        weight = zero if abs(weight) <= threshold else weight - decay
        weights[j], velocity[j] = weight, change - decay
        gradient[j] -= inverse * decay
        squared_norm += weight * weight
    for j in range(weights.shape[0]):
        gradient_dot += gradient[j] * offsets[j]
    return gradient_dot, squared_norm


@kernel(mode="merged")
def _square(source, target):
    for k in range(target.shape[0]):
        target[k] = source[k] * source[k]


@kernel(mode="merged")
def _pack(weights, first, n_units, packed):
    """Copy the couplings of a panel of units, and their squares, to the panels of both layers."""
    (above, squares_above), (below, squares_below) = packed
    n, width = weights.shape[1], above.shape[2]
    for p in range(above.shape[0]):
        n_columns = smaller(width, n - p * width)
        for i in range(first, first + n_units):
            w, copied = row(weights, (i, p * width), n_columns), row(above, (p, i, 0), n_columns)
            for k in range(n_columns):
                copied[k] = w[k]
            if squares_above.shape[0] > 0:
                _square(copied, row(squares_above, (p, i, 0), n_columns))
    if below.shape[0] == 0:
        return
    task = first // width
    panel = below[task]
    for j in range(n):
        for i in range(n_units):
            panel[j, i] = weights[first + i, j]
    if squares_below.shape[0] > 0:
        for j in range(n):
            _square(row(below, (task, j, 0), width), row(squares_below, (task, j, 0), width))


@kernel(mode="merged")
def _add_parts(results):
    """Add the parts of all tasks."""
    set_to_zero(results.above)
    results.squared_norm[0] = 0
    for task in range(results.parts.shape[0]):
        results.squared_norm[0] += results.squared_norms[task]
        part = row(results.parts, (task, 0), results.above.shape[0])
        add_multiple(part.dtype.type(1), part, results.above)


@kernel(mode="merged")
def _move_fields(side, products, fields, step, squared_norm):
    """Move the fields of a layer; the squared norm is infinite if one that was finite is not."""
    (field, velocity), dtype = fields, side.dtype.type
    for i in range(field.shape[0]):
        change = dtype(step[1]) * velocity[i] + dtype(step[0]) * (side[1, i] - products[i])
        if np.isfinite(field[i]) and not np.isfinite(field[i] + change):
            squared_norm[0] = np.inf
        velocity[i], field[i] = change, field[i] + change


@kernel(fastmath=REORDER, views=True)
def ascend(address, pairs, weights, velocity, settings, sides, fields, packed, work, results):
    """Take one step of gradient ascent with momentum, weight decay and centring.

    The gradient is given by `Pairs`. `sides` has offsets and gradients by fields of the units below
    and above. If `settings.moves_fields`, they are set, and the `fields` of both layers, with their
    velocities, are moved. Packed couplings and their squares, of the layer above and of the layer
    below, are updated with the weights, except for arrays without panels.
    """
    (n_below, n), (below, above), (scratch, queue) = weights.shape, sides, work
    step = settings.rate, settings.momentum, settings.l1
    n_tasks, width = results.parts.shape[0], scratch.gradients.shape[2]
    worker = fetch_and_increment(row(queue, (1,), 1))
    if worker >= scratch.above.shape[0]:
        return
    gradients, totals = scratch.gradients[worker], scratch.totals[worker]
    rows = scratch.lefts[worker], scratch.rights[worker]
    of_above = row(scratch.above, (worker, 0, 0), n), row(scratch.above, (worker, 1, 0), n)
    if settings.moves_fields:
        _set_sides(pairs.rights, pairs.columns, np.int64(0), n, totals, of_above[0], of_above[1])
    else:
        copy(row(above, (0, 0), n), of_above[0])
        copy(row(above, (1, 0), n), of_above[1])
    task, is_first = fetch_and_increment(queue), True
    while task < n_tasks:
        products, first = row(results.parts, (task, 0), n), task * width
        n_units = smaller(width, n_below - first)
        _sum_pairs(address, pairs, weights, first, n_units, gradients, rows, is_first)
        is_first = False
        if settings.moves_fields:
            m, dv = row(below, (0, first), n_units), row(below, (1, first), n_units)
            _set_sides(pairs.lefts, (0, 0, 0, 0), first, n_units, totals, m, dv)
        if settings.moves_fields and task == 0:
            copy(of_above[0], row(above, (0, 0), n))
            copy(of_above[1], row(above, (1, 0), n))
        set_to_zero(products)
        squares = weights.dtype.type(0)
        for i in range(first, first + n_units):
            w, v = row(weights, (i, 0), n), row(velocity, (i, 0), n)
            g = row(gradients, (0, i - first, 0), n)
            finish_gradient(w, g, settings.l2, (below[0, i], below[1, i]), of_above)
            results.below[i], square = ascend_row(w, g, v, step, of_above[0])
            squares += square
            add_multiple(below[0, i], g, products)
        results.squared_norms[task] = squares
        _pack(weights, first, n_units, packed)
        if fetch_and_increment(row(queue, (2,), 1)) == n_tasks - 1:
            _add_parts(results)
            if settings.moves_fields:
                _move_fields(below, results.below, fields[0], step, results.squared_norm)
                _move_fields(above, results.above, fields[1], step, results.squared_norm)
        task = fetch_and_increment(queue)
