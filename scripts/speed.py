"""Compare fastmf with NumPy, SciPy and other packages: all tables of SPEED.md but the first.

    python scripts/speed.py --write              # all tables; minutes on an idle machine
    python scripts/speed.py regression epoch     # print some parts

SPEED.md describes how times are measured. Graphs of other packages are built and compiled before
the measurement; the last column has the time for building them. PGMax 0.6.1 does not run with new
versions of JAX: use `pip install --no-deps pgmax` with "jax<0.5".
"""

import os
import time
import warnings
from contextlib import suppress
from functools import partial

import numpy as np
import timing
from scaling import chain
from scipy.optimize import minimize
from scipy.sparse import coo_array
from timing import THREADS, grid, interleaved, ratio, symmetric, timed

import fastmf as mf
from fastmf.inference.mean_field._layouts import rows_per_worker

from kernel_cases import Size, case  # isort: skip  (found through timing)
from kernel_cases.machines import rbm  # isort: skip
from kernel_cases.tap import tap_arguments  # isort: skip

TAP = case("mean_field.tap.tap-blocked")
# Sides of grids for sum-product and max-product, sides of a strip, and units of a tree.
GRIDS, MAX_GRIDS, STRIP, TREE = (100, 300), (100, 30), (6, 12), 200
SWEEPS = 25
SPIN = np.array([-1.0, 1.0])


def by_numpy(seconds_of, *arguments):
    """Return the smaller of the times with one BLAS thread (better for small products) and all.

    One thread comes first, because BLAS threads spin for a while after a call.
    """
    seconds = []
    for n_threads in sorted({1, THREADS}):
        with timing.blas_threads(n_threads):
            seconds.append(seconds_of(*arguments))
    return min(seconds)


def show(seconds):
    """Format a time in s, ms or µs."""
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1 or unit == "µs":
            return f"{seconds * scale:.3g} {unit}"


def line(task, ours, theirs, other, note=""):
    """Format a row of the table for two lists of seconds; a ratio below 1 is bold."""
    times = f"{show(np.median(ours))} | {show(np.median(theirs))} ({other})"
    faster = ratio(theirs, ours)
    return f"{task} | {times} | {f'**{faster:.2g}**' if faster < 1 else f'{faster:.2g}'} | {note}"


def beside(task, ours, peers, repeats, notes=None):
    """Yield the rows that compare a solver with each of its peers."""
    times = interleaved({"ours": ours} | peers, repeats)
    for name in peers:
        yield line(task, times["ours"], times[name], name, (notes or {}).get(name, ""))


# --- one sweep ----------------------------------------------------------------------------------


class NumPySweep:
    """An efficient blocked binary TAP sweep in NumPy: in place, for all rows at once."""

    def __init__(self, model, n_rows):
        W = model.weights
        self.layers = [
            (W, W * W, model.hidden.field), (W.T, (W * W).T, model.visible.field),
        ]  # fmt: skip
        self.mean = [np.full((n_rows, n), 0.5, W.dtype) for n in W.shape]
        self.var = [mean * (1 - mean) for mean in self.mean]
        self.work = [[np.empty_like(mean) for _ in range(2)] for mean in self.mean]
        self.residual = np.zeros(n_rows, W.dtype)

    def __call__(self, n_sweeps, products_alone=False):
        """Sweep the hidden layer, then the visible one, `n_sweeps` times."""
        for _ in range(n_sweeps):
            self.residual[:] = 0
            for layer, (W, squares, field) in zip((1, 0), self.layers, strict=True):
                t, a = self.work[layer]
                np.matmul(self.var[1 - layer], squares, out=a)
                np.matmul(self.mean[1 - layer], W, out=t)
                if not products_alone:
                    self._update(self.mean[layer], self.var[layer], t, a, field)

    def _update(self, mean, var, t, a, field):
        # field + W m - a m + a / 2, then the sigmoid, with `var` as scratch space.
        t += field
        np.subtract(0.5, mean, out=var)
        a *= var
        t += a
        np.negative(t, out=t)
        np.exp(t, out=t)
        t += 1
        np.divide(1, t, out=t)
        np.subtract(t, mean, out=a)
        np.abs(a, out=a)
        np.maximum(self.residual, a.max(1), out=self.residual)
        mean[:] = t
        np.subtract(1, mean, out=var)
        var *= mean


def compiled_sweeps(size, dtype, n_sweeps, **options):
    """Return the seconds per sweep of several compiled sweeps."""
    options |= {"tol": 0.0, "max_iter": n_sweeps}
    options["rows_per_worker"] = rows_per_worker(size.n_rows, THREADS)
    arguments = tap_arguments(size, dtype, **options)
    return timed(TAP.run, "compiled", arguments, THREADS) / n_sweeps


def one_sweep(n_hidden, dtype, repeats, n_sweeps=20):
    """Compare blocked sweeps of 100 rows with in-place NumPy, and with its matrix products."""
    size = Size(784, n_hidden, 100)
    plain = NumPySweep(rbm(size, dtype), size.n_rows)
    times = interleaved(
        {
            "ours": partial(compiled_sweeps, size, dtype, n_sweeps),
            "NumPy": lambda: by_numpy(timed, plain, n_sweeps) / n_sweeps,
            "products": lambda: by_numpy(timed, plain, n_sweeps, True) / n_sweeps,
        },
        2 * repeats + 1,  # short calls
    )
    over = ratio(times["ours"], times["products"])
    yield line(f"one sweep of 100 rows, 784 x {n_hidden}, {dtype}", times["ours"], times["NumPy"],
               "NumPy in place", f"{over:.2f} times its matrix products alone")  # fmt: skip


def numpy_unit_by_unit(model, mean, var, order):
    """Make one sequential TAP sweep in NumPy, in which each unit uses the latest values."""
    W, W_T = model.weights, np.ascontiguousarray(model.weights.T)
    rows = {0: (W, W * W, model.visible.field), 1: (W_T, W_T * W_T, model.hidden.field)}
    for layer, i in order:
        W, squares, field = rows[layer]
        a = var[1 - layer] @ squares[i]
        t = field[i] + mean[1 - layer] @ W[i] + a * (0.5 - mean[layer][:, i])
        m = 1 / (1 + np.exp(-t))
        mean[layer][:, i], var[layer][:, i] = m, m * (1 - m)


def sequential(n_hidden, dtype, repeats):
    """Compare sequential sweeps with NumPy, unit by unit."""
    size = Size(784, n_hidden, 100)
    model = rbm(size, dtype)
    order = sorted(
        [(layer, i) for layer, n in enumerate(model.weights.shape) for i in range(n)],
        key=lambda unit: unit[1] / model.weights.shape[unit[0]],
    )
    mean = [np.full((100, n), 0.5, dtype) for n in model.weights.shape]
    var = [m * (1 - m) for m in mean]
    ours = partial(compiled_sweeps, size, dtype, 3, schedule="sequential")
    theirs = partial(by_numpy, timed, numpy_unit_by_unit, model, mean, var, order)
    task = f"one sequential sweep of 100 rows, 784 x {n_hidden}, {dtype}"
    yield from beside(task, ours, {"NumPy, unit by unit": theirs}, repeats)


# --- whole solves -------------------------------------------------------------------------------


def all_starts(n_hidden, dtype, repeats):
    """Compare the solution of 100 data starts to 1e-8 on a trained machine."""
    trained = timing.trained_machine(n_hidden)
    model = mf.RBM(trained.weights.astype(dtype), *trained.layers)
    starts, solutions = timing.images(10_000)[:100], {}

    def ours(kind, **options):
        solutions[kind] = mf.tap(model, starts, n_threads=THREADS, **options)

    def twin():
        options = {"machine": lambda *_: model, "start": starts, "max_iter": 1000}
        arguments = tap_arguments(Size(784, n_hidden, 100), dtype, **options)
        seconds = timed(TAP.twin, *arguments)
        mean, var = (np.split(part, [784], axis=1) for part in arguments[-1].state[:2])
        solutions["NumPy"] = tuple(mean), tuple(var)
        return seconds

    def fixed_points(name):
        # A row that passes a saddle slowly can stop there: compare the points of convergence.
        options = {"tol": 1e-12, "max_iter": 100_000, "acceleration": False}
        return np.hstack(mf.tap(trained, solutions[name], n_threads=THREADS, **options).mean)

    solvers = {
        "plain": partial(ours, "plain", acceleration=False),
        "accelerated": partial(ours, "accelerated"),
    }
    times = interleaved(solvers | {"NumPy": partial(by_numpy, twin)}, repeats)
    expected = fixed_points("NumPy")
    for kind in solvers:
        equal = abs(fixed_points(kind) - expected).max(1) < 1e-6
        yield line(
            f"100 starts to 1e-8, trained 784 x {n_hidden}, {kind}, {dtype}", times[kind],
            times["NumPy"], f"NumPy of Algorithm 1, {dtype}",
            f"{equal.mean():.0%} the same fixed points, swept on to 1e-12",
        )  # fmt: skip


# --- learning ----------------------------------------------------------------------------------


def epoch(n_hidden, dtype, repeats):
    """Compare training epochs with scikit-learn's persistent contrastive divergence."""
    from sklearn.neural_network import BernoulliRBM

    from fastmf.learning.layered.settings import LayeredSettings
    from fastmf.learning.layered.step import Plan
    from fastmf.learning.training.ascent import initial_state

    X = timing.images(10_000)
    rng = np.random.default_rng(0)
    weights = rng.normal(0, 0.01, (784, n_hidden)).astype(dtype)
    model = mf.RBM(weights, mf.Bernoulli.from_data(X), mf.Bernoulli(np.zeros(n_hidden)))
    # Batch sizes and options by name; the first one is the default. TAP with half as many starts as
    # rows in a batch takes 8 instead of 14 products.
    gradients = {
        "TAP, 3 sweeps, 20 rows a step": (20, {"gradient": "tap", "n_sweeps": 3}),
        "TAP, 3 sweeps": (100, {"gradient": "tap", "n_sweeps": 3}),
        "TAP, 3 sweeps from 50 starts": (100, {"gradient": "tap", "n_sweeps": 3, "n_starts": 50}),
        "PCD-1": (100, {"gradient": "pcd", "n_sweeps": 1}),
        "CD-1": (100, {"gradient": "cd", "n_sweeps": 1}),
    }

    def ours(batch, options, n_threads):
        rows = np.arange(len(X)).reshape(-1, batch)
        step = Plan(model, LayeredSettings(batch_size=batch, **options), n_threads)

        def take():
            state = initial_state(model)
            for k, of_batch in enumerate(rows):
                step(state, X[of_batch], 5e-3, np.random.default_rng(k))

        return take

    def theirs(batch):
        BernoulliRBM(n_hidden, batch_size=batch, n_iter=1, random_state=0).fit(X)

    runs = {batch: partial(by_numpy, timed, theirs, batch) for batch in (20, 100)}
    for name, (batch, options) in gradients.items():
        runs[name] = ours(batch, options, THREADS)
        runs[f"{name}, one thread"] = ours(batch, options, 1)
    times = interleaved(runs, repeats)
    for name, (batch, _) in gradients.items():
        gain = ratio(times[f"{name}, one thread"], times[name])
        what = f"training epoch of 10,000 rows, 784 x {n_hidden}, {name}, {dtype}"
        peer = "scikit-learn, PCD-1" + ", 20 rows a step" * (batch == 20)
        yield line(what, times[name], times[batch], peer, f"{gain:.2g} times one thread")


# --- other packages ---------------------------------------------------------------------------


def design(n, d, correlation, seed=0):
    """Draw features with correlations that decrease with distance, and ten distant coefficients."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, d)), np.zeros(d)
    for j in range(1, d):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    w[d // 20 :: d // 10] = rng.normal(size=10)
    return X, w


def regression(repeats):
    """Compare times and errors of sparse linear regression with more features than rows."""
    from sklearn.linear_model import ARDRegression, ElasticNetCV, LassoCV

    for n, d, correlation in ((100, 1000, 0.0), (300, 1000, 0.9)):
        X, w = design(n + 1000, d, correlation)
        y = X @ w + 0.1 * np.random.default_rng(1).normal(size=len(X))
        given = {"noise_variance": 0.01, "slab_variance": 1.0, "inclusion_probability": 10 / d}
        ours = {
            "parameters known": mf.SpikeSlabRegressor(**given, fit_intercept=False),
            "parameters learned": mf.SpikeSlabRegressor(),
        }
        peers = {
            "LassoCV": LassoCV(n_jobs=1),
            "ElasticNetCV": ElasticNetCV(l1_ratio=[0.5, 0.9, 1.0], n_jobs=1),
            "ARDRegression": ARDRegression(),
        }
        task, rows = f"sparse regression, {n} x {d}", (X[:n], y[:n], X[n:], y[n:])
        yield from compared(task, correlation, ours, peers, rows, w, repeats)


def classification(repeats):
    """Compare sparse probit classification with L1-penalised logistic regression."""
    from sklearn.linear_model import LogisticRegressionCV

    for correlation in (0.0, 0.9):
        X, w = design(1400, 300, correlation)
        y = (3 * X @ w + np.random.default_rng(1).normal(size=len(X)) > 0).astype(float)
        peers = {
            "LogisticRegressionCV, L1": LogisticRegressionCV(
                l1_ratios=[1.0], solver="liblinear", use_legacy_attributes=False, random_state=0
            )
        }
        task, rows = "sparse classification, 400 x 300", (X[:400], y[:400], X[400:], y[400:])
        ours = {"parameters learned": mf.SpikeSlabClassifier()}
        yield from compared(task, correlation, ours, peers, rows, w, repeats)


def compared(task, correlation, ours, peers, rows, w, repeats):
    """Yield rows that compare estimators of the package with all peers, with errors of both."""
    task += f"{', correlations of 0.9' * (correlation > 0)}, ten coefficients"
    X, y, X_new, y_new = rows
    fits = {name: partial(one.fit, X, y) for name, one in (ours | peers).items()}
    for name in ours:
        fits[name]()  # compiles
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # errors show fits that have not converged
        times = interleaved(fits, repeats)
    errors = {name: errors_of(one, w, X_new, y_new) for name, one in (ours | peers).items()}
    for how in ours:
        for name in peers:
            both = zip(errors[how].items(), errors[name].values(), strict=True)
            note = "; ".join(f"{what} {ours_} : {theirs}" for (what, ours_), theirs in both)
            yield line(f"{task}, {how}", times[how], times[name], f"scikit-learn, {name}", note)


def errors_of(one, w, X_new, y_new):
    """Return true and false discoveries, and errors of coefficients and of new predictions."""
    probability = getattr(one, "inclusion_probability_", None)
    chosen = np.ravel(one.coef_) != 0 if probability is None else np.ravel(probability) > 0.5
    errors = {"features found": chosen[w != 0].sum(), "false": chosen[w == 0].sum()}
    wrong = one.predict(X_new) - y_new
    if set(np.unique(y_new)) <= {0.0, 1.0}:
        return errors | {"wrong classes": f"{(wrong != 0).mean():.1%}"}
    error = np.sqrt(((one.coef_ - w) ** 2).sum() / np.count_nonzero(w))
    return errors | {"error of a coefficient": f"{error:.2g}", "predictions": f"{wrong.std():.3g}"}


def pseudo_likelihood(repeats):
    """Compare maximum pseudo-likelihood fits of raw rows for which the maximum exists."""
    peer = "SciPy, L-BFGS-B on distinct rows"
    for d in (10, 20):
        X = chain(d, 16_000)
        ours = mf.FullyVisibleBoltzmannMachine(solver="auto")
        gap = abs(ours.fit(X).couplings_ - scipy_maximum(X)).max()
        note = f"fastmf also tests existence; couplings differ by at most {gap:.1g}"
        task = f"maximum pseudo-likelihood, {d} units, 16,000 rows"
        peers = {peer: partial(scipy_maximum, X)}
        yield from beside(task, partial(ours.fit, X), peers, repeats, {peer: note})


def scipy_maximum(X):
    """Maximise the pseudo-likelihood with NumPy and SciPy; return the couplings."""
    rows, counts = np.unique(X, axis=0, return_counts=True)
    weights, d = counts / len(X), X.shape[1]
    upper = np.triu_indices(d, 1)

    def loss(parameters):
        couplings = symmetric(parameters[d:], d)
        fields = rows @ couplings + parameters[:d]
        value = weights @ np.logaddexp(0, -2 * rows * fields).sum(1)
        residual = weights[:, None] * (np.tanh(fields) - rows)
        cross = residual.T @ rows
        return value, np.concatenate([residual.sum(0), (cross + cross.T)[upper]])

    start = np.zeros(d + len(upper[0]))
    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-14, "gtol": 1e-7}
    solution = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    return symmetric(solution.x[d:], d)


# --- sparse graphs ----------------------------------------------------------------------------


def tree(n_units):
    """Return the edges of a tree in which each unit is joined to a random previous unit."""
    rng = np.random.default_rng(0)
    return np.array([(rng.integers(k), k) for k in range(1, n_units)])


def spins(edges):
    """Return a machine with random couplings on these edges, and the couplings.

    Undamped parallel sweeps converge on grids with such couplings.
    """
    rng, n = np.random.default_rng(1), edges.max() + 1
    couplings, field = rng.normal(scale=0.3, size=len(edges)), rng.normal(scale=0.3, size=n)
    half = coo_array((couplings, edges.T), shape=(n, n))
    return mf.BoltzmannMachine((half + half.T).tocsr(), mf.Ising(field)), couplings


def built(make):
    """Return the result of a function, and its time as text."""
    start = time.perf_counter()
    return make(), show(time.perf_counter() - start)


def pgmax(edges, couplings, field, double, **options):
    """Return a compiled function of PGMax that computes the log-odds of the beliefs.

    Temperature 1 is sum-product, 0 max-product. Messages are initially uniform, and updated in
    parallel.
    """
    import jax
    from jax.experimental import enable_x64
    from pgmax import fgraph, fgroup, infer, vgroup

    with enable_x64(double):
        units = vgroup.NDVarArray(num_states=2, shape=field.shape)
        group = fgroup.PairwiseFactorGroup(
            variables_for_factors=[[units[i], units[j]] for i, j in edges.tolist()],
            log_potential_matrix=couplings[:, None, None] * np.outer(SPIN, SPIN),
        )
        graph = fgraph.FactorGraph(variable_groups=[units])
        graph.add_factors(group)
        inferer = infer.build_inferer(graph.bp_state, backend="bp")
        arrays = inferer.init(evidence_updates={units: field[:, None] * SPIN})

    @jax.jit
    def beliefs(arrays):
        log_potentials = inferer.get_beliefs(inferer.run(arrays, **options))[units]
        return log_potentials[:, 1] - log_potentials[:, 0]

    def solve():
        with enable_x64(double):
            return np.asarray(beliefs(arrays))

    return solve


def sum_product(repeats):
    """Compare marginals of grids after `SWEEPS` sweeps, by which both packages converge."""
    for side in GRIDS:
        edges = grid(side, side)
        model, couplings = spins(edges)
        options = {"max_iter": SWEEPS, "tol": 0, "damping": 0.0, "n_threads": 1}
        ours = partial(mf.belief_propagation, model, **options)
        mean, peers, notes = ours().mean, {}, {}
        for double in (False, True):
            name = f"PGMax, float{64 if double else 32}"
            make = partial(pgmax, edges, couplings, model.prior.field, double,
                           num_iters=SWEEPS, damping=0.0, temperature=1.0)  # fmt: skip
            peers[name], seconds = built(make)
            gap = abs(np.tanh(peers[name]() / 2) - mean).max() / 2
            assert gap < 1e-3, f"{name} differs by {gap}"
            notes[name] = f"marginals differ by at most {gap:.1g}; graph built in {seconds}"
        task = f"{SWEEPS} sweeps of sum-product, Ising grid {side} x {side}, float64"
        yield from beside(task, ours, peers, repeats, notes)


def max_product(repeats):
    """Compare the most probable state of a grid, after equal sweeps and with default options.

    By default, `most_probable` sweeps until messages converge or cycle, and then improves the
    state, which takes much longer.
    """
    sweeps, peer = dict(max_iter=SWEEPS, search=False), f"PGMax, float32, {SWEEPS} sweeps"
    names = f"{SWEEPS} sweeps of max-product", "most probable state, default options"
    for side, options, name in zip(MAX_GRIDS, (sweeps, {}), names, strict=True):
        edges = grid(side, side)
        model, couplings = spins(edges)
        field = model.prior.field
        ours = partial(mf.most_probable, model, n_threads=1, **options)
        solve, seconds = built(
            partial(pgmax, edges, couplings, field, False,
                    num_iters=SWEEPS, damping=0.5, temperature=0.0)
        )  # fmt: skip
        values = [
            states @ field + couplings @ states[edges].prod(1)
            for states in (ours().assignment, np.where(solve() > 0, 1.0, -1.0))
        ]
        note = "log-weight of the state {:.6g} : {:.6g}; ".format(*values)
        note += f"graph built in {seconds}"
        task = f"{name}, Ising grid {side} x {side}"
        yield from beside(task, ours, {peer: solve}, repeats, {peer: note})


def by_junction_tree(junction_tree):
    """Calibrate pgmpy's `BeliefPropagation`; return the probabilities of state 1 of all units."""
    junction_tree.calibrate()
    probability = {}
    for clique, table in junction_tree.get_clique_beliefs().items():
        for unit in clique:
            if unit not in probability:
                summed = [k for k in clique if k != unit]
                values = table.marginalize(summed, inplace=False).values if summed else table.values
                probability[unit] = values[1] / values.sum()
    return np.array([probability[k] for k in range(len(probability))])


def elimination(repeats):
    """Compare exact marginals of all units."""
    from pgmpy.inference import BeliefPropagation

    graphs = {"Ising grid {} x {}".format(*STRIP): grid(*STRIP)}
    graphs[f"random tree of {TREE} spins"] = tree(TREE)
    for name, edges in graphs.items():
        model, _ = spins(edges)
        junction_tree, seconds = built(partial(BeliefPropagation, mf.convert.to_pgmpy(model)))
        ours, peer = partial(mf.exact, model), partial(by_junction_tree, junction_tree)
        np.testing.assert_allclose(peer(), (1 + ours().mean) / 2, atol=1e-10)
        title, note = "pgmpy, junction tree", f"junction tree built in {seconds}"
        yield from beside(f"exact marginals, {name}", ours, {title: peer}, repeats, {title: note})


# --- tables -------------------------------------------------------------------------------------


def of_sizes(function, sizes, dtypes=("float64", "float32")):
    """Return a part of a table: the rows of a function for several sizes and dtypes."""

    def part(repeats):
        for n in sizes:
            for dtype in dtypes:
                yield from function(n, dtype, repeats)

    return part


# Parts of each table.
TABLES = {
    "speed": {
        "sweep": of_sizes(one_sweep, (100, 500, 2000)),
        "sequential": of_sizes(sequential, (500,)),
        "starts": of_sizes(all_starts, (100, 500)),
        "epoch": of_sizes(epoch, (100, 500), ("float32",)),
    },
    "peers": {
        "regression": regression,
        "classification": classification,
        "pseudo_likelihood": pseudo_likelihood,
    },
    "graphs": {"sum_product": sum_product, "max_product": max_product, "elimination": elimination},
}
PARTS = {part: function for parts in TABLES.values() for part, function in parts.items()}


def table(rows, n_threads):
    """Return the rows as Markdown, with their conditions, and the number of slower rows."""
    slower = sum("| **" in row for row in rows)
    bold = ", whose ratios are bold" if slower else ""
    return "\n".join(
        [
            f"Median times on {n_threads} thread{'s' * (n_threads > 1)} ({timing.conditions()}). "
            "The ratio is the time of the alternative over the time of fastmf.",
            f"fastmf is slower in {slower} of {len(rows)} rows{bold}.",
            "",
            "| task | fastmf | alternative | ratio | |",
            "|---|---|---|---|---|",
            *(f"| {row} |" for row in rows),
        ]
    )


def main(argv=None):
    """Measure and print the rows; with --write, write the tables to the page."""
    command_line = timing.parser(__doc__)
    add = command_line.add_argument
    add("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} [all]")
    add("--write", action="store_true", help="complete tables into SPEED.md")
    options = command_line.parse_args(argv)
    # Read when JAX starts.
    one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ.setdefault("XLA_FLAGS", one)
    for dtype in ("float64", "float32"):
        TAP.compiled(*TAP.build(Size(20, 10, 2), dtype))  # compiles
    for name, parts in TABLES.items():
        chosen = [part for part in parts if part in options.parts or not options.parts]
        n_threads, rows = THREADS if name == "speed" else 1, []
        with timing.pinned(n_threads):  # to cores, which limits the threads of every peer
            for part in chosen:
                with suppress(ModuleNotFoundError):  # of a peer
                    for row in parts[part](5):
                        rows.append(row)
                        print(row, flush=True)
        if options.write and rows and len(chosen) == len(parts):
            timing.write(name, table(rows, n_threads), timing.PAGE)


if __name__ == "__main__":
    main()
