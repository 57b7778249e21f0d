"""Arrays in LLVM instructions: structures of a pointer to the numbers, sizes and strides.

Numba's own representation (`make_array`) copies an array to memory, and reads its fields there. It
takes several times as long to emit, and LLVM has to remove the copies.
"""

from fastmf._jit.lazily import cgutils, ir


def field(context, builder, type_, array, name):
    """A field of an array of a Numba type; sizes and strides come as a list."""
    value = context.data_model_manager[type_].get(builder, array, name)
    return value if name == "data" else cgutils.unpack_tuple(builder, value)


def pointer_to_entry(context, builder, type_, array, indices):
    """Pointer to an entry of an array, at indices that are LLVM integers and not negative."""
    parts = (field(context, builder, type_, array, name) for name in ("data", "shape", "strides"))
    return cgutils.get_item_pointer2(context, builder, *parts, type_.layout, indices)


def array_at(context, builder, type_, address, sizes):
    """Emit a C-contiguous array of a Numba type at an address, of sizes that are LLVM integers."""
    n_bytes = context.get_abi_sizeof(context.get_data_type(type_.dtype))
    item = cgutils.intp_t(n_bytes)
    strides, n_items = [item], sizes[0]
    for size in reversed(sizes[1:]):
        strides.insert(0, builder.mul(strides[0], size))
    for size in sizes[1:]:
        n_items = builder.mul(n_items, size)
    model = context.data_model_manager[type_]
    array = ir.Constant(model.get_value_type(), None)
    values = {
        "data": builder.inttoptr(address, context.get_data_type(type_.dtype).as_pointer()),
        "shape": cgutils.pack_array(builder, sizes, cgutils.intp_t),
        "strides": cgutils.pack_array(builder, strides, cgutils.intp_t),
        "itemsize": item,
        "nitems": n_items,
    }
    for name, value in values.items():
        array = model.set(builder, array, value, name)
    return array
