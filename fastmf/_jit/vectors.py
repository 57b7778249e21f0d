"""LLVM vectors in emitted functions, whose sums stay in registers.

Code that LLVM makes of loop nests stores sums in memory, and checks whether arrays overlap.
"""

from fastmf._jit.lazily import cgutils, ir


def integer(value, n_bits=64):
    """Return an LLVM constant."""
    return ir.Constant(ir.IntType(n_bits), value)


def loop(builder, first, last, body, values=()):
    """Emit `for k in range(first, last): values = body(k, values)`; values stay in registers."""
    before = builder.basic_block
    head, inside, end = (builder.append_basic_block(f"loop.{x}") for x in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    phis = [builder.phi(start.type) for start in (first, *values)]
    for phi, start in zip(phis, (first, *values), strict=True):
        phi.add_incoming(start, before)
    k, *values = phis
    builder.cbranch(builder.icmp_signed("<", k, last), inside, end)

    builder.position_at_end(inside)
    new = body(k, values) or []
    for phi, value in zip(phis, (builder.add(k, integer(1)), *new), strict=True):
        phi.add_incoming(value, builder.basic_block)
    builder.branch(head)
    builder.position_at_end(end)
    return values


class Vectors:
    """Emits operations on vectors of `n_lanes` numbers of a floating type."""

    def __init__(self, context, builder, number, n_lanes):
        self.builder, self.n_lanes, self.item_bytes = builder, n_lanes, number.bitwidth // 8
        self.type = ir.VectorType(context.get_value_type(number), n_lanes)

    def _pointer(self, data, offset):
        """Return a pointer to the vector at an offset in numbers."""
        return self.builder.bitcast(self.builder.gep(data, [offset]), self.type.as_pointer())

    def load(self, data, offset):
        """Load the vector at an offset."""
        value = self.builder.load(self._pointer(data, offset))
        value.align = self.item_bytes
        return value

    def store(self, value, data, offset):
        """Store a vector at an offset."""
        self.builder.store(value, self._pointer(data, offset)).align = self.item_bytes

    def in_all_lanes(self, number):
        """Return a vector of equal numbers."""
        undefined = ir.Constant(self.type, ir.Undefined)
        lane = self.builder.insert_element(undefined, number, integer(0, 32))
        first = ir.Constant(ir.VectorType(ir.IntType(32), self.n_lanes), None)
        return self.builder.shuffle_vector(lane, undefined, first)

    def fma(self, x, y, z):
        """Return x * y + z, rounded once."""
        name = f"llvm.fma.v{self.n_lanes}f{8 * self.item_bytes}"
        function = ir.FunctionType(self.type, [self.type] * 3)
        function = cgutils.get_or_insert_function(self.builder.module, function, name)
        return self.builder.call(function, [x, y, z])
