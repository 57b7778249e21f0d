"""A program that uses every public name, as users do; `mypy --strict` accepts it."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fastmf as mf
from fastmf import convert, datasets, distributed, evaluation, plotting, priors

Array = NDArray[Any]


@priors.register
class Coin(NamedTuple):
    """A prior of one's own."""

    field: Array

    def log_partition(self, b: Any, a: Any) -> Any:
        """Of the tilted unit."""
        return np.logaddexp(0, self.field + b - a / 2)

    def moments(self, b: Any, a: Any) -> tuple[Any, Any]:
        """Of the tilted unit."""
        mean = 1 / (1 + np.exp(a / 2 - b - self.field))
        return mean, mean * (1 - mean)


def units(n: int, rng: np.random.Generator) -> list[Array]:
    """Priors and their methods."""
    zeros, ones = np.zeros(n), np.ones(n)
    binary, spins = mf.Bernoulli(zeros), mf.Ising(zeros)
    every = (
        binary,
        spins,
        mf.Binomial(zeros, ones),
        mf.Gaussian(zeros, ones),
        mf.TruncatedGaussian(zeros, ones, zeros, ones),
        mf.GaussBernoulli(zeros, ones, zeros),
        mf.TruncatedGaussBernoulli(zeros, ones, zeros, zeros, ones),
        mf.Concatenated(binary, spins),
        mf.Categorical([zeros]),
        mf.Ordinal(np.zeros((n, 3))),
    )
    samples: list[Array] = []
    for prior in every:
        mean, var = prior.moments(zeros, 0.0)
        samples.append(prior.sample(zeros, zeros, rng))
        samples.append(prior.draw(zeros, zeros, rng.random(zeros.shape)))
        prior.log_prob(mean + var)
    fitted: mf.Bernoulli = priors.Bernoulli.from_data(np.zeros((3, n)))
    return [*samples, fitted.field]


def models(folder: Path) -> tuple[mf.RBM, mf.DBM, mf.BoltzmannMachine]:
    """Models, energies and files."""
    prior = mf.Bernoulli(np.zeros(3))
    rbm = mf.RBM(np.ones((3, 3)), visible=prior, hidden=Coin(np.zeros(3)))
    dbm = mf.DBM((np.ones((3, 3)), np.ones((3, 3))), (prior, prior, prior))
    machine = mf.BoltzmannMachine(np.zeros((3, 3)), mf.Ising(np.zeros(3)))
    rbm.energy(np.zeros(3), np.zeros(3)), dbm.energy(np.zeros(3), np.zeros(3), np.zeros(3))
    machine.save(folder / "machine.npz")
    again = mf.load(folder / "machine.npz", max_bytes=2**20)
    log_partition: float = mf.exact(again).log_partition
    assert log_partition > 0 and rbm.n_hidden == dbm.sizes[1] == machine.n_units
    return rbm, dbm, machine


def files_and_graphs(machine: mf.BoltzmannMachine, path: Path) -> float:
    """UAI files, objects of other packages and sums along an order of elimination."""
    datasets.save_uai(machine, path, clamp=[np.nan, 1.0, np.nan], log_factor=0.5)
    uai: datasets.UAIModel = datasets.load_uai(path, evidence=f"{path}.evid", max_bytes=2**20)
    sums = mf.exact(uai.model, clamp=uai.clamp, averages=False, mode=True, max_bytes=2**20)
    network = convert.to_pgmpy(machine, names=["a", "b", "c"])
    converted = convert.from_pgmpy(network)
    return converted.log_factor + sums.log_partition


def inference(rbm: mf.RBM, machine: mf.BoltzmannMachine) -> float:
    """Solvers and results."""
    result: mf.FixedPoint = mf.tap(rbm, np.zeros((5, 3)), order=2, damping=0.5)
    result = mf.tap(machine, clamp=np.array([1, np.nan, np.nan]), history=True)
    result = mf.mixture(mf.tap, machine, n_starts=5, rng=0)
    result = mf.relaxed_bp(machine, result)
    visible, hidden = mf.adaptive_tap(rbm.at_temperature(2.0), init="up").mean
    chi: Array = evaluation.susceptibility(machine, result)
    print(chi.sum(), mf.most_probable(machine, bound=True).bound)
    beliefs = mf.most_probable(rbm, sum_hidden=True, n_starts=2, rng=0)
    result = mf.mixture(mf.belief_propagation, rbm, 5)
    beliefs = mf.belief_propagation(rbm, algorithm="auto")
    print(result.reliable, beliefs.unique, beliefs.method)
    graph = mf.tree_reweighted(machine, clamp=np.array([1, np.nan, np.nan]))
    print(graph.log_partition)
    prior = mf.GaussBernoulli(np.zeros(2), np.ones(2), np.zeros(2))
    linear = mf.SparseLinearModel(np.eye(2), np.ones(2), 0.1, prior)
    bounds = mf.log_partition_bounds(rbm, field=np.zeros(3), n_starts=2, rng=1)
    print(bounds.lower, bounds.upper, bounds.estimate)
    posterior = mf.expectation_propagation(linear, schedule="convergent", blocks=[0, 1])
    crbm = mf.CRBM(np.ones((3, 2)), np.ones((3, 4)), np.ones((2, 4)), np.zeros(3), np.zeros(2))
    given: mf.RBM = crbm.given(np.ones(4))
    print(visible.shape, hidden.shape, beliefs.assignment, posterior.sites, given.weights)
    return float(result.log_partition)


def estimators(X: Array, Y: Array, folder: Path) -> dict[str, Array]:
    """Estimators: every method."""
    rbm = mf.GeneralizedRBM(8, visible="bernoulli", learning_rate=(0.1, 0.01), random_state=0)
    mf.GeneralizedRBM(init=rbm.fit(X).model_).fit(X)
    mf.GeneralizedRBM(8, gradient="adaptive_tap", damping=0.5).fit(X)
    rbm.fit(X, validation_data=X).partial_fit(X)
    rbm.save(folder / "rbm.npz")
    score: float = mf.GeneralizedRBM.load(folder / "rbm.npz", max_bytes=None).score(X)
    score += rbm.log_partition("exact") + len(rbm.gradient_)
    found: evaluation.Solutions = rbm.solutions()
    layered = (
        rbm.sample(3, start="data"),
        rbm.denoise(X, flip_probability=0.1),
        rbm.impute(X, n_starts=3),
    )
    dbm = mf.DeepBoltzmannMachine((8, 4), hidden=("bernoulli", "ising")).fit(X)
    crbm = mf.ConditionalRBM(8, callbacks=[lambda state: None], standardize=False).fit(X, y=Y)
    print(crbm.values_, crbm.classes_, crbm.score_samples(X, y=Y))
    table = mf.FullyVisibleBoltzmannMachine(solver="firth", max_iter=50).fit(X)
    cases = mf.FullyVisibleBoltzmannMachine(graph=[(0, 1)], missing="available").fit(X)
    print(cases.n_available_.sum())
    print(mf.FullyVisibleBoltzmannMachine(l1="ebic", ebic_gamma=0.5).fit(X).path_)
    couplings, field = table.confint(0.9)
    print(table.categories_, table.impute(X))
    items = mf.OrdinalMachine(thresholds="blume_capel", l2=0.1).fit(X)
    print(items.thresholds_, items.standard_errors(), items.impute(X))
    print(items.edge_inclusion().probability, mf.compare_groups(items, items).p_value)
    print(items.sample(3), items.model_.energy(X), items.confint())
    print(table.edge_inclusion(0.5, None).probability, mf.compare_groups(table, table, scale=2.0))
    print(table.strength(), table.expected_influence(as_frame=False), table.predictability())
    print(table.in_coding("01")[0].shape, table.bootstrap(10, 0, verbose=True).couplings)
    print(mf.FullyVisibleBoltzmannMachine(l1="and").fit(X).path_)
    surveyed = mf.OrdinalMachine(l1="cv", missing="em", ebic_gamma=0.5)
    surveyed.fit(X, None, np.ones(len(X)), clusters=np.arange(len(X)))
    print(items.predictability().r2, items.stability(10, (0.5,), verbose=True).coefficient())
    print(mf.compare_groups(items, items, n_permutations=10, rng=1, verbose=True).permutation)
    filled = mf.PottsMachine(missing="em").fit(X)
    print(filled.edge_inclusion(None, 1.0, "naive").probability)
    regressor = mf.SpikeSlabRegressor(noise_variance=0.1).fit(X, Y[:, 0])
    regressor = mf.SpikeSlabRegressor(parameter_prior=None, average_parameters=False, blocks=None)
    regressor = regressor.fit_moments(X.T @ X, X.T @ Y[:, 0], 5.0, n=len(X))
    print(regressor.fit_summary(np.zeros(2), [np.eye(1), np.eye(1)], 40).mismatch_)
    regressor = mf.SpikeSlabRegressor(noise_variance=0.1).fit(X, Y[:, 0])
    low, high = regressor.coefficient_interval(0.9)
    print(low, high, regressor.credible_sets()[0].features, regressor.sample_coefficients(9, 0))
    print(mf.SpikeSlabRegressor(unpenalised=["age"], inclusion_probability=[0.1, 0.2]))
    print(regressor.group_inclusion_probability([0, 1]), regressor.reliable_, regressor.message_)
    regressor.save(folder / "regressor.npz")
    regressor = mf.SpikeSlabRegressor.load(folder / "regressor.npz")
    classifier = mf.SpikeSlabClassifier(verbose=True).fit(X, Y[:, 0])
    print(score, found.counts, layered, couplings, field, table.test_couplings().p_value)
    print(table.likelihood_ratio_test(), table.standard_errors(), table.covariance(), table.pmf())
    return {
        "hidden": rbm.transform(X),
        "deep": dbm.fit_transform(X),
        "labels": crbm.predict(X, decode="joint_map"),
        "likelihood": crbm.score_samples(X, Y),
        "probability": classifier.predict_proba(X),
        "decision": classifier.decision_function(X),
        "mean": regressor.predict(X),
        "conditional": table.conditional_proba(X),
    }


def sequences(folder: Path) -> dict[str, Array]:
    """Alignments, Potts machines, contacts."""
    alignment: datasets.Alignment = datasets.load_alignment(
        folder / "family.fasta", gaps="missing", outside="gap", max_gaps=(0.5, 0.3)
    )
    weights = datasets.sequence_weights(alignment.X, 0.8)
    machine = mf.PottsMachine(l2=0.01, verbose=True).fit(alignment.X, sample_weight=weights)
    couplings, field = machine.in_gauge("zero-sum")
    print(machine.categories_)
    datasets.write_plmc(folder / "plmc", couplings, field, alignment.alphabet)
    datasets.write_fasta(folder / "x.fasta", alignment.X, alignment.alphabet, alignment.names)
    plmc = datasets.read_plmc(folder / "plmc")
    rbm = mf.RBM(np.ones((6, 2)), mf.Categorical(np.zeros((2, 3))), mf.Bernoulli(np.zeros(2)))
    effective = evaluation.effective_couplings(rbm, [[0, 1]])
    scores = evaluation.contact_scores(effective)
    first, second = evaluation.ranked_pairs(scores, 1)
    precision = evaluation.contact_precision(scores, scores, [1, 2])
    for figure in (
        plotting.contact_map(scores),
        plotting.mutation_matrix(machine.mutants(alignment.X[0]), plmc.alphabet),
        plotting.mutation_matrix(machine, sequence=alignment.X[0]),
    ):
        figure.savefig(folder / "figure.png")
    print(plmc.frequencies, first, second, precision)
    return {
        "scores": machine.contact_scores(),
        "imputed": machine.impute(alignment.X, method="exact"),
    }


def evaluations(rbm: mf.RBM, X: Array) -> list[float]:
    """Log-partitions, likelihoods, landscapes, scores."""
    report: evaluation.LogPartitionReport = mf.evaluation.log_partition_report(
        rbm, X, include_exact=True
    )
    annealed: evaluation.AnnealedEstimate = mf.evaluation.annealed_importance_sampling(
        rbm, data=X, rng=0, verbose=True
    )
    log_z: float = annealed.log_partition
    tracker = evaluation.Tracker(
        epochs=[2], pseudo=lambda model: mf.evaluation.pseudo_log_likelihood(model, X)
    )
    average = evaluation.IterateAverage(first_epoch=3)
    checkpoint = evaluation.Checkpoint("run.npz")
    mf.GeneralizedRBM(8, callbacks=[tracker, average, checkpoint]).fit(X)
    noisy = evaluation.flip(X, 0.1, rng=0)
    guess = evaluation.pointwise_estimate(noisy, X.mean(0), 0.1)
    nearest = evaluation.nearest_neighbour(noisy, X)
    scores = [evaluation.matthews_correlation(X, e).mean() for e in (guess, nearest)]
    likelihood: Array = evaluation.log_likelihood(rbm, X, log_z)
    draws: dict[str, Array] = evaluation.gibbs_chains(rbm, 4, 100, thin=2, init=X[:4], rng=0)
    return [*scores, len(draws), report["TAP2, mean"].log_partition, *likelihood]


def pictures(folder: Path) -> None:
    """Data sets and plots."""
    digits: datasets.Images = datasets.load_digits(binary=True, dtype=np.float64)
    print(digits.shape)
    weights = datasets.read_array(folder / "weights.npy", max_bytes=2**20)
    found = evaluation.solutions(mf.BoltzmannMachine(weights, mf.Ising(weights[0])), digits.X)
    machine = mf.RBM(weights, mf.Ising(weights[0]), mf.Ising(weights[0]))
    history = {"epoch": [1, 2], "log_likelihood": [-1.0, -0.5]}
    for figure in (
        plotting.learning_curve(history),
        plotting.receptive_fields(weights, digits.shape, order=[1, 0]),
        plotting.image_rows({"digits": digits.X[:8]}, digits.shape),
        plotting.coupling_network(mf.FullyVisibleBoltzmannMachine().edge_inclusion(), minimum=0.9),
        plotting.coupling_network(mf.OrdinalMachine(), groups="ab", layout="circle", legend=False),
        plotting.edge_forest(mf.OrdinalMachine(), level=0.9, n_top=5),
        plotting.coefficient_forest(mf.SpikeSlabRegressor().fit(np.eye(4), np.arange(4.0))),
        plotting.log_partitions(mf.evaluation.log_partition_report(machine)),
    ):
        figure.savefig(folder / "figure.png")
    for axes in (
        plotting.curves_by_epoch([1, 2], {"TAP": [0.1, 0.2]}),
        plotting.free_energy_by_epoch([1], [found]),
    ):
        axes.set_title("landscape")


def of_dask_arrays(rows: Any, rbm: mf.RBM) -> Any:
    """Rows on a cluster."""
    print(distributed.LayeredSettings(n_epochs=2, batch_size=100))
    machine = distributed.fit(mf.GeneralizedRBM(), rows, chunk_rows=100)
    print(distributed.transform(machine, rows))
    result: mf.FixedPoint = distributed.tap(rbm, rows, tol=1e-6)
    scores = distributed.score_samples(mf.GeneralizedRBM(), rows)
    return result, scores
