"""Fine mapping: credible sets of block expectation propagation beside sums of single effects.

Loci of simulated genotypes with one to three causes are analysed by `SpikeSlabRegressor`, and by a
sum of single effects after Wang, Sarkar, Carbonetto & Stephens (2020), Section 3; then the real
locus of --data beside FINEMAP. With --windows, traits are simulated on windows of 110 variants of
the real locus instead, and inclusion probabilities are compared with long chains over the models.
"""

import time
import warnings
from pathlib import Path

import experiment
import numpy as np
from scipy.special import ndtri

import fastmf as mf
from fastmf.inference.ep.model_chains import InclusionPosterior, ModelChains

# In the folder of data: dosages, a trait, and the inclusion probabilities of FINEMAP.
LOCUS = "finemapping/locus_574x1001.npz"
# Variants of a window of the real locus.
WINDOW = 110
BINS = (0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 1.01)


def genotypes(rng, n, p, n_ancestors=30, rate=0.01, smooth=0.97):
    """Counts of alleles, (n, p): two mosaics of ancestors each, whose neighbours are alike."""
    ancestors = experiment.autoregressive(rng, n_ancestors, p, smooth)
    ancestors = ancestors > -ndtri(rng.uniform(0.1, 0.5, p))
    counts = np.zeros((n, p), np.int8)
    for _ in range(2):
        switch = rng.random((n, p)) < rate
        switch[:, 0] = True
        last = np.maximum.accumulate(np.where(switch, np.arange(p), 0), axis=1)
        origin = rng.integers(n_ancestors, size=(n, p))
        counts += ancestors[np.take_along_axis(origin, last, axis=1), np.arange(p)]
    return counts[:, counts.std(0) > 0]


def locus(seed, n=500, p=120, explained=0.05):
    """Genotypes, a trait, and its causes: one to three, each with its part of the variance."""
    rng = np.random.default_rng([7, seed])
    X = genotypes(rng, n, p)
    causes = rng.choice(X.shape[1], rng.integers(1, 4), replace=False)
    Z = (X - X.mean(0)) / X.std(0)
    signal = Z[:, causes] @ rng.choice([-1.0, 1.0], len(causes))
    noise = rng.normal(size=n) * np.sqrt((1 - explained * len(causes)) / explained)
    return X, signal + noise, causes


# --- a sum of single effects --------------------------------------------------------------------


def single_effect(products, squares, noise, variance):
    """One effect: where it is, mean and second moment there, and the log Bayes factor."""
    precision = squares / noise
    shrunk = variance * precision / (1 + variance * precision)
    log_bf = shrunk * products**2 / (2 * squares * noise) - np.log1p(variance * precision) / 2
    top = log_bf.max()
    weight = np.exp(log_bf - top)
    mean = shrunk * products / squares
    second = mean**2 + shrunk * noise / squares
    return weight / weight.sum(), mean, second, top + np.log(weight.mean())


def sum_of_single_effects(X, y, n_effects=5, tol=1e-3, max_iter=200, coverage=0.95, purity=0.5):
    """Inclusion probabilities, and credible sets of enough purity."""
    Z = (X - X.mean(0)) / X.std(0)
    y = (y - y.mean()) / y.std()
    n, p = Z.shape
    gram, moment = Z.T @ Z, Z.T @ y
    squares, noise = gram.diagonal(), 1.0
    where, means, seconds = np.full((n_effects, p), 1 / p), *np.zeros((2, n_effects, p))
    variances, fit = np.full(n_effects, 0.2), np.zeros(p)
    last = -np.inf
    for _ in range(max_iter):
        for k in range(n_effects):
            fit -= gram @ (where[k] * means[k])
            products = moment - fit
            # The variance of the effect: a step of EM, and none if that is likelier.
            w, _, s, _ = single_effect(products, squares, noise, max(variances[k], 1e-9))
            for variances[k] in (w @ s, 0.0):
                effect = single_effect(products, squares, noise, variances[k])
                if effect[3] >= 0:
                    break
            where[k], means[k], seconds[k], _ = effect
            fit += gram @ (where[k] * means[k])
        total = (where * means).sum(0)
        residual = y @ y - 2 * total @ moment + total @ gram @ total
        for k in range(n_effects):
            mean = where[k] * means[k]
            residual += (where[k] * seconds[k]) @ squares - mean @ gram @ mean
        noise = residual / n
        value = -n * np.log(noise) / 2
        if abs(value - last) < tol:
            break
        last = value
    active = variances > 1e-9
    included = 1 - np.prod(1 - where[active], axis=0) if active.any() else np.zeros(p)
    R, sets = abs(gram) / n, []
    for k in np.flatnonzero(active):
        order = np.argsort(-where[k])
        features = order[: int(np.searchsorted(np.cumsum(where[k][order]), coverage)) + 1]
        is_new = set(features) not in [set(s) for s in sets]
        if is_new and R[np.ix_(features, features)].min() > purity:
            sets.append(features)
    return included, sets


def block_ep(X, y):
    """The same of `SpikeSlabRegressor`."""
    model = mf.SpikeSlabRegressor().fit(X.astype(float), y)
    return model.inclusion_probability_, [credible.features for credible in model.credible_sets()]


METHODS = {"block EP": block_ep, "single effects": sum_of_single_effects}


# --- the comparison -----------------------------------------------------------------------------


def measured(name, X, y):
    """CPU seconds of a method, inclusion probabilities, and features of sets."""
    start = time.process_time()
    included, sets = METHODS[name](X, y)
    seconds = time.process_time() - start
    return seconds, np.round(included, 6), [sorted(map(int, features)) for features in sets]


def report(name, loci, results):
    """Print one line of the table, of sets, causes, probabilities and times; return the bins."""
    held, covered, sizes, probabilities, truth, times = [], [], [], [], [], []
    for seed in loci:
        X, y, causes = locus(seed)
        seconds, included, sets = results.get(f"{name}/{seed}", measured, name, X, y)
        times.append(seconds)
        held += [np.isin(causes, features).any() for features in sets]
        covered += [any(cause in features for features in sets) for cause in causes]
        sizes += [len(features) for features in sets]
        probabilities += included
        truth += np.isin(np.arange(len(included)), causes).tolist()
    rows, error = experiment.calibration(np.array(probabilities), np.array(truth), BINS)
    shares = f"{np.mean(held):.3f}", f"{np.mean(covered):.3f}", f"{np.median(sizes):.0f}"
    time_ = f"{1e3 * np.median(times):.0f} ms"
    print(experiment.line(name, len(held), *shares, f"{error:.3f}", time_))
    return experiment.bins_of(rows)


def real_locus(folder):
    """The locus beside FINEMAP's probabilities."""
    data = np.load(experiment.in_folder(folder, LOCUS))
    X, y, theirs = data["dosage"], data["y"], data["pip_finemap"]
    for name, method in METHODS.items():
        method(X[:, :50], y)
        seconds, included, sets = measured(name, X, y)
        distance = abs(included - theirs).max()
        print(f"{name}: {seconds:.2f} s, {distance:.3f} from FINEMAP at most, sets {sets}")


def windows(path, n_windows, n_causes, seed):
    """What `reliable` says of windows of the locus, beside errors by long chains."""
    X = np.load(path)["dosage"].astype(float)
    X = (X - X.mean(0)) / X.std(0)
    odds, slab, lines = np.log(2 / 108), 0.04, []
    for k in range(seed, seed + n_windows):
        rng = np.random.default_rng([78, n_causes, k])
        first = rng.integers(X.shape[1] - WINDOW)
        Z, w = X[:, first : first + WINDOW], np.zeros(WINDOW)
        w[rng.choice(WINDOW, n_causes, replace=False)] = rng.choice([-0.2, 0.2], n_causes)
        y = Z @ w + rng.normal(size=len(Z))
        prior = mf.GaussBernoulli(np.zeros(WINDOW), 1 / slab, np.full(WINDOW, odds))
        model = mf.SparseLinearModel(Z, y - y.mean(), 1.0, prior)
        solution = mf.expectation_propagation(model, blocks="auto", schedule="auto", tol=1e-5)
        included = solution.inclusion_probability
        if included is None:
            included = 1 / (1 + np.exp(-prior.tilted_log_odds(solution.b, solution.a)))
        odds_and_precision = np.full(WINDOW, odds), np.full(WINDOW, 1 / slab)
        posterior = InclusionPosterior.of(Z, model.y, 1.0, *odds_and_precision)
        starts = [np.flatnonzero(included > 0.5), np.empty(0, int)] * 100
        chains = ModelChains(posterior, starts, np.random.default_rng(k))
        chains.run(60)
        chains.begin_anew()
        truth = chains.run(400).mean(0)
        lines.append((solution.converged, abs(included - truth).max(), bool(solution.reliable)))
    converged, error, reliable = map(np.array, zip(*lines, strict=True))
    wrong = converged & (error > 0.1)
    right = converged & ~wrong
    print(
        f"{n_windows} windows of {n_causes} causes: {(~converged).sum()} have not converged; "
        f"{wrong.sum()} are wrong, of which {(wrong & ~reliable).sum()} are flagged (errors "
        f"{np.round(error[wrong], 2).tolist()}); {(right & ~reliable).sum()} of the {right.sum()} "
        "others are flagged"
    )


def main(argv=None):
    """Analyse all loci by all methods."""
    options = experiment.Parser(
        __doc__, "seed", "data", "records", quick={"loci": 2, "data": None, "windows": 0}, loci=100,
        windows=(0, "windows of the real locus"), causes=(2, "causes of a window"),
    ).parse_args(argv)  # fmt: skip
    if options.windows:
        path = experiment.in_folder(options.data, LOCUS)
        windows(path, options.windows, options.causes, options.seed)
        return
    loci = range(options.seed, options.seed + options.loci)
    warnings.simplefilter("ignore")
    names = "method", "sets", "hold a cause", "causes found", "size", "error", "time"
    print(experiment.head(*names))
    bins, results = {}, experiment.Results(options.records)
    for name in METHODS:
        METHODS[name](*locus(10**6)[:2])  # what is compiled does not count
        bins[name] = report(name, loci, results)
    for name, line in bins.items():
        print(f"{name}: {line}")
    if options.data and (Path(options.data) / LOCUS).exists():
        real_locus(options.data)


if __name__ == "__main__":
    experiment.run(main)
