"""Warnings that point at the line of the user's program, and parts of messages."""

import sys
import warnings

# Packages whose frames lie between a warning and the line that called an estimator: scikit-learn
# wraps methods such as `transform`, and joblib calls `fit` in searches.
_INNER_PACKAGES = ("fastmf", "sklearn", "joblib")


def warn_user(message, category=UserWarning):
    """Warn at the innermost frame that is outside of the package and of those that call it.

    `warnings.warn(skip_file_prefixes=...)` does this from Python 3.12 on, for files: frames are
    told by their modules here, which holds for packages in a zip, too.
    """
    frame, level = sys._getframe(1), 2
    while frame is not None and _is_inner(frame):
        frame, level = frame.f_back, level + 1
    # Where no frame is outside, as in a worker of joblib, the caller of the package's innermost
    # function has to do.
    warnings.warn(message, category, stacklevel=2 if frame is None else level)


def _is_inner(frame):
    name = frame.f_globals.get("__name__") or ""
    return name.partition(".")[0] in _INNER_PACKAGES


def listed(values, most=10, text=str):
    """The first values in a message, and dots if there are more."""
    return ", ".join(map(text, values[:most])) + ", ..." * (len(values) > most)
