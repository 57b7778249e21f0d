"""How many cores this process may use: its affinity, and the quota of its container."""

import math
import os
from functools import cache
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
OF_THIS_PROCESS = Path("/proc/self/cgroup")


def n_cores():
    """Cores that this process may use, at least one.

    No more than its affinity has (set by `taskset`, a scheduler or a cpuset), and no more
    than its quota of time rounded up: beyond it, the kernel pauses all threads for a part of each
    period, those with work included.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _quota_of_this_process())))


@cache
def _quota_of_this_process():
    return quota(CGROUP, OF_THIS_PROCESS)


def quota(root, groups):
    """Cores' worth of time that control groups leave to a process; infinite without a limit."""
    line = next((line for line in _text(groups).splitlines() if line.startswith("0::")), "")
    group = root / line.removeprefix("0::").strip("/")
    folders = [group, *group.parents] if line else []
    return min((_limit(folder) for folder in folders), default=math.inf)


def _limit(group):
    """Cores' worth of time; infinite for "max" and text that is no number."""
    try:
        time, period = map(int, _text(group / "cpu.max").split())
        return time / period
    except (ValueError, ZeroDivisionError):
        return math.inf


def _text(file):
    """Text of a file; nothing if there is none, or it may not be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
