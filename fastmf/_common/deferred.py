"""Deferred import of modules that another package imports without need."""

import sys
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


class _Deferred(ModuleType):
    """Placeholder of a module that is imported when one of its attributes is first looked up."""

    def __getattr__(self, name):
        _withdraw(self)
        return getattr(import_module(self.__name__), name)


@contextmanager
def deferred(name):
    """In a block of imports, let `import name` have no effect until the module is used.

    Code that has imported the module in the block can use its attributes, which imports it. After
    the block the module is imported as usual.
    """
    placeholder = _Deferred(name)
    if sys.modules.setdefault(name, placeholder) is not placeholder:
        yield
        return
    try:
        yield
    finally:
        _withdraw(placeholder)


def _withdraw(placeholder):
    if sys.modules.get(placeholder.__name__) is placeholder:
        sys.modules.pop(placeholder.__name__, None)
