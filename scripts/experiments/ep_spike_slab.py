"""Spike-and-slab regression by expectation propagation: the experiments of ep_spike_slab.md.

paper is Figure 1 of Hernández-Lobato & Hernández-Lobato, "Convergent expectation propagation in
linear models with spike-and-slab priors" (2011), counts how many of its sets do not converge by
which rule, genes three sets of gene expressions beside scikit-learn.
"""

import sys
import time
import warnings
from pathlib import Path

import experiment
import numpy as np

import fastmf as mf

# Weight of the *new* factor, and the paper's figures: sets that did not converge, errors on them
# (convergent, regular), and errors where regular expectation propagation converged.
PAPER = {
    0.1: (6, 0.24, 0.29, 0.041, 0.040),
    0.3: (10, 0.16, 0.20, 0.041, 0.045),
    0.5: (13, 0.14, 0.27, 0.040, 0.042),
    0.7: (14, 0.18, 0.22, 0.032, 0.029),
    0.9: (17, 0.15, 0.17, 0.033, 0.024),
}
N_FEATURES, N_ROWS, N_TEST_ROWS, SHARE, NOISE = 25, 10, 1000, 0.2, 0.005
# What counts as converged, of the rules that `counts` compares: one for counts and errors.
TOLERANCE, SMALLEST_PRECISION = 1e-3, 1e-10


def main(argv=None):
    options = parser().parse_args(argv)
    {"paper": paper, "counts": counts, "genes": genes}[options.which](options)


def parser():
    made = experiment.Parser(
        __doc__, "seed", "data", quick={"sets": 2, "max_iter": 100, "seeds": 1, "folds": 2},
        sets=(100, "for each damping"), max_iter=(1000, "of each schedule"),
        seeds=(3, "of the paper's experiment"),
    )  # fmt: skip
    made.set_defaults(folds=5)  # of the cross-validation
    made.add_argument("which", nargs="?", choices=("paper", "counts", "genes"), default="paper")
    return made


# --- the paper ------------------------------------------------------------------------------------


def data_set(rng):
    """Training and test rows as the paper draws them: uniform on the sphere of radius one."""
    w = np.where(rng.random(N_FEATURES) < SHARE, rng.normal(size=N_FEATURES), 0.0)
    X = rng.normal(size=(N_ROWS + N_TEST_ROWS, N_FEATURES))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = X @ w + NOISE * rng.normal(size=len(X))
    return (X[:N_ROWS], y[:N_ROWS]), (X[N_ROWS:], y[N_ROWS:])


def error(X, y, mean):
    """Mean squared error on test rows."""
    return np.mean((y - X @ mean) ** 2)


def paper(options):
    """The two tables of the paper's Figure 1, for each seed."""
    rows = []
    for seed in range(options.seed, options.seed + options.seeds):
        for new_weight in PAPER:
            results = np.array(list(both(options, seed, new_weight)), float)
            for converged in (0, 1):
                chosen = results[results[:, 0] == converged, 2:]
                cells = (value for c in (1, 0) for value in mean_and_error(chosen[:, c]))
                rows.append((seed, new_weight, converged, len(chosen), *cells))
            print(f"seed {seed}, damping {new_weight}: convergent EP converged in "
                  f"{results[:, 1].sum():.0f} of {len(results)} sets", file=sys.stderr)  # fmt: skip
    print(f"{options.sets} training sets for each damping (weight of the new factor) and each of "
          f"{options.seeds} seeds; mean squared error of {N_TEST_ROWS} test rows (standard error "
          "of one seed; standard deviation over seeds); the paper's in brackets\n")  # fmt: skip
    for title, wanted in (("where regular EP did not converge", 0), ("where it did", 1)):
        print(title)
        print(f"{'damping':>8} {'sets':>14} {'convergent EP':>32} {'regular EP':>32}")
        for new_weight, (n_paper, *errors) in PAPER.items():
            by_seed = [row[3:] for row in rows if row[1:3] == (new_weight, wanted)]
            n_paper = 100 - n_paper if wanted else n_paper
            sets = " ".join(str(row[0]) for row in by_seed)
            print(f"{new_weight:>8} {sets:>9} [{n_paper}]"
                  + "".join(f"{cell(by_seed, c):>24} [{errors[2 * wanted + k]:.3f}]"
                            for k, c in enumerate((1, 3))))  # fmt: skip
        print()


def problems(options, seed):
    """The models of all sets and their test rows: the same for all dampings, as in the paper."""
    rng, odds = np.random.default_rng(seed), np.log(SHARE / (1 - SHARE))
    for _ in range(options.sets):
        rows, test = data_set(rng)
        prior = mf.GaussBernoulli(np.zeros(N_FEATURES), 1.0, odds)
        yield mf.SparseLinearModel(*rows, NOISE**2, prior), test


def both(options, seed, weight):
    """Whether both methods converge on each set, and their test errors."""
    for model, test in problems(options, seed):
        converged, mean = until_converged(model, weight, options.max_iter)
        free = mf.expectation_propagation(model, schedule="convergent", n_threads=1)
        yield converged, free.converged, error(*test, mean), error(*test, free.mean)


def regular(model, weight, max_iter, schedule="sequential", bound=SMALLEST_PRECISION):
    """Regular expectation propagation with its history, for the weight of the new factor."""
    return mf.expectation_propagation(
        model, schedule=schedule, damping=1 - weight, max_iter=max_iter,
        site_precision_min=bound, history=True, n_threads=1,
    )  # fmt: skip


def until_converged(model, weight, max_iter):
    """Whether regular expectation propagation converges, and its means where it ends.

    It runs through the sites one by one, with positive precisions (the paper's Eq. 13), until no
    moment changes by more than the tolerance, which the paper does not state. The solver's own
    rule is another: one more sweep without damping must change nothing.
    """
    result = regular(model, weight, max_iter)
    # A change is the residual times the weight of the new factor.
    small = np.flatnonzero(weight * result.history <= TOLERANCE)
    if len(small):
        result = regular(model, weight, small[0] + 1)
    return len(small) > 0, result.mean


def mean_and_error(values):
    """Mean and standard error; NaN of too few values."""
    n = len(values)
    spread = values.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return (values.mean() if n else np.nan), spread


def cell(by_seed, column):
    """Mean over seeds, standard error of one and standard deviation over them."""
    means, errors = (np.array([row[column + k] for row in by_seed]) for k in (0, 1))
    over = f"{means.std(ddof=1):.3f}" if len(means) > 1 else "-"
    return f"{means.mean():.3f} ({errors.mean():.3f}; {over})"


# Of regular expectation propagation: the paper's schedule is the sequential one, and a bound is the
# only one of its constraints that concerns it.
SCHEDULES, BOUNDS = ("parallel", "sequential"), (None, SMALLEST_PRECISION)
TOLERANCES = 1e-8, 1e-4, TOLERANCE, 1e-2


def counts(options):
    """Sets, of each damping, in which regular expectation propagation does not converge."""
    print(f"{options.sets} sets for each damping; the paper's (of 100): "
          f"{[figures[0] for figures in PAPER.values()]}; not converged by the residual, or by its "
          "change, which is the residual times the weight of the new factor")  # fmt: skip
    for schedule in SCHEDULES:
        for bound in BOUNDS:
            smallest = np.array([
                least_residuals(options, weight, schedule, bound) for weight in PAPER
            ])  # fmt: skip
            for tol in TOLERANCES:
                limits = np.array([[tol], [tol]]) / np.stack([np.ones(len(PAPER)), list(PAPER)])
                missed = [(smallest > limit[:, None]).sum(1).tolist() for limit in limits]
                print(f"{schedule:10}  bound {bound}  tolerance {tol:g}  residual {missed[0]}  "
                      f"change {missed[1]}", flush=True)  # fmt: skip


def least_residuals(options, weight, schedule, bound):
    """The smallest residual of regular expectation propagation in each set of a damping."""
    results = (
        regular(model, weight, options.max_iter, schedule, bound)
        for model, _ in problems(options, options.seed)
    )
    return np.array([np.nanmin(np.append(result.history, np.inf)) for result in results])


# --- gene expressions ---------------------------------------------------------------------------


def load(name, folder):
    """X, y, names of genes, and whether y is a class."""
    file = {"riboflavin": "riboflavin", "leukemia": "leukemia_golub", "colon": "colon_alon"}[name]
    arrays = np.load(folder / f"{file}.npz")
    X, y = arrays["X"].astype(np.float32), arrays["y"].astype(float)
    names = arrays["genes"] if "genes" in arrays else np.arange(X.shape[1]).astype(str)
    if name == "leukemia":
        X = np.log10(np.clip(X, 100, 16000))
    elif name == "colon":
        X = np.log10(X)
    if name != "riboflavin":
        y = 2 * y - 1
    return X, y, names, name != "riboflavin"


def varied(name, X):
    """Genes worth a coefficient, without a look at y.

    Where low intensities are set to a floor many genes are constant in the training rows but for
    one or two, and scaled by next to nothing: a test row may lie a thousand deviations away.
    Genes whose intensity varies fivefold and by 500 remain (Dudoit, Fridlyand & Speed 2002).
    """
    if name != "leukemia":
        return np.arange(X.shape[1])
    low, high = X.min(0), X.max(0)
    return np.flatnonzero((high - low > np.log10(5)) & (10**high - 10**low > 500))


# ARDRegression is given this many features, as its cost is cubic in their number.
ARD_FEATURES = 500


def genes(options):
    """Cross-validated errors on real data."""
    from sklearn.feature_selection import SelectKBest, f_regression
    from sklearn.linear_model import ARDRegression, LassoCV
    from sklearn.model_selection import KFold, StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def screened(estimator, n_features="all"):
        # The features most correlated with y in the training rows.
        return make_pipeline(SelectKBest(f_regression, k=n_features), StandardScaler(), estimator)

    warnings.simplefilter("ignore")
    for name in ("riboflavin", "leukemia", "colon"):
        X, y, names, classes = load(name, Path(options.data or "."))
        regressors = {
            "spike and slab": mf.SpikeSlabRegressor,
            "LassoCV": lambda: screened(LassoCV(cv=5, max_iter=5000)),
            f"ARD, {ARD_FEATURES} features": lambda: screened(ARDRegression(), ARD_FEATURES),
        }
        if classes:
            regressors["spike and slab, probit"] = mf.SpikeSlabClassifier
        split = (StratifiedKFold if classes else KFold)(
            options.folds, shuffle=True, random_state=options.seed
        )
        print(f"\n{name}: {X.shape[0]} rows, {X.shape[1]} genes, {options.folds} folds "
              f"(variance of y {y.var():.3f})")  # fmt: skip
        print(f"{'':24} {'MSE':>8} {'errors' if classes else '':>8} {'genes':>8} {'CPU s':>8}"
              "   genes in each fold")  # fmt: skip
        for title, make in regressors.items():
            predicted, seconds, counts = np.empty(len(y)), [], []
            for train, test in split.split(X, y):
                genes_of_fold = varied(name, X[train])
                start = time.process_time()
                fitted = make().fit(X[np.ix_(train, genes_of_fold)], y[train])
                seconds.append(time.process_time() - start)
                score = getattr(fitted, "decision_function", fitted.predict)
                predicted[test] = score(X[np.ix_(test, genes_of_fold)])
                if hasattr(fitted, "inclusion_probability_"):
                    counts.append(int((fitted.inclusion_probability_ > 0.5).sum()))
                else:
                    counts.append(int((abs(fitted[-1].coef_) > 1e-3).sum()))
            wrong = f"{np.sum(np.sign(predicted) != y)}" if classes else ""
            # The score of a classifier is on no scale of y.
            squared = "" if "probit" in title else f"{np.mean((predicted - y) ** 2):.3f}"
            print(f"{title:24} {squared:>8} {wrong:>8} {np.mean(counts):8.1f} "
                  f"{np.median(seconds):8.2f}   {counts}", flush=True)  # fmt: skip
        genes_of_all = varied(name, X)
        fitted = mf.SpikeSlabRegressor().fit(X[:, genes_of_all], y)
        best = np.argsort(-fitted.inclusion_probability_)[:8]
        names = names[genes_of_all]
        listed = ", ".join(f"{names[i]} {fitted.inclusion_probability_[i]:.2f}" for i in best)
        print(f"all rows: log-evidence {fitted.log_evidence_:.1f}; {listed}")


if __name__ == "__main__":
    experiment.run(main)
