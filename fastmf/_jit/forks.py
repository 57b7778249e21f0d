"""Forks of a process of which another thread compiles, loads or frees compiled code.

Numba and llvmlite each have a lock for that. A child process has only the thread that has forked: a
lock that another thread held stays locked in it, and the child waits for ever as soon as it
compiles a kernel, or the garbage collector frees what Numba keeps of one. So the thread that forks
holds both locks meanwhile.
"""

import os

from llvmlite.binding import ffi
from numba.core.compiler_lock import global_compiler_lock

# In the order in which Numba takes them, so that no two threads wait for each other.
LOCKS = global_compiler_lock._lock, ffi.lib._lock._lock


def _acquire():
    for lock in LOCKS:
        lock.acquire()


def _release():
    for lock in reversed(LOCKS):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_acquire, after_in_parent=_release, after_in_child=_release)
