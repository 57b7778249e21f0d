"""Optional import of pandas, and checks of the names of features in data frames.

Without checks of names, another order of features would go unnoticed.
"""


def pandas():
    """Import and return the module pandas."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ImportError("data frames need pandas: pip install pandas.") from error
    return pandas


def names_along(name, parts):
    """Return names of features along series, or along both axes of square data frames."""
    names = []
    for part in parts:
        labels = list(part.index) if hasattr(part, "iloc") else [None]
        if not all(isinstance(label, str) for label in labels):
            return None
        if part.ndim == 2 and len(part.columns) == len(labels) and list(part.columns) != labels:
            raise ValueError(
                f"{name} must have the same names of rows and columns in the same order: take "
                f"{name}.loc[names, names]."
            )
        names += labels
    return names


def check_order(name, parts, names, other):
    """Raise if arrays of consecutive features name them in another order than `names`."""
    names_of_parts = names_along(name, parts)
    if names_of_parts is None or names is None or names_of_parts == list(names):
        return
    differ = f"{len(names_of_parts)} and {len(names)} names"
    for k, (name_of_part, theirs) in enumerate(zip(names_of_parts, names, strict=False)):
        if name_of_part != theirs:
            differ = f"{name_of_part!r} and {theirs!r} in place {k}"
            break
    raise ValueError(
        f"{name} must name the features in the order of {other}, got {differ}: select them by "
        "their names (.loc), or give arrays."
    )
