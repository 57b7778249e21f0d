"""Warnings that refer to the line of the user's program, and short texts of values."""

import sys
import warnings

import numpy as np

# Packages whose frames lie between a warning and the line that called an estimator: scikit-learn
# wraps methods such as `transform`, and joblib calls `fit` in searches.
_INNER_PACKAGES = ("fastmf", "sklearn", "joblib")


def warn_user(message, category=UserWarning):
    """Warn at the innermost frame outside the package and the packages that call it.

    `warnings.warn(skip_file_prefixes=...)` does this from Python 3.12 on, by files. Here frames are
    identified by modules, which also works for packages in a zip file.
    """
    frame, level = sys._getframe(1), 2
    while frame is not None and _is_inner(frame):
        frame, level = frame.f_back, level + 1
    # If no frame is outside, as in a worker of joblib, use the caller of the innermost function of
    # the package.
    warnings.warn(message, category, stacklevel=2 if frame is None else level)


def _is_inner(frame):
    return (frame.f_globals.get("__name__") or "").partition(".")[0] in _INNER_PACKAGES


def listed(values, most=10, text=str):
    """Format the first values for a message, with dots if there are more."""
    return ", ".join(map(text, values[:most])) + (", ..." if len(values) > most else "")


def short_repr(class_):
    """Let the NamedTuples of a class print the shapes of arrays, and the lengths of lists."""

    def text(self):
        texts = []
        for name, value in self._asdict().items():
            if isinstance(value, np.ndarray):
                texts.append(f"{name} of shape {value.shape}")
            elif isinstance(value, list):
                texts.append(f"{len(value)} {name}")
            else:
                shown = f"{value:.6g}" if isinstance(value, float) else repr(value)
                texts.append(f"{name}={shown}")
        return f"{class_.__name__}({', '.join(texts)})"

    class_.__repr__ = text
    return class_
