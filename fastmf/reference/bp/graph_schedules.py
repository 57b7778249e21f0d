"""NumPy twin of `kernels.bp.graph_schedules`."""

from fastmf.reference.bp import graph_binary, graph_states


def graph_sweep(send, problem, state, rows, step, queue):
    """One sweep of some rows, unit after unit, forwards or backwards."""
    sender = graph_binary if hasattr(problem, "odds") else graph_states
    for index in rows:
        sender.send(problem, state, (index, 0), step)
