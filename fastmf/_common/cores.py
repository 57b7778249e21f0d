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
    smallest = math.inf
    for line in _text(groups).splitlines():
        number, _, group = line.partition(":")
        controllers, _, path = group.partition(":")
        if number == "0":
            folder, limit = root, _limit
        elif "cpu" in controllers.split(","):
            folder, limit = _mounted(root, controllers), _first_limit
        else:
            continue
        while True:
            smallest = min(smallest, limit(folder / path.strip("/")))
            if not path.strip("/"):
                break
            path = path.rstrip("/").rpartition("/")[0]
    return smallest


def _mounted(root, controllers):
    """The folder of version 1's controllers: of their names, in this order, or of `cpu` alone."""
    folder = root / controllers
    return folder if folder.is_dir() else root / "cpu"


def _limit(group):
    """The limit of a group of version 2."""
    return _ratio(*_text(group / "cpu.max").split()[:2])


def _first_limit(group):
    """The limit of a group of version 1."""
    return _ratio(_text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us"))


def _ratio(quota="", period="100000"):
    """Cores' worth of time; infinite for "max", -1 and text that is no number."""
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return math.inf
    return cores if cores > 0 else math.inf


def _text(file):
    """Text of a file; nothing if there is none, or it may not be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
