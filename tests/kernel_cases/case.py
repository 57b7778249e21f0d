"""A kernel with arguments at any size and type, and which of them are its results."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from fastmf._threads.workers import in_parallel


class Size(NamedTuple):
    """Units and rows of a case. A fully visible machine has the visible units only."""

    n_visible: int
    n_hidden: int
    n_rows: int


def few_rows(size):
    """The size with at most ten rows, where each has messages of its own for every pair."""
    return size._replace(n_rows=min(size.n_rows, 10))


class Case(NamedTuple):
    """A kernel with arguments.

    Parameters
    ----------
    kernel : str
        "room.file.function" in `fastmf.kernels`; the twin has the same address in
        `fastmf.reference`.
    name : str
    build : callable
        build(size, dtype, rows=all): a fresh tuple of arguments. The arguments of
        `rows` are the same whether or not the other rows are there.
    results : tuple of str or callable
        Names of the last arguments, which the kernel fills, or a function of all arguments that
        returns arrays by name; rows first.
    close : dict of dtype to float
        Largest difference between the results of kernel and twin, for each type to compile for.
    exact : tuple of str
        Results that are equal in float64: counts of sweeps, for instance. In float32 rounding moves
        the sweep at which a row ends; of these only the `status` is compared then.
    large : bool
        Whether the case is worth timing at real sizes.
    any_rows : bool
        Whether rows keep their results in any company; otherwise only if rows before them stay.
    """

    kernel: str
    name: str
    build: Callable[..., tuple]
    results: Callable[[tuple], dict[str, Any]] | tuple
    close: dict
    exact: tuple = ()
    large: bool = False
    any_rows: bool = True

    @property
    def dtypes(self):
        return tuple(self.close)

    @property
    def compiled(self):
        return self._function("kernels")

    @property
    def twin(self):
        return self._function("reference")

    def run(self, which, arguments, n_workers=1):
        """Call the "compiled" kernel, in so many threads, or its "twin"."""
        if which == "twin" or n_workers == 1:
            getattr(self, which)(*arguments)
        else:
            in_parallel(self.compiled, arguments, n_workers)

    def filled(self, arguments):
        """Arrays that the kernel has filled, by name."""
        if callable(self.results):
            return self.results(arguments)
        return dict(zip(self.results, arguments[-len(self.results) :], strict=True))

    def assert_close(self, compiled, twin, dtype):
        """Compare what kernel and twin have made of their arguments."""
        found = self.filled(compiled)
        for name, expected in self.filled(twin).items():
            # Which sweep is the last, and with it the last residual, is up to rounding in float32.
            if dtype == "float32" and name in ("n_iter", "residual", "history"):
                continue
            close = 0 if name in self.exact else self.close[dtype]
            np.testing.assert_allclose(found[name], expected, rtol=close, atol=close, err_msg=name)
            assert found[name].dtype == expected.dtype

    def _function(self, part):
        file, _, name = self.kernel.rpartition(".")
        return getattr(import_module(f"fastmf.{part}.{file}"), name)

    def __str__(self):
        return f"{self.kernel}-{self.name}"


def chosen(rows, n_rows):
    """Indices of the rows of a case that are wanted."""
    return np.arange(n_rows) if rows is None else np.asarray(rows)
