"""Workers of Dask that are forks of a process which has imported this package."""

from distributed.utils import get_mp_context


def import_before_forks():
    """Let workers, and those that take their places, import nothing that all of them need.

    It holds for the first cluster of a process, and those after it.
    """
    context = get_mp_context()  # asked before, it would set what is imported later
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(["distributed", "numba", "fastmf.distributed"])
