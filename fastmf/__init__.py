"""Deterministic mean-field inference and learning in pairwise models.

A model consists of units with one-dimensional distributions and of couplings between them; a
deterministic approximation computes the marginals of the units and the free energy. To read the
code, follow this order:

1. `fastmf.priors`: unit priors, their log-partitions and moments; start with `binary.py`.
2. `fastmf.models`: which units are coupled to which.
3. `fastmf.inference`: marginals and free energies of models, over `fastmf.kernels`; each kernel is
   easiest to read beside its NumPy twin in `fastmf.reference`.
4. `fastmf.learning`: gradients in terms of these marginals, and their ascent.
5. `fastmf.estimators`: scikit-learn estimators.
6. `fastmf.special` and `fastmf._jit.kernel`: special functions, compilation and its cache.

`FROM_EQUATION_TO_CODE.md`, beside this file, gives for each equation of the papers the code that
computes it and the test that checks it.

Symbols
-------
One meaning each, in docstrings, comments and code. The papers: T, Tramel et al. (TAP machines); P,
Ping & Ihler (conditional RBMs); N, Nguyen & Wood (fully visible Boltzmann machines); H,
Hernandez-Lobato & Hernandez-Lobato (spike-and-slab regression). Shapes are of n units, n_v visible
and n_h hidden ones. Where there is a dash, equations use the name in the code.

=====  ===================  ===================  =============  ===================================
here   papers               name in the code     shape          meaning
=====  ===================  ===================  =============  ===================================
x      x; v (P), w (H)      X, visible, ...      (rows, n)      values of units (RBM: visible ones)
h      h (T, P)             hidden               (rows, n_h)    values of hidden units
W      W (T, P)             weights              (n_v, n_h)     couplings of layers: exponent x'Wh
J      W (T), M (N)         couplings            (n, n)         couplings in a layer: x'Jx / 2
-      U (T), b (P, N)      prior.field          (n,)           factor exp(field x) of a prior
-      V (T), 1 / v_s (H)   prior.precision      (n,)           factor exp(-precision x^2 / 2)
-      rho (T), p_s (H)     prior.log_odds       (n,)           prior log-odds of x != 0
b, a   B, A (T)             b, a                 (rows, n)      tilt exp(b x - a x^2 / 2) of a unit
log Z  Z(B, A) (T)          prior.log_partition  (rows, n)      log-partition of a tilted unit
m      a, f_a (T), tau (P)  mean                 (rows, n)      mean of a unit
v      c, f_c (T)           var                  (rows, n)      variance of a unit
-      -F (T), ln Z (P)     log_partition        (rows,)        approximate log Z of the model
-      m_ij, M (P)          messages             (n_v, n_h)     log-ratio of a message's two values
-      a_ij, c_ij (T)       messages             (2, n_v, n_h)  relaxed BP: m, v of i without j
-      Gamma (P)            pairwise             (n_v, n_h)     means of the products x_i h_j
t      t (H); B2, A2 (T)    site                 (2, n)         site exp(t1 x - t2 x^2 / 2)
-      c (H); B1, A1 (T)    cavity               (2, n)         marginal less site: a tilt (b, a)
-      Z^ (H)               tilted               (2, n)         m, v of a prior under its cavity
A      A (H)                (a Gaussian side)    (n, n)         precision matrix, sites included
s2     s2 (H)               noise_variance       ()             noise variance of a linear model
eta    eta (N)              fields               (rows, n)      field + J x of each unit
-      1 - tau (H)          damping              ()             weight of the old value
=====  ===================  ===================  =============  ===================================

The axis of rows is absent if there is one row; for layered models there is one array a layer. The
equations of TAP for the hidden units of an RBM, with their previous means m_h, are

    a = -(W^2)' v,   b = W' m + a m_h,   (m_h, v_h) = prior.moments(b, a)

Where the papers clash: `a` is a mean in T, and here a coefficient of the tilt; `b` is a bias in P
and N, which is `prior.field` here; `c` is a variance in T and a cavity in H, here v and `cavity`;
`V` is a parameter of the prior in T and a marginal in H, here `prior.precision` and (m, v); `tau`
is a belief in P, a damping in H and a tolerance in N, here m, `damping` and `tol`. In an energy
written -v'Wh, as in P, v and h are the values of visible and hidden units.
"""

import sys
from importlib import import_module

from fastmf._jit.lazily import activate

__version__ = "0.1.0"

# Public name -> the part of the package that defines it.
_HOME = {
    "Bernoulli": "priors",
    "Binomial": "priors",
    "Categorical": "priors",
    "Concatenated": "priors",
    "GaussBernoulli": "priors",
    "Gaussian": "priors",
    "Ising": "priors",
    "Ordinal": "priors",
    "TruncatedGaussBernoulli": "priors",
    "TruncatedGaussian": "priors",
    "BoltzmannMachine": "models",
    "CRBM": "models",
    "DBM": "models",
    "RBM": "models",
    "SparseLinearModel": "models",
    "exact": "models",
    "load": "models",
    "FixedPoint": "inference.fixed_point",
    "adaptive_tap": "inference.ep.adaptive_tap",
    "belief_propagation": "inference.bp.belief_propagation",
    "expectation_propagation": "inference.ep.expectation_propagation",
    "log_partition_bounds": "inference.bp.bounds",
    "mixture": "inference.mean_field.solutions",
    "most_probable": "inference.bp.belief_propagation",
    "relaxed_bp": "inference.mean_field.relaxed_bp",
    "tap": "inference.mean_field.tap",
    "tree_reweighted": "inference.bp.bounds",
    "ConditionalRBM": "estimators",
    "DeepBoltzmannMachine": "estimators",
    "FullyVisibleBoltzmannMachine": "estimators",
    "GeneralizedRBM": "estimators",
    "OrdinalMachine": "estimators",
    "PottsMachine": "estimators",
    "SpikeSlabClassifier": "estimators",
    "SpikeSlabRegressor": "estimators",
    "compare_groups": "estimators.networks.edges",
}
_SUBPACKAGES = ("convert", "datasets", "distributed", "evaluation", "plotting", "priors")

__all__ = [*_HOME, *_SUBPACKAGES]

# Optional package -> its name in the package index.
_OPTIONAL = {
    "sklearn": "scikit-learn",
    "matplotlib": "matplotlib",
    "tqdm": "tqdm",
    "dask": "'dask[distributed]'",
}


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module 'fastmf' has no attribute {name!r}")
    try:
        if name in _SUBPACKAGES:
            return import_module(f"fastmf.{name}")
        value = getattr(import_module(f"fastmf.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _OPTIONAL:
            raise
        raise ImportError(
            f"fastmf.{name} needs {package}: pip install {_OPTIONAL[package]}", name=package
        ) from error
    globals()[name] = value
    return value


if "numba" in sys.modules:
    activate()  # functions compiled by users may call those of `fastmf.special`


def __dir__():
    return sorted({*globals(), *__all__})
