"""LLVM makes vectors of the loops that take the time."""

import re

import pytest

from fastmf._jit import cache, library
from fastmf.kernels.mean_field import units
from fastmf.kernels.pseudo_likelihood import binary


@pytest.mark.slow
@pytest.mark.skipif(library.LEVEL not in ("x86-64-v3", "x86-64-v4"), reason="needs AVX2")
@pytest.mark.parametrize("kernel, compiled, instruction", [
    (units._update_units, lambda: units.units_address("float32"), "sqrt"),
    (binary._odds_and_value, binary.bslm_addresses, r"fmadd\d+"),
    (binary._sweep, binary.bslm_addresses, "min"),
])  # fmt: skip
def test_loops_have_packed_instructions(kernel, compiled, instruction, monkeypatch):
    compiled()
    monkeypatch.setattr(cache, "folder", lambda: None)  # cached code comes without its assembly
    fresh = kernel._compile()
    fresh.compile(kernel.signatures[0])
    assert re.search(rf"v{instruction}p[sd]\s.*%[yz]mm", fresh.inspect_asm(fresh.signatures[0]))
