"""Names of features along arrays of pandas: by position alone, another order would go unnoticed."""


def names_along(name, parts):
    """Names of features along series, or along both sides of square data frames."""
    names = []
    for part in parts:
        own = list(part.index) if hasattr(part, "iloc") else [None]
        if not all(isinstance(label, str) for label in own):
            return None
        if part.ndim == 2 and len(part.columns) == len(own) and list(part.columns) != own:
            raise ValueError(
                f"{name} must have the same names of rows and columns in the same order: take "
                f"{name}.loc[names, names]."
            )
        names += own
    return names


def check_order(name, parts, names, other):
    """Raise if arrays of consecutive features name them in another order than another argument."""
    own = names_along(name, parts)
    if own is None or names is None or own == list(names):
        return
    differ = f"{len(own)} and {len(names)} names"
    for k, (mine, theirs) in enumerate(zip(own, names, strict=False)):
        if mine != theirs:
            differ = f"{mine!r} and {theirs!r} in place {k}"
            break
    raise ValueError(
        f"{name} must name the features in the order of {other}, got {differ}: select them by "
        "their names (.loc), or give arrays."
    )
