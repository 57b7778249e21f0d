"""Samples as data of ArviZ, which is imported in functions only."""

from collections.abc import Mapping

import numpy as np


def to_inference_data(draws, *, names=None):
    """Draws of chains as ArviZ takes them, for its diagnostics and plots.

    Parameters
    ----------
    draws : dict of str to array of shape (n_chains, n_draws, ...)
        Draws as `gibbs_chains` returns them, or any others.
    names : dict of str to sequence of str, optional
        Names of the columns of some arrays, such as ``{"visible": frame.columns}``. Default:
        numbers.

    Returns
    -------
    xarray.DataTree
        With the group "posterior", made by `arviz_base`, the part of ArviZ 1 that holds data.
        Columns of "visible" are in the dimension "visible_unit", and so on.

    Raises
    ------
    ImportError
        If arviz_base is not installed.
    ValueError
        If arrays differ in chains or draws, or names do not fit.

    See Also
    --------
    gibbs_chains

    Examples
    --------
    >>> import numpy as np, fastmf as mf
    >>> model = mf.RBM(np.ones((3, 2)) / 2, mf.Ising(np.zeros(3)), mf.Ising(np.zeros(2)))
    >>> draws = mf.evaluation.gibbs_chains(model, n_draws=50, rng=0)
    >>> data = mf.evaluation.to_inference_data(draws, names={"visible": ["a", "b", "c"]})
    >>> data.posterior["visible"].sel(visible_unit="b").shape
    (4, 50)
    """
    if not isinstance(draws, Mapping) or not draws:
        raise ValueError(f"draws must be a dict of arrays, got {draws!r:.60}.")
    draws = {name: np.asarray(values) for name, values in draws.items()}
    shapes = {values.shape[:2] for values in draws.values()}
    if len(shapes) > 1 or len(next(iter(shapes))) < 2:
        listed = ", ".join(f"{name} {values.shape}" for name, values in draws.items())
        raise ValueError(f"draws must all have shape (n_chains, n_draws, ...), got {listed}.")
    dims = {name: [f"{name}_unit"] for name, values in draws.items() if values.ndim == 3}
    coords = {}
    for name, columns in (names or {}).items():
        if name not in dims or len(columns) != draws[name].shape[2]:
            have = {array: draws[array].shape[2] for array in dims}
            raise ValueError(
                f"names[{name!r}] must name the columns of an array; there are {have}, got "
                f"{len(columns)} names."
            )
        coords[f"{name}_unit"] = [str(column) for column in columns]
    try:
        from arviz_base import from_dict
    except ModuleNotFoundError as error:
        if error.name != "arviz_base":
            raise
        raise ImportError(
            "data for ArviZ need arviz-base: pip install arviz-base, or pass the arrays to "
            "your version of arviz.from_dict."
        ) from error
    return from_dict({"posterior": draws}, coords=coords, dims=dims)
