"""Vectors of numbers as LLVM instructions, for kernels whose inner loops are emitted.

LLVM keeps the accumulators of a nest of loops in registers only where they are vectors already, and
divides short loops into vectors badly. `Vectors` emits loads, stores, and computations,
`loop` a loop whose values stay in registers.
"""

import numpy as np

from fastmf._jit.lazily import cgutils, ir
from fastmf._jit.library import LEVEL

# Whether the processor has AVX-512 and its 32 registers of 64 bytes, or 16 of 32 as AVX2.
WIDE = LEVEL == "x86-64-v4"
VECTOR_BYTES = 64 if WIDE else 32


def int32(value):
    """Constant of 32 bits."""
    return ir.Constant(ir.IntType(32), value)


def lanes_of(dtype):
    """Numbers in a vector."""
    return VECTOR_BYTES // np.dtype(dtype).itemsize


def integer(value):
    """Constant of 64 bits."""
    return ir.Constant(ir.IntType(64), value)


def loop(builder, first, last, step, body, starts=()):
    """Emit `for k in range(first, last, step): values = body(k, values)`."""
    before = builder.basic_block
    head, inside, end = (builder.append_basic_block(f"loop.{x}") for x in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    phis = [builder.phi(start.type) for start in (first, *starts)]
    for phi, start in zip(phis, (first, *starts), strict=True):
        phi.add_incoming(start, before)
    k, *values = phis
    builder.cbranch(builder.icmp_signed("<", k, last), inside, end)

    builder.position_at_end(inside)
    new = [*(body(k, values) or ())]
    for phi, value in zip(phis, (builder.add(k, step), *new), strict=True):
        phi.add_incoming(value, builder.basic_block)
    builder.branch(head)
    builder.position_at_end(end)
    return values


class Vectors:
    """Emits vectors of numbers of one Numba type."""

    def __init__(self, context, builder, dtype):
        self.context, self.builder = context, builder
        self.n_bits, self.item_bytes = dtype.bitwidth, dtype.bitwidth // 8
        self.n_lanes = VECTOR_BYTES // self.item_bytes
        self.number = context.get_value_type(dtype)
        self.type = ir.VectorType(self.number, self.n_lanes)
        self.integers = ir.VectorType(ir.IntType(self.n_bits), self.n_lanes)

    # --- memory -----------------------------------------------------------------------------------

    def array(self, type_, value):
        """Fields of an array of a Numba type."""
        return self.context.make_array(type_)(self.context, self.builder, value)

    def stride(self, array, axis):
        """Numbers from an entry to the next one along an axis."""
        n_bytes = self.builder.extract_value(array.strides, axis)
        return self.builder.sdiv(n_bytes, integer(self.item_bytes))

    def pointer(self, data, offset):
        """Pointer to the vector at an offset in numbers, an LLVM integer or an int."""
        offset = integer(offset) if isinstance(offset, int) else offset
        pointer = self.builder.gep(data, [offset])
        return self.builder.bitcast(pointer, self.type.as_pointer())

    def load(self, data, offset):
        """The vector at an offset."""
        value = self.builder.load(self.pointer(data, offset))
        value.align = self.item_bytes
        return value

    def store(self, value, data, offset):
        """Write a vector to an offset."""
        self.builder.store(value, self.pointer(data, offset)).align = self.item_bytes

    # --- numbers ----------------------------------------------------------------------------------

    def zeros(self):
        """A vector of zeros."""
        return ir.Constant(self.type, None)

    def constant(self, value):
        """A vector of equal floating-point numbers."""
        return ir.Constant(self.type, [float(value)] * self.n_lanes)

    def integer_constant(self, value):
        """A vector of equal integers of the width of the numbers."""
        return ir.Constant(self.integers, [value] * self.n_lanes)

    def in_all_lanes(self, number):
        """A vector of equal numbers."""
        undefined = ir.Constant(self.type, ir.Undefined)
        lane = self.builder.insert_element(undefined, number, int32(0))
        return self.shuffled(lane, undefined, [0] * self.n_lanes)

    def fma(self, x, y, z):
        """x * y + z, rounded once."""
        name = f"llvm.fma.v{self.n_lanes}f{self.n_bits}"
        function = ir.FunctionType(self.type, [self.type] * 3)
        function = cgutils.get_or_insert_function(self.builder.module, function, name)
        return self.builder.call(function, [x, y, z])

    def larger(self, x, y):
        """The larger number in each lane."""
        return self.builder.select(self.builder.fcmp_ordered(">", x, y), x, y)

    def smaller(self, x, y):
        """The smaller number in each lane."""
        return self.builder.select(self.builder.fcmp_ordered("<", x, y), x, y)

    def shuffled(self, one, other, lanes):
        """Vector of some lanes of two vectors side by side."""
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
        return self.builder.shuffle_vector(one, other, mask)

    def exp(self, x, form):
        """The exponential; `form` is the entry of `fastmf.special.EXPONENTIALS` for the type."""
        builder = self.builder
        x = self.larger(x, self.constant(form.low))
        x = self.smaller(x, self.constant(form.high))
        t = self.fma(x, self.constant(form.inverse_ln2), self.constant(form.magic))
        n = builder.fsub(t, self.constant(form.magic))
        for part in (form.ln2_high, form.ln2_low):
            x = self.fma(n, self.constant(-part), x)
        result = self.constant(form.coefficients[-1])
        for coefficient in reversed(form.coefficients[:-1]):
            result = self.fma(result, x, self.constant(coefficient))
        t = builder.bitcast(t, self.integers)
        exponent = builder.add(t, self.integer_constant(form.bias))
        exponent = builder.shl(exponent, self.integer_constant(form.n_fraction))
        return builder.fmul(result, builder.bitcast(exponent, self.type))
