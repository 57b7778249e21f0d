"""The update of a block in models with groups of states, to third order in the couplings.

With the couplings of a pair of groups, states a with means m and b with means h, centred,

    C = W - s - r + t,   s_b = sum_a m_a W_ab,   r_a = sum_b h_b W_ab,   t = sum_a m_a r_a

the third order of the log-partition is the sum over pairs of <C^3> / 6, over independent states. It
adds to the fields b of `fastmf.kernels.mean_field.groups`, from each unit that the target is
coupled to,

    group from group   sum_b h_b C_ab (C_ab^2 - 3 v_b) / 6,   v_b = sum_a m_a C_ab^2
    group from unit    k (d_a^3 - 3 v d_a) / 6,   d_a = W_a - s,   v = sum_a m_a d_a^2
    unit from group    k'(mean of the unit) sum_a m_a d_a^3 / 6
    unit from unit     k'(mean of the unit) W^3 k / 6

with third cumulants k of units that are no groups; a term that is the same for all states of a
group does not matter and is left out. There is a centred coupling for each pair and row, so that no
product of matrices serves all rows: the terms are summed up row by row, those of the first two
orders with them. The couplings to a group are rows of its states, and those to other units are rows
of the units they are coupled to, so that the long axis of both is contiguous.
"""

from fastmf._jit.intrinsics import row, smaller, view
from fastmf._jit.kernel import REORDER, kernel
from fastmf.kernels.mean_field.arguments import (
    COUPLINGS,
    GROUP,
    N_SOURCE,
    SCALARS,
    SOURCE,
    START,
    sources_of,
    targets_of,
)
from fastmf.kernels.mean_field.groups import finish
from fastmf.kernels.mean_field.rows import CUBIC, FIELD, MEAN, ONSAGER, THIRD, VAR


@kernel(mode="merged")
def _couplings(layer, target, like):
    """The couplings to a group, (n_states, n_source), or to other units, (n_source, n_units)."""
    n, n_source = target[1], layer[N_SOURCE]
    shape = (n, n_source) if target[3] >= 0 else (n_source, n)
    return view(layer[COUPLINGS] + target[0] * n_source * like.itemsize, shape, like)


@kernel(mode="merged")
def _add_units_to_units(couplings, begin, source, sums):
    """Add the sums of W h, W^2 c and W^3 k over units of moments h, c and k."""
    (h, c, k), (field, onsager, cubic) = source, sums
    for j in range(h.shape[0]):
        w = row(couplings, (begin + j, 0), field.shape[0])
        for i in range(field.shape[0]):
            field[i] += h[j] * w[i]
            onsager[i] += c[j] * (w[i] * w[i])
            cubic[i] += k[j] * (w[i] * w[i] * w[i])


@kernel(mode="merged")
def _add_group_to_units(couplings, begin, mean, sums, powers):
    """Add the first three cumulants of the field of a group."""
    (field, onsager, cubic), (first, second, third) = sums, powers
    zero, two, three = mean.dtype.type(0), mean.dtype.type(2), mean.dtype.type(3)
    n = field.shape[0]
    for i in range(n):
        first[i] = second[i] = third[i] = 0
    for b in range(0, mean.shape[0], 2):
        last = smaller(b + 1, mean.shape[0] - 1)
        p, q = mean[b], mean[last] if last > b else zero
        w, x = row(couplings, (begin + b, 0), n), row(couplings, (begin + last, 0), n)
        for i in range(n):
            y, z = p * w[i], q * x[i]
            first[i] += y + z
            y, z = y * w[i], z * x[i]
            second[i] += y + z
            third[i] += y * w[i] + z * x[i]
    for i in range(n):
        x = first[i]
        field[i] += x
        onsager[i] += second[i] - x * x
        cubic[i] += third[i] - three * x * second[i] + two * x * x * x


@kernel(mode="merged")
def _add_units_to_group(couplings, begin, mean, source, sums, effects):
    """Add what units of moments h, c and k send to a group of these means, to both sums.

    Terms in k with W, W^2 and W^3 have the factors k (s^2 - v) / 2, -k s / 2 and k / 6.
    """
    (h, c, k), (field, onsager), (s, v) = source, sums, effects
    zero, half, sixth = mean.dtype.type(0), mean.dtype.type(1 / 2), mean.dtype.type(1 / 6)
    n = h.shape[0]
    for j in range(n):
        s[j] = v[j] = 0
    for a in range(0, mean.shape[0], 2):
        last = smaller(a + 1, mean.shape[0] - 1)
        p, q = mean[a], mean[last] if last > a else zero
        w, x = row(couplings, (a, begin), n), row(couplings, (last, begin), n)
        for j in range(n):
            y, z = p * w[j], q * x[j]
            s[j] += y + z
            v[j] += y * w[j] + z * x[j]
    for j in range(n):
        variance = v[j] - s[j] * s[j]
        v[j] = h[j] - c[j] * s[j] + half * k[j] * (s[j] * s[j] - variance)
        s[j] = half * k[j] * s[j]
    for a in range(mean.shape[0]):
        w = row(couplings, (a, begin), n)
        total = squares = zero
        for j in range(n):
            total += w[j] * (v[j] + w[j] * (sixth * k[j] * w[j] - s[j]))
            squares += c[j] * (w[j] * w[j])
        field[a] += total
        onsager[a] += squares


@kernel(mode="merged")
def _add_group_to_group(couplings, begin, mean, source, sums, effects):
    """Add what a group of means `source` sends to a group of these means."""
    (field, onsager), (s, v, r) = sums, effects
    number, n = mean.dtype.type, source.shape[0]
    zero, one, three, sixth = number(0), number(1), number(3), number(1 / 6)
    for b in range(n):
        s[b] = v[b] = 0
    t = zero
    for a in range(mean.shape[0]):
        w, total = row(couplings, (a, begin), n), zero
        for b in range(n):
            s[b] += mean[a] * w[b]
            total += source[b] * w[b]
        r[a] = total
        t += mean[a] * total
    for a in range(mean.shape[0]):
        w, shift = row(couplings, (a, begin), n), r[a] - t
        for b in range(n):
            centred = w[b] - s[b] - shift
            v[b] += mean[a] * (centred * centred)
    for a in range(mean.shape[0]):
        w, shift = row(couplings, (a, begin), n), r[a] - t
        total = squares = cubes = zero
        for b in range(n):
            centred, weighted = w[b] - s[b] - shift, source[b] * w[b]
            total += weighted * (one - s[b])
            squares += weighted * w[b]
            cubes += source[b] * (centred * (centred * centred - three * v[b]))
        field[a] += total + r[a] * t + sixth * cubes
        onsager[a] += squares - r[a] * r[a]


@kernel(mode="merged")
def _add_source(layer, active, s, target, source):
    """Add to the sums of a target what comes from one source, in one row."""
    state, n, column = active.state, target[1], target[4]
    begin, n_source, kind = source[0], source[1], source[2]
    couplings = _couplings(layer, target, active.products)
    mean = row(state, (MEAN, s, layer[START] + target[0]), n)
    field = row(active.products, (FIELD, s, column), n)
    onsager = row(active.products, (ONSAGER, s, column), n)
    cubic = row(active.products, (CUBIC, s, column), n)
    at, width = layer[SOURCE] + begin, active.scratch.shape[1]
    h, c = row(state, (MEAN, s, at), n_source), row(state, (VAR, s, at), n_source)
    k = row(state, (THIRD, s, at), n_source)
    x, y = row(active.scratch, (0, 0), width), row(active.scratch, (1, 0), width)
    z = row(active.scratch, (2, 0), width)
    is_group = target[3] >= 0
    if kind == SCALARS and is_group:
        _add_units_to_group(couplings, begin, mean, (h, c, k), (field, onsager), (x, y))
    elif kind == SCALARS:
        _add_units_to_units(couplings, begin, (h, c, k), (field, onsager, cubic))
    elif kind == GROUP and is_group:
        _add_group_to_group(couplings, begin, mean, h, (field, onsager), (x, y, z))
    elif kind == GROUP:
        _add_group_to_units(couplings, begin, h, (field, onsager, cubic), (x, y, z))


@kernel(mode="merged")
def _clear(active, s, target):
    """Set the sums of a target to 0, in one row."""
    for plane in range(CUBIC + 1):
        zero = row(active.products, (plane, s, target[4]), target[1])
        for i in range(target[1]):
            zero[i] = 0


@kernel(mode="by_address", fastmath=REORDER, views=True)
def update_block(layer, block, rows, active, settings, tilt):
    """Update the targets `block` (first, last) of a layer together, in all active rows."""
    targets = targets_of(layer)[block[0] : block[1]]
    sources = sources_of(layer)
    for t in range(targets.shape[0]):
        target = targets[t]
        for s in range(rows[0]):
            _clear(active, s, target)
        # The couplings of one source stay in the cache.
        for k in range(sources.shape[0]):
            for s in range(rows[0]):
                _add_source(layer, active, s, target, sources[k])
    for s in range(rows[0]):
        finish(layer, active, s, targets, True, settings, tilt)
