"""Names of classes of units, under which the code compiled for them is cached."""

import hashlib
import inspect
import time
from pathlib import Path

_STARTED = time.time()


def name_of(class_):
    """Return a name of a class and its source, or None if its code cannot be cached.

    Numba identifies a class by its name, and would not notice an edit of its methods. The result is
    None for a class that other processes cannot import (defined in a script or in a function), as
    none of them would use the code, and for a class whose file has changed since this process
    started, as in a notebook: old methods would be cached under the name of the new source. The
    name does not depend on modules that the class's module imports.
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
    """Return whether a class belongs to this package: the cache's folder depends on its source."""
    return class_.__module__.partition(".")[0] == __name__.partition(".")[0]


def _importable(class_):
    """Return whether other processes can import the class from the source of this process."""
    if class_.__module__ == "__main__" or "<locals>" in class_.__qualname__:
        return False
    try:
        return Path(inspect.getfile(class_)).stat().st_mtime < _STARTED
    except (OSError, TypeError):
        return False
