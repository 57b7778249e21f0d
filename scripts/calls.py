"""Small models and fits that `first_call.py` times, and whose kernels `build_library.py` builds."""

import numpy as np

import fastmf as mf


def units(name, n, dtype="float64"):
    """Units of the name of a prior, with parameters that suit everything."""
    zeros, ones = np.zeros(n, dtype), np.ones(n, dtype)
    fields = {
        "Binomial": (zeros, 2 * ones),
        "Gaussian": (zeros, ones),
        "TruncatedGaussian": (zeros, ones, zeros, ones),
        "GaussBernoulli": (zeros, ones, zeros),
        "TruncatedGaussBernoulli": (zeros, ones, zeros, zeros, ones),
    }
    return getattr(mf, name)(*fields.get(name, (zeros,)))


def machine(names, dtype="float64"):
    """A machine of two layers, or of more."""
    weights = tuple(np.full((4, 4), 0.1, dtype) for _ in names[1:])
    layers = tuple(units(name, 4, dtype) for name in names)
    return mf.RBM(weights[0], *layers) if len(names) == 2 else mf.DBM(weights, layers)


def binary(dtype="float64", n_layers=2):
    """A machine of Bernoulli units."""
    return machine(("Bernoulli",) * n_layers, dtype)


def pixels(dtype="float64"):
    """A machine of spike-and-slab pixels."""
    return machine(("TruncatedGaussBernoulli", "Bernoulli"), dtype)


def potts(dtype="float64", q=3):
    """A machine with visible units of several categories."""
    groups = mf.Categorical(np.zeros((2, q), dtype))
    return mf.RBM(np.full((2 * q, 4), 0.1, dtype), groups, units("Bernoulli", 4, dtype))


def own():
    """A machine with units of a user's own; Numba is imported only here."""
    from own_prior import ThreeLevels

    return mf.RBM(np.ones((4, 4)), ThreeLevels(np.zeros(4)), units("Bernoulli", 4))


def spins(dtype="float64", name="Ising"):
    """A machine without hidden units."""
    couplings = np.full((4, 4), 0.1, dtype)
    np.fill_diagonal(couplings, 0)
    return mf.BoltzmannMachine(couplings, units(name, 4, dtype))


def ring(dtype="float64", name="Ising"):
    """A sparse graph."""
    from scipy.sparse import csr_array

    couplings = np.roll(0.1 * np.eye(6, dtype=dtype), 1, 1)
    return mf.BoltzmannMachine(csr_array(couplings + couplings.T), units(name, 6, dtype))


def linear(dtype="float64", name="GaussBernoulli"):
    """A linear model with more features than rows."""
    X = np.random.default_rng(0).normal(size=(6, 9)).astype(dtype)
    return mf.SparseLinearModel(X, X[:, 0], 0.1, units(name, 9, dtype))


def rows(dtype="float64", n=5):
    """Rows of bits."""
    return (np.random.default_rng(0).random((20, n)) < 0.5).astype(dtype)


def grey(dtype="float64"):
    """Rows of grey levels."""
    return rows(dtype) * np.linspace(0.2, 1, 20, dtype=dtype)[:, None]


def labels(dtype="int64"):
    """Rows of three categories."""
    return np.random.default_rng(0).integers(0, 3, (20, 4)).astype(dtype)


def fit_rbm(X, **options):
    """Fit an RBM."""
    mf.GeneralizedRBM(3, n_epochs=1, random_state=0, **options).fit(X)


def fit_deep(dtype="float64", sizes=(3, 2)):
    """Fit a deep machine."""
    options = dict(n_epochs=1, pretraining_epochs=1, random_state=0)
    mf.DeepBoltzmannMachine(sizes, **options).fit(rows(dtype))


def fit_conditional(dtype="float64", **options):
    """Fit a conditional machine, and predict."""
    X = rows(dtype)
    mf.ConditionalRBM(3, n_epochs=1, random_state=0, **options).fit(X, X).predict(X)


def fit_linear(kind, dtype="float64", n_features=2):
    """Fit a linear estimator, and predict."""
    X = np.random.default_rng(0).normal(size=(6, n_features)).astype(dtype)
    y = X[:, 0] if kind.endswith("Regressor") else np.arange(6) % 2
    getattr(mf, kind)().fit(X, y).predict(X)


def fit_spins(solver, n=3):
    """Fit a fully visible machine."""
    mf.FullyVisibleBoltzmannMachine(solver=solver, l2=0.1).fit(2 * rows(n=n) - 1)


# Expressions of a first call and of a second combination, by name. A call that has a `dtype` is
# made in both floating-point types.
ROWS = {
    "`tap`, two Bernoulli layers": (
        "mf.tap(binary(dtype))",
        "mf.tap(machine(('Ising', 'Gaussian')))",
    ),
    "`tap`, truncated spike-and-slab visible": (
        "mf.tap(pixels(dtype))",
        "mf.tap(machine(('GaussBernoulli', 'Gaussian')))",
    ),
    "`tap`, Bernoulli, then truncated spike-and-slab": ("mf.tap(binary())", "mf.tap(pixels())"),
    "`tap`, Bernoulli, then a prior of one's own": ("mf.tap(binary())", "mf.tap(own())"),
    "`tap`, two layers, then three": ("mf.tap(binary())", "mf.tap(binary(n_layers=3))"),
    "`tap`, fully visible, blocked": ("mf.tap(spins(dtype))", "mf.tap(spins(name='Bernoulli'))"),
    "`tap`, fully visible, sequential": (
        "mf.tap(spins(dtype), schedule='sequential')",
        "mf.tap(spins(name='Bernoulli'), schedule='sequential')",
    ),
    "`belief_propagation`": (
        "mf.belief_propagation(binary(dtype))",
        "mf.belief_propagation(machine(('Ising', 'Ising')))",
    ),
    "`belief_propagation`, sparse graph": (
        "mf.belief_propagation(ring(dtype))",
        "mf.belief_propagation(ring(name='Bernoulli'))",
    ),
    "`relaxed_bp`": (
        "mf.relaxed_bp(binary(dtype))",
        "mf.relaxed_bp(machine(('Ising', 'Gaussian')))",
    ),
    "`adaptive_tap`": ("mf.adaptive_tap(spins(dtype))", "mf.adaptive_tap(spins(name='Bernoulli'))"),
    "`expectation_propagation`": (
        "mf.expectation_propagation(linear(dtype))",
        "mf.expectation_propagation(linear(name='TruncatedGaussBernoulli'))",
    ),
    "`GeneralizedRBM.fit`, binary": ("fit_rbm(rows(dtype))", "fit_rbm(rows(), hidden='gaussian')"),
    "`GeneralizedRBM.fit`, spike-and-slab pixels": (
        "fit_rbm(grey(dtype), visible='truncated_gauss_bernoulli')",
        "fit_rbm(grey(), visible='truncated_gauss_bernoulli', hidden='ising')",
    ),
    "`DeepBoltzmannMachine.fit`": ("fit_deep(dtype)", "fit_deep(sizes=(3, 2, 2))"),
    "`ConditionalRBM.fit`": ("fit_conditional(dtype)", "fit_conditional(inference='mean_field')"),
    "`SpikeSlabRegressor.fit`": (
        "fit_linear('SpikeSlabRegressor', dtype)",
        "fit_linear('SpikeSlabRegressor', n_features=9)",
    ),
    "`SpikeSlabClassifier.fit`": (
        "fit_linear('SpikeSlabClassifier', dtype)",
        "fit_linear('SpikeSlabClassifier', n_features=9)",
    ),
    "`FullyVisibleBoltzmannMachine.fit`, newton": ("fit_spins('newton')", "fit_spins('newton', 6)"),
    "`FullyVisibleBoltzmannMachine.fit`, bslm": ("fit_spins('bslm')", "fit_spins('bslm', 6)"),
    "`tap`, categorical visible": ("mf.tap(potts(dtype))", "mf.tap(potts(q=4))"),
    "`tap`, Bernoulli, then categorical": ("mf.tap(binary())", "mf.tap(potts())"),
    "`belief_propagation`, categorical visible": (
        "mf.belief_propagation(potts())",
        "mf.belief_propagation(potts(q=4))",
    ),
    "`GeneralizedRBM.fit`, categorical": (
        "fit_rbm(labels(dtype), visible='categorical')",
        "fit_rbm(labels(), visible='categorical', hidden='gaussian')",
    ),
    "`PottsMachine.fit`": (
        "mf.PottsMachine(l2=0.1).fit(labels())",
        "mf.PottsMachine(l2=0.1, solver='asymmetric').fit(labels())",
    ),
}
