"""Names of classes of units, under which code that is compiled for them is kept."""

import hashlib
import inspect
import time
from pathlib import Path

_STARTED = time.time()


def name_of(class_):
    """Name of a class and of its source, or None where compiled code of it cannot be kept.

    Numba identifies a class by its name, and would not notice an edit of its methods. A class that
    another process cannot import (defined in a script or in a function) has no name: no process
    would find the code again. Neither has a class whose file has changed since this process
    started, as in a notebook: there would be old methods under the name of the new source. Modules
    that the class's module imports are not part of the name.
    """
    digest = hashlib.sha256()
    for base in class_.__mro__:
        digest.update(f"{base.__module__}.{base.__qualname__}\0".encode())
        if base in (object, tuple) or _own(base):
            continue
        if not _importable(base):
            return None
        digest.update(Path(inspect.getfile(base)).read_bytes())
    return f"{class_.__name__}-{digest.hexdigest()[:16]}"


def _own(class_):
    """Whether a class belongs to this package, whose sources name the folder."""
    return class_.__module__.partition(".")[0] == __name__.partition(".")[0]


def _importable(class_):
    """Whether other processes can import the class, from the same source as this process."""
    if class_.__module__ == "__main__" or "<locals>" in class_.__qualname__:
        return False
    try:
        return Path(inspect.getfile(class_)).stat().st_mtime < _STARTED
    except (OSError, TypeError):
        return False
