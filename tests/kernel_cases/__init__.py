"""One table of cases for every public kernel, shared by tests, asv and scripts.

A case knows how to build arguments for a kernel at any size and type, and which of them are its
results. The NumPy twin takes the same arguments, so that whatever is done with a kernel (compared,
timed, run on several threads) is done with its twin by exchanging one function for the other. Each
family of kernels has its cases in a file of its own.
"""

from importlib import import_module

from kernel_cases.case import Case, Size

FAMILIES = (
    "tap",
    "ascent",
    "effective_couplings",
    "belief_propagation",
    "bp_graphs",
    "bp_groups",
    "convergence",
    "hamming",
    "layers",
    "local_search",
    "ordinal",
    "potts",
    "pseudo_likelihood",
    "relaxed_bp",
    "sequential",
    "site_blocks",
    "sites",
    "sparse",
    "visible",
)


def _cases_of(family):
    try:
        return import_module(f"kernel_cases.{family}").CASES
    except ImportError:  # asv takes this table to older versions, which lack some kernels
        return []


CASES: list[Case] = [case for family in FAMILIES for case in _cases_of(family)]

__all__ = ["CASES", "Case", "Size", "case"]


def case(name):
    """The case of that name, such as "mean_field.tap.tap-blocked"."""
    return next(c for c in CASES if str(c) == name)
