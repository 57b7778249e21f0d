"""Build the kernels ahead of time: machine code of the kernels that `calls.py` calls.

    python scripts/build_library.py [--level x86-64-v3] [--only TEXT] [FOLDER]

For each instruction set a process runs the tasks, compiled for this set, and records which kernels
are called with which types. The LLVM text of each kernel is compiled to an object file, and
`cc -shared` links these to a library; the index lists its contents. The processor must support the
instructions: `x86-64-v4` needs AVX-512. See `fastmf._jit.library`.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Byte offsets of data, shape and strides in NumPy's array object.
DATA, SHAPE, STRIDES = 16, 32, 40
# Symbols that code may refer to: of the linker, the C library and its mathematical functions.
ALLOWED = re.compile(
    r"_GLOBAL_OFFSET_TABLE_|NRT_MemInfo_(alloc_aligned|call_dtor)|_?(mem(cpy|set|move)|bzero|sched_yield|"
    r"(exp2?|log|log10|log2|log1p|expm1|sqrt|pow|sin|cos|tanh?|floor|ceil|erfc?|lgamma|fmod|round|rint)f?)"
)


class Recorder:
    """Empty library that records which kernels are requested."""

    def __init__(self):
        self.asked = {}

    def entry(self, kernel, arguments):
        """Record a call from Python."""
        from fastmf._jit.argument_types import type_of

        self._note(kernel, tuple(map(type_of, arguments)), "entry")

    def address(self, kernel, types):
        """Record a request of the address of a kernel."""
        self._note(kernel, types, "address")

    def _note(self, kernel, types, kind):
        from fastmf._jit.library import key_of

        if kernel.name is None or None in types:
            print(f"not built: {key_of(kernel, types)}", file=sys.stderr)
        else:
            self.asked.setdefault((key_of(kernel, types), kind), (kernel, types))


def leaves_of(types):
    """Yield the types of scalars and arrays in nested argument types."""
    for type_ in types:
        if hasattr(type_, "members"):
            yield from leaves_of(type_.members)
        else:
            yield type_


def entry_text(symbol, main, parameters, types):
    """Return an LLVM function that takes the words of the arguments and calls Numba's function."""
    import numpy as np

    lines, given, k = [], [], 0
    for place, type_ in enumerate(leaves_of(types)):
        word = f"%w{place}"
        lines.append(f"{word} = getelementptr i64, ptr %words, i64 {place}")
        if isinstance(type_, str):
            lines.append(f"%v{place} = load {parameters[k]}, ptr {word}")
            given.append(f"{parameters[k]} %v{place}")
            k += 1
            continue
        lines.append(f"%a{place} = load ptr, ptr {word}")
        for name, offset in ("data", DATA), ("shape", SHAPE), ("strides", STRIDES):
            lines.append(f"%{name}{place}p = getelementptr i8, ptr %a{place}, i64 {offset}")
            lines.append(f"%{name}{place} = load ptr, ptr %{name}{place}p")
        items, n_items = {"shape": [], "strides": []}, "1"
        for name, values in items.items():
            for axis in range(type_.n_axes):
                value = f"%{name}{place}_{axis}"
                lines.append(f"{value}p = getelementptr i64, ptr %{name}{place}, i64 {axis}")
                lines.append(f"{value} = load i64, ptr {value}p")
                values.append(f"i64 {value}")
        for axis in range(type_.n_axes):
            lines.append(f"%n{place}_{axis} = mul i64 {n_items}, %shape{place}_{axis}")
            n_items = f"%n{place}_{axis}"
        given += ["ptr null", "ptr null", f"i64 {n_items}", f"i64 {np.dtype(type_.item).itemsize}"]
        given += [f"ptr %data{place}", *items["shape"], *items["strides"]]
        k += 5 + 2 * type_.n_axes
    assert k == len(parameters), (symbol, k, parameters)
    head = f'define i32 @"{symbol}"(ptr %words, ptr %result)'
    return function_text(head, main, lines, given, "i32 %status")


def address_text(symbol, main, parameters, types):
    """Return an LLVM function that kernels call by address, and that calls Numba's function."""
    kinds = []
    for type_ in leaves_of(types):
        n_words = 1 if isinstance(type_, str) else 5 + 2 * type_.n_axes
        kinds += [type_ == "bool"] * n_words
    lines, given = ["%result = alloca ptr"], []
    for k, (parameter, is_bool) in enumerate(zip(parameters, kinds, strict=True)):
        if is_bool:
            lines.append(f"%b{k} = zext i1 %p{k} to {parameter}")
        given.append(f"{parameter} %{'b' if is_bool else 'p'}{k}")
    taken = [
        f"{'i1' if b else p} %p{k}" for k, (p, b) in enumerate(zip(parameters, kinds, strict=True))
    ]
    head = f'define void @"{symbol}"({", ".join(taken)})'
    return function_text(head, main, lines, given, "void")


def function_text(head, main, lines, given, returned):
    """Return an LLVM function that calls a function of Numba."""
    call = f'%status = call i32 @"{main}"({", ".join(["ptr %result", "ptr %error", *given])})'
    body = "\n  ".join(["%error = alloca ptr", *lines, call, f"ret {returned}"])
    return f"{head} {{\n  {body}\n}}\n"


def object_of(text, kind, symbol, types, machine):
    """Return the object code of a compiled kernel, with one external symbol, and its text."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    (main,) = (
        function
        for function in module.functions
        if not function.is_declaration
        and function.linkage == llvm.Linkage.external
        and not function.name.startswith(("cfunc.", "_ZN7cpython"))
    )
    parameters = [str(argument.type) for argument in main.arguments][2:]
    name = main.name
    # All functions except the wrapper become internal, and unused ones are removed.
    wrapper = {"entry": entry_text, "address": address_text}[kind](symbol, name, parameters, types)
    declared = f'declare i32 @"{name}"({", ".join(["ptr", "ptr", *parameters])})\n'
    extra = llvm.parse_assembly(
        f'target triple = "{module.triple}"\ntarget datalayout = "{module.data_layout}"\n'
        + declared
        + wrapper
    )
    module.link_in(extra)
    for item in [*module.functions, *module.global_variables]:
        if not item.is_declaration and item.name != symbol:
            item.linkage = llvm.Linkage.internal
    options = llvm.create_pipeline_tuning_options(speed_level=0)
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, options))
    module.verify()
    return machine.emit_object(module), str(module)


_FORMATS = {"int64": "q", "int32": "i", "float64": "d", "float32": "f", "boolean": "?", "bool": "?"}


def returns_of(signature):
    """Return the formats of a kernel's results, and whether it is a tuple; None if unsupported."""
    from numba.core import types

    returned = signature.return_type
    if returned == types.none:
        return "", False
    is_tuple = isinstance(returned, types.BaseTuple)
    formats = [
        _FORMATS.get(str(types.unliteral(t))) for t in (returned if is_tuple else [returned])
    ]
    return None if None in formats else ("".join(formats), is_tuple)


def build_level(level, folder, only):
    """Build the library of an instruction set, and return its part of the index."""
    from calls import tasks_of_library

    from fastmf._jit import cache, library
    from fastmf._jit.argument_types import numba_type
    from fastmf.cli.warmup import run

    cache.folder = lambda: None  # cached kernels have no LLVM text
    recorder = library.ACTIVE = Recorder()
    for name, task in tasks_of_library().items():
        if re.search(only, name):
            start = time.perf_counter()
            failure = run(task)
            print(f"{level}: {name}, {time.perf_counter() - start:.1f} s {failure}", flush=True)
    import llvmlite.binding as llvm
    from numba.core import types as numba_types

    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu="generic" if level == "aarch64" else level, opt=3, reloc="pic", jit=False
    )
    functions, objects = {}, []
    with tempfile.TemporaryDirectory() as temporary:
        for number, ((key, kind), (kernel, types)) in enumerate(recorder.asked.items()):
            given = tuple(map(numba_type, types))
            dispatcher = kernel.dispatcher
            dispatcher.compile(numba_types.void(*given) if kind == "address" else given)
            returned = returns_of(dispatcher.overloads[given].signature)
            if returned is None:
                print(f"not built: {key} returns no numbers", file=sys.stderr)
                continue
            symbol = f"fastmf_{number}"
            text = dispatcher.inspect_llvm(given)
            code, text = object_of(text, kind, symbol, types, machine)
            path = Path(temporary, f"{number}.o")
            path.write_bytes(code)
            missing = undefined(path)
            if missing:
                print(f"not built: {key} needs {missing}", file=sys.stderr)
                continue
            objects.append(path)
            item = functions.setdefault(key, {"entry": None, "address": None})
            item |= {kind: symbol, "returns": returned[0], "is_tuple": returned[1]}
        memory = Path(__file__).with_name("memory.c")
        target = folder / f"{level}.so"
        compiler = os.environ.get("CC", "cc")
        arguments = ["-shared", "-fPIC", "-O2", "-s", "-o", target, memory, *objects, "-lm"]
        subprocess.run([compiler, *map(str, arguments)], check=True)
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    size = target.stat().st_size
    print(f"{level}: {len(functions)} functions, {size / 1e6:.1f} MB")
    return {"digest": digest, "functions": functions}


def undefined(path):
    """Return the undefined symbols of an object that are not in `ALLOWED`."""
    lines = subprocess.run(["nm", "-u", path], capture_output=True, text=True, check=True).stdout
    names = (line.split()[-1] for line in lines.splitlines() if line.strip())
    if sys.platform == "darwin":  # C symbols have a leading underscore
        names = (name.removeprefix("_") for name in names)
    return [name for name in names if not ALLOWED.fullmatch(name)]


def main():
    """Build the libraries for all instruction sets of this processor, each in a process."""
    from fastmf._jit import library

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "fastmf/_jit/built")
    parser.add_argument("--only", default="", help="tasks whose name contains this")
    parser.add_argument("--level", action="append", help="default all that this processor has")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)

    of_processor = library.LEVEL
    levels = ["x86-64-v3", "x86-64-v4"] if of_processor == "x86-64-v4" else [of_processor]
    index = {"sources": library.digest_of_sources(), "levels": {}}
    os.environ |= {"FASTMF_LIBRARY": "0", "NUMBA_CPU_FEATURES": "", "FASTMF_QUIET": "1"}
    for level in arguments.level or levels:
        os.environ["NUMBA_CPU_NAME"] = "generic" if level == "aarch64" else level
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            part = process.submit(build_level, level, arguments.folder, arguments.only)
            index["levels"][level] = part.result()
    content = json.dumps(index)
    digest = hashlib.sha256(content.encode()).hexdigest()
    (arguments.folder / "index.json").write_text(f"{digest}\n{content}")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
