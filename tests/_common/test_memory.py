"""Physical memory, on systems that tell it in another way."""

import ctypes
from types import SimpleNamespace

import numpy as np

from fastmf._common import memory


def test_memory_of_windows(monkeypatch):
    """The structure is that of its documentation, 64 bytes, and filled by one call."""

    def fill(pointer):
        assert pointer._obj.length == ctypes.sizeof(pointer._obj) == 64
        memory_of = np.frombuffer(pointer._obj, np.uint64)
        memory_of[1] = 3 << 30  # after length and load
        return 1

    def no_answer(name):
        raise ValueError(name)

    monkeypatch.setattr(memory.os, "sysconf", no_answer)
    kernel = SimpleNamespace(GlobalMemoryStatusEx=fill)
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)
    assert memory.memory_of_the_machine() == 3 << 30
    kernel.GlobalMemoryStatusEx = lambda pointer: 0
    assert memory.memory_of_the_machine() == np.inf
    monkeypatch.delattr(ctypes, "windll")
    assert memory.memory_of_the_machine() == np.inf
