"""The functions of unit priors that kernels call by address, and the tables with the addresses.

The functions serve the units `start`, `start + 1`, ... of a layer, one for each tilt or mean:

    moments(parameters, start, b, a, mean, var)               fill in the tilted moments
    log_partition(parameters, start, b, a, out)               fill in the log-partitions
    third_cumulants(parameters, start, mean, cumulant, derivative)
    draws(parameters, start, b, a, u, out, scratch)           fill in draws from uniform numbers

where `parameters` is the address of an array with the addresses of the prior's fields. A table of
units holds this address and the addresses of the functions. For any kind of units, kernels call
`tilted_moments`, `tilted_log_partition`, `third_cumulants` and `tilted_draws` below, which call
these functions.
"""

import ctypes
import functools
import itertools
import math
from functools import cache

import numpy as np

from fastmf._common.memory import LINE_BYTES
from fastmf._jit.argument_types import ArrayType, Float64, Real, argument_types, numba_type
from fastmf._jit.intrinsics import row, smaller, view, widest_vectors
from fastmf._jit.kernel import (
    address_of,
    array_at,
    call,
    calls,
    compile_methods,
    emitted,
    kernel,
    unit,
)
from fastmf._jit.lazily import cgutils, is_disabled, types
from fastmf._jit.names import name_of
from fastmf._threads.workers import in_parallel, next_task, workers_for
from fastmf.priors._protocol import (
    as_dtype,
    is_concatenated,
    n_units,
    offers,
    precomputed,
    repeated,
    values_to_draw,
    with_arrays,
)

compile_methods("log_partition", "moments", "tilted")
compile_methods("third_cumulant", of="mean")
compile_methods("draw", of="tilt and number")

# The entries of a table of units; the address of a function that was not compiled is 0. In the
# table of parts of a concatenated prior, the index of the first unit after the part follows.
PARAMETERS, MOMENTS, LOG_PARTITION, THIRD_CUMULANTS, DRAWS, N_ENTRIES = range(6)
END = N_ENTRIES
FUNCTIONS = {
    "moments": MOMENTS,
    "log_partition": LOG_PARTITION,
    "third_cumulants": THIRD_CUMULANTS,
    "draws": DRAWS,
}
# The methods of a prior for a single unit.
_METHODS = dict(zip(FUNCTIONS, ("moments", "log_partition", "third_cumulant", "draw"), strict=True))
# An array of the type of the tables.
INTEGERS = np.empty(0, np.int64)


class AddressTable(np.ndarray):
    """An int64 array of addresses, and the `owners` of the memory to which they point."""

    def __new__(cls, entries, owners):
        table = np.array(entries, dtype=np.int64).view(cls)
        table.owners = owners
        return table

    def __array_finalize__(self, whole):
        self.owners = getattr(whole, "owners", None)


# --- inside kernels -------------------------------------------------------------------------------


@calls(MOMENTS, PARAMETERS)
def tilted_moments(units, start, b, a, mean, var):
    """Fill `mean` and `var` for the units `start`, `start + 1`, ... tilted by `b` and `a`."""
    call(units[MOMENTS], (units[PARAMETERS], start, b, a, mean, var))


@calls(LOG_PARTITION, PARAMETERS)
def tilted_log_partition(units, start, b, a, out):
    """Fill in the log-partitions of the units `start`, `start + 1`, ... tilted by `b` and `a`."""
    call(units[LOG_PARTITION], (units[PARAMETERS], start, b, a, out))


@calls(THIRD_CUMULANTS, PARAMETERS)
def third_cumulants(units, start, mean, cumulant, derivative):
    """Fill third cumulants of the units `start`, ... as functions of the means, and derivatives."""
    call(units[THIRD_CUMULANTS], (units[PARAMETERS], start, mean, cumulant, derivative))


@calls(DRAWS, PARAMETERS)
def tilted_draws(units, start, b, a, u, out, scratch):
    """Fill in draws of the units `start`, ... tilted by `b` and `a`, from uniform float64 `u`."""
    call(units[DRAWS], (units[PARAMETERS], start, b, a, u, out, scratch))


# --- functions of one class of units --------------------------------------------------------------
# Tests of whether an index such as start + i is negative would keep loops from vectorising.


def _moments_one_by_one(prior, start, b, a, mean, var):
    for i in range(b.shape[0]):
        mean[i], var[i] = unit(prior, start + i).moments(b[i], a[i])


def _log_partition_one_by_one(prior, start, b, a, out):
    for i in range(b.shape[0]):
        out[i] = unit(prior, start + i).log_partition(b[i], a[i])


def _third_cumulants_one_by_one(prior, start, mean, cumulant, derivative):
    for i in range(mean.shape[0]):
        cumulant[i], derivative[i] = unit(prior, start + i).third_cumulant(mean[i])


def _draws_one_by_one(prior, start, b, a, u, out, scratch):
    for i in range(b.shape[0]):
        out[i] = unit(prior, start + i).draw(b[i], a[i], u[i])


# Classes with a method `fill_block` compute UNITS_PER_BLOCK units at once: `fill_block(prior,
# start, b, a, memory)` leaves log-partitions, means and variances in these rows of the memory, and
# `draw_block(prior, start, u, out, memory)` draws after that. The memory stays in the L1 cache.
UNITS_PER_BLOCK = 64
LOG_PARTITIONS, MEANS, VARIANCES, SPARE, _END = (k * UNITS_PER_BLOCK for k in (6, 8, 9, 29, 37))


def block_memory():
    """Return memory for a block of units; in kernels on the stack, which compiles faster."""
    return np.empty(_END)


@emitted(block_memory)
def _block_memory(typing_context):
    result = types.Array(types.float64, 1, "C")

    def generate(context, builder, signature, values):
        memory = cgutils.alloca_once(builder, context.get_value_type(types.float64), _END)
        memory.align = LINE_BYTES
        address = builder.ptrtoint(memory, cgutils.intp_t)
        return array_at(context, builder, result, address, [cgutils.intp_t(_END)])

    return result(), generate


def _by_blocks(class_, name):
    """Return one of the functions of units, for a class with `fill_block`."""
    fill = kernel(class_.fill_block, mode="merged")
    draw = kernel(class_.draw_block, mode="merged") if name == "draws" else None

    def moments(prior, start, b, a, mean, var):
        memory = block_memory()
        for first in range(0, b.shape[0], UNITS_PER_BLOCK):
            n = smaller(UNITS_PER_BLOCK, b.shape[0] - first)
            fill(prior, start + first, row(b, (first,), n), row(a, (first,), n), memory)
            for i in range(n):
                mean[first + i], var[first + i] = memory[MEANS + i], memory[VARIANCES + i]

    def log_partition(prior, start, b, a, out):
        memory = block_memory()
        for first in range(0, b.shape[0], UNITS_PER_BLOCK):
            n = smaller(UNITS_PER_BLOCK, b.shape[0] - first)
            fill(prior, start + first, row(b, (first,), n), row(a, (first,), n), memory)
            for i in range(n):
                out[first + i] = memory[LOG_PARTITIONS + i]

    def draws(prior, start, b, a, u, out, scratch):
        memory = block_memory()
        for first in range(0, b.shape[0], UNITS_PER_BLOCK):
            n = smaller(UNITS_PER_BLOCK, b.shape[0] - first)
            fill(prior, start + first, row(b, (first,), n), row(a, (first,), n), memory)
            draw(prior, start + first, row(u, (first,), n), row(out, (first,), n), memory)

    return {"moments": moments, "log_partition": log_partition, "draws": draws}[name]


def _draws_of_two_values(low, high):
    def draws(prior, start, b, a, u, out, scratch):
        for i in range(b.shape[0]):
            mean, _ = unit(prior, start + i).moments(b[i], a[i])
            out[i] = high if low + (high - low) * u[i] < mean else low

    return draws


def _fields(class_, dtypes):
    """Return a function for kernels that makes the prior of n units from its `parameters`."""

    def fields(parameters, n):
        address = ctypes.c_int64.from_address(int(parameters))
        addresses = np.ctypeslib.as_array(ctypes.pointer(address), (len(dtypes),))
        return class_._make(
            view(a, (n,), np.empty(0, dtype)) for a, dtype in zip(addresses, dtypes, strict=True)
        )

    if is_disabled():
        return fields

    @emitted(fields)
    def emit_fields(typing_context, parameters, n):
        arrays = [numba_type(ArrayType(dtype.name, 1, "C")) for dtype in dtypes]
        prior = types.NamedTuple(arrays, class_)

        def generate(context, builder, signature, values):
            pointer = builder.inttoptr(values[0], context.get_value_type(types.int64).as_pointer())
            fields = []
            for k, type_ in enumerate(arrays):
                entry = builder.gep(pointer, [context.get_constant(types.intp, k)])
                fields.append(array_at(context, builder, type_, builder.load(entry), [values[1]]))
            return context.make_tuple(builder, prior, fields)

        return prior(types.int64, types.intp), generate

    return fields


@cache
def _address(class_, name, dtype, field_dtypes):
    """Return the address of a function of one class of units, for tilts and fields of a type."""
    fields = _fields(class_, field_dtypes)
    key = name_of(class_)
    key = key and f"{key}-{name}-{dtype}-{'-'.join(map(str, field_dtypes))}"
    at_once, values = f"{name}_of_units", values_to_draw(class_) if name == "draws" else None
    if offers(class_, at_once, of=_METHODS[name]):
        fill = getattr(class_, at_once)
    elif offers(class_, "fill_block", of=_METHODS[name]):
        fill = _by_blocks(class_, name)
    else:
        fill = _draws_of_two_values(*values) if values else _ONE_BY_ONE[name]
    fill = kernel(fill, mode="merged")
    try:
        return address_of(_FACTORIES[name](fields, fill, key), *_signature(name, dtype))
    except Exception as error:
        if type(error).__name__ != "TypingError":
            raise
        raise TypeError(
            f"no code can be compiled for units of {class_.__name__}: the methods of a prior of "
            "one's own must keep to what Numba knows, such as the functions of NumPy and "
            "fastmf.special."
        ) from error


def _signature(name, dtype):
    """Return the types of the arguments of a function of units."""
    given = {"moments": [Real[1]] * 4, "draws": [Real[1], Real[1], Float64[1], Real[1], Real[1]]}
    return argument_types(dtype, int, int, *given.get(name, [Real[1]] * 3))


def _moments(fields, fill, key):
    @kernel(mode="by_address", name=key)
    def moments(parameters, start, b, a, mean, var):
        widest_vectors()
        fill(fields(parameters, start + b.shape[0]), start, b, a, mean, var)

    return moments


def _three_arrays(fields, fill, key):
    # If sums were reassociated, a value would depend on its position in a vector.
    @kernel(mode="by_address", fastmath={"contract"}, name=key)
    def three_arrays(parameters, start, x, y, z):
        widest_vectors()
        fill(fields(parameters, start + x.shape[0]), start, x, y, z)

    return three_arrays


def _draws(fields, fill, key):
    @kernel(mode="by_address", name=key)
    def draws(parameters, start, b, a, u, out, scratch):
        widest_vectors()
        fill(fields(parameters, start + b.shape[0]), start, b, a, u, out, scratch)

    return draws


_ONE_BY_ONE = {
    "moments": _moments_one_by_one,
    "log_partition": _log_partition_one_by_one,
    "third_cumulants": _third_cumulants_one_by_one,
    "draws": _draws_one_by_one,
}
_FACTORIES = {
    "moments": _moments,
    "log_partition": _three_arrays,
    "third_cumulants": _three_arrays,
    "draws": _draws,
}


# --- several kinds of units in one layer ----------------------------------------------------------


@kernel(mode="merged")
def _parts(parameters):
    """Return the table of parts of a concatenated prior: the entries of each part, and its end."""
    n_parts = view(parameters, (1,), INTEGERS)[0]
    return view(parameters + 8, (n_parts, END + 1), INTEGERS)


@kernel(mode="by_address")
def _moments_of_parts(parameters, start, b, a, mean, var):
    parts, first = _parts(parameters), np.int64(0)
    for k in range(parts.shape[0]):
        begin, end = max(first, start), min(parts[k, END], start + b.shape[0])
        if begin < end:
            i, j = begin - start, end - start
            tilted_moments(parts[k], begin - first, b[i:j], a[i:j], mean[i:j], var[i:j])
        first = parts[k, END]


def _arrays_of_parts(of_part, name):
    """Return the function of all parts for `of_part`, a function of one part and three arrays."""

    @kernel(mode="by_address", name=name)
    def of_parts(parameters, start, x, y, z):
        parts, first = _parts(parameters), np.int64(0)
        for k in range(parts.shape[0]):
            begin, end = max(first, start), min(parts[k, END], start + x.shape[0])
            if begin < end:
                i, j = begin - start, end - start
                of_part(parts[k], begin - first, x[i:j], y[i:j], z[i:j])
            first = parts[k, END]

    return of_parts


@kernel(mode="by_address")
def _draws_of_parts(parameters, start, b, a, u, out, scratch):
    parts, first = _parts(parameters), np.int64(0)
    for k in range(parts.shape[0]):
        begin, end = max(first, start), min(parts[k, END], start + b.shape[0])
        if begin < end:
            i, j, of_part = begin - start, end - start, begin - first
            tilt = b[i:j], a[i:j]
            tilted_draws(parts[k], of_part, tilt[0], tilt[1], u[i:j], out[i:j], scratch[i:j])
        first = parts[k, END]


_OF_PARTS = {
    "moments": _moments_of_parts,
    "log_partition": _arrays_of_parts(tilted_log_partition, "log_partition"),
    "third_cumulants": _arrays_of_parts(third_cumulants, "third_cumulants"),
    "draws": _draws_of_parts,
}


# --- tables of units ------------------------------------------------------------------------------


class Units(AddressTable):
    """The table of the units of a layer, for kernels."""

    @property
    def prior(self):
        """The prior that the table describes, in the form that kernels tilt."""
        return self.owners[0]


def units_of(prior, dtype, names=("moments",)):
    """Return the table of a prior's units, with the functions of these names compiled."""
    prior, dtype = precomputed(prior), np.dtype(dtype)
    if is_concatenated(prior):
        parts = [units_of(part, dtype, names) for part in prior.parts]
        ends = np.cumsum([n_units(part) for part in prior.parts])
        rows = [[*part, end] for part, end in zip(parts, ends, strict=True)]
        parameters = AddressTable([len(parts), *itertools.chain(*rows)], parts)
        addresses = [address_of(_OF_PARTS[name], *_signature(name, dtype)) for name in names]
    else:
        fields = [np.ascontiguousarray(field) for field in with_arrays(prior)]
        parameters = AddressTable([field.ctypes.data for field in fields], fields)
        dtypes = tuple(field.dtype for field in fields)
        addresses = [_address(type(prior), name, dtype, dtypes) for name in names]
    entries = [parameters.ctypes.data, *[0] * (N_ENTRIES - 1)]
    for name, address in zip(names, addresses, strict=True):
        entries[FUNCTIONS[name]] = address
    return Units(entries, (prior, parameters))


# --- public methods on large arrays ---------------------------------------------------------------

# Units of one task of a thread, and smallest number of units for which kernels are called: NumPy
# takes 0.1 ms for this number of Gaussian units, and 10 ms for units that need quadrature.
TASK_UNITS = UNITS_PER_BLOCK**2


@kernel
def _fill_rows(units, name, b, a, u, queue, out):
    """Fill in moments, log-partitions or draws of rows; a, b and u may have one for all of them."""
    n_rows, n_units = out.shape[1:]
    n_tasks = -(-n_units // TASK_UNITS)
    task = next_task(queue)
    while task < n_rows * n_tasks:
        i, start = task // n_tasks, task % n_tasks * TASK_UNITS
        j = slice(start, min(start + TASK_UNITS, n_units))
        b_i, a_i = b[smaller(i, len(b) - 1), j], a[smaller(i, len(a) - 1), j]
        if name == MOMENTS:
            tilted_moments(units, start, b_i, a_i, out[0, i, j], out[1, i, j])
        elif name == DRAWS:
            u_i = u[smaller(i, len(u) - 1), j]
            tilted_draws(units, start, b_i, a_i, u_i, out[0, i, j], out[1, i, j])
        else:
            tilted_log_partition(units, start, b_i, a_i, out[0, i, j])
        task = next_task(queue)


def by_kernels(prior, name, b, a, u=0.0):
    """Compute moments, log-partitions or draws of a prior under many tilts, by kernels."""
    dtype = np.result_type(*prior, b, a)
    shape = np.broadcast_shapes((n_units(prior),), *map(np.shape, (b, a, u)))
    n_rows, n = math.prod(shape[:-1]), shape[-1]

    def rows(x, dtype):
        given = (n_rows, shape) if np.ndim(x) > 1 else (1, (n,))
        return np.ascontiguousarray(np.broadcast_to(x, given[1]), dtype).reshape(given[0], n)

    tilts = rows(b, dtype), rows(a, dtype), rows(u, np.float64)
    units = units_of(as_dtype(repeated(prior, n), dtype), dtype, (name,))
    out = np.empty((1 if name == "log_partition" else 2, n_rows, n), dtype)
    arguments = units, FUNCTIONS[name], *tilts, np.zeros(1, np.int64), out
    in_parallel(_fill_rows, arguments, workers_for(n_rows * n // TASK_UNITS + 1, 100 * n_rows * n))
    out = out.reshape(-1, *shape)
    return tuple(out) if name == "moments" else out[0]


def compiled_if_large(class_, name):
    """Return a method of a class, moments or log_partition, that uses kernels for large arrays."""
    method = getattr(class_, name)

    @functools.wraps(method)  # kernels compile the wrapped method
    def of_arrays(self, b, a):
        if type(self) is not class_ or np.size(b) < TASK_UNITS or is_disabled():
            return method(self, b, a)
        return by_kernels(self, name, b, a)

    return of_arrays
