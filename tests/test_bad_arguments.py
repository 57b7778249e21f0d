"""Every public function and estimator refuses odd arguments by their names."""

import inspect
import re
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone

import fastmf as mf
from fastmf import datasets, evaluation, plotting

RNG = np.random.default_rng(0)
X = (RNG.random((12, 4)) < 0.5).astype(float)
X[0], X[1] = 0, 1
LABELS = X.astype(int)
Y = RNG.normal(size=12)
RBM = mf.RBM(RNG.normal(size=(4, 3)), mf.Bernoulli(np.zeros(4)), mf.Bernoulli(np.zeros(3)))
CRBM = mf.CRBM(np.ones((3, 2)), np.ones((3, 4)), np.ones((2, 4)), np.zeros(3), np.zeros(2))
SITES = mf.RBM(RNG.normal(size=(8, 2)), mf.Categorical(np.zeros((4, 2))), mf.Ising(np.zeros(2)))
LINEAR = mf.SparseLinearModel(X, Y, 0.1, mf.GaussBernoulli(np.zeros(4), np.ones(4), np.zeros(4)))
SCORES = np.ones((9, 9))
SMALL = {"n_epochs": 1, "random_state": 0}
ODD = {
    "str": "x", "complex": 2 + 3j, "complex64": np.complex64(1j), "huge": 10**400,
    "nan": np.float64("nan"), "object": object(), "NA": pd.NA, "lists": [[1, 2], [3]],
    "masked": np.ma.masked_array(X, X > 0), "strings": np.array([["x"] * 4] * 3),
    "frame": pd.DataFrame({"a": ["u", "v"]}), "imaginary": np.ones((12, 4)) * 1j,
    "surrogate": "\ud800", "date": np.array(["2020-01-01"] * 4, "M8[D]"), "type": int,
}  # fmt: skip
# Functions, arguments that are right, and the names of those that are replaced.
CALLS = {
    "tap": (mf.tap, {"model": RBM}, "model init field precision clamp damping tol max_iter order"),
    "relaxed_bp": (mf.relaxed_bp, {"model": RBM}, "model init field damping tol max_iter"),
    "adaptive_tap": (mf.adaptive_tap, {"model": RBM}, "model init field damping tol max_iter"),
    "belief_propagation": (mf.belief_propagation, {"model": RBM}, "model field tol max_iter"),
    "expectation_propagation": (mf.expectation_propagation, {"model": LINEAR}, "model tol"),
    "exact": (mf.exact, {"model": RBM}, "model averages"),
    "RBM": (mf.RBM, dict(weights=np.ones((2, 1)), visible=mf.Ising([0.0, 0.0]),
                         hidden=mf.Ising([0.0])), "visible hidden"),
    **{read.__name__: (read, {}, "path") for read in (
        mf.load, datasets.load_alignment, datasets.read_array, datasets.read_plmc)},
    "save": (RBM.save, {}, "path"),
    "given": (CRBM.given, {"x": X[0]}, "x"),
    "energy": (RBM.energy, {"visible": X, "hidden": np.zeros((12, 3))}, "visible hidden"),
    "Bernoulli": (mf.Bernoulli, {"field": [0.0]}, "field"),
    "Categorical": (mf.Categorical, {"field": np.zeros((1, 2))}, "field"),
    "moments": (mf.Ising([0.0, 1.0]).moments, {"b": 0.0, "a": 0.0}, "b a"),
    "log_partition": (mf.Gaussian([0.0], [1.0]).log_partition, {"b": 0.0, "a": 0.0}, "b a"),
    "log_prob": (mf.Bernoulli([0.0]).log_prob, {"x": 0.0}, "x"),
    "draws": (mf.Bernoulli([0.0]).sample, {"b": 0.0, "a": 0.0, "rng": 0}, "b a rng"),
    "Bernoulli.from_data": (mf.Bernoulli.from_data, {"X": X}, "X"),
    "Ising.from_data": (mf.Ising.from_data, {"X": 2 * X - 1}, "X"),
    "Gaussian.from_data": (mf.Gaussian.from_data, {"X": X}, "X"),
    "TruncatedGaussian.from_data": (mf.TruncatedGaussian.from_data, {"X": X}, "X lower upper"),
    "Categorical.from_data": (mf.Categorical.from_data, {"X": LABELS}, "sizes pseudocount"),
    "pseudo_log_likelihood": (evaluation.pseudo_log_likelihood, {"model": RBM, "X": X}, "model X"),
    "log_likelihood": (evaluation.log_likelihood, {"model": RBM, "X": X, "log_partition": 1.0},
                       "model X log_partition"),
    "annealing": (evaluation.annealed_importance_sampling, dict(model=RBM, n_chains=4, n_steps=3),
                  "model n_chains n_steps rng"),
    "solutions": (evaluation.solutions, {"model": RBM, "starts": X}, "model starts"),
    "flip": (evaluation.flip, {"X": X, "p": 0.1, "rng": 0}, "X p rng"),
    "matthews": (evaluation.matthews_correlation, {"truth": X, "estimate": X},
                 "truth estimate axis"),
    "nearest_neighbour": (evaluation.nearest_neighbour, {"Y": X, "X": X}, "Y X"),
    "pointwise": (evaluation.pointwise_estimate, dict(Y=X, means=X.mean(0), flip_probability=0.1),
                  "Y means flip_probability"),
    "contact_precision": (evaluation.contact_precision, dict(scores=SCORES, distances=SCORES,
                          n_top=2), "scores n_top separation cutoff"),
    "contact_scores": (evaluation.contact_scores, {"couplings": np.zeros((4, 2, 4, 2))},
                       "couplings gauge ignore apc"),
    "effective_couplings": (evaluation.effective_couplings, {"model": SITES, "X": LABELS},
                            "model n_background sample_weight n_threads rng"),
    "write_fasta": (datasets.write_fasta, dict(path="/x/y", X=LABELS), "path X names"),
    "write_plmc": (datasets.write_plmc, dict(path="x", couplings=np.zeros((2, 5, 2, 5)),
                   field=np.zeros((2, 5)), alphabet="rna"), "field couplings n_neighbours"),
    "sequence_weights": (datasets.sequence_weights, {"X": LABELS}, "X identity n_threads"),
    "receptive_fields": (plotting.receptive_fields, dict(weights=np.ones((4, 3)), shape=(2, 2)),
                         "weights shape n_fields columns order ax"),
    "image_rows": (plotting.image_rows, dict(rows={"a": np.ones((3, 4))}, shape=(2, 2)),
                   "rows shape ax"),
    "coefficient_forest": (plotting.coefficient_forest, {"model": None}, "model"),
    "coupling_network": (plotting.coupling_network, {"edges": None}, "edges"),
    "contact_map": (plotting.contact_map, {"scores": SCORES}, "n_top separation cutoff ax"),
}  # fmt: skip
ESTIMATORS = {
    "GeneralizedRBM": (mf.GeneralizedRBM(2, **SMALL), {"X": X}),
    "FullyVisibleBoltzmannMachine": (mf.FullyVisibleBoltzmannMachine(l2=0.1), {"X": X}),
    "PottsMachine": (mf.PottsMachine(l2=0.1, l2_field=0.1), {"X": LABELS}),
    "ConditionalRBM": (mf.ConditionalRBM(2, **SMALL), {"X": X, "y": LABELS[:, :2]}),
    "SpikeSlabRegressor": (mf.SpikeSlabRegressor(), {"X": X, "y": Y}),
    "SpikeSlabClassifier": (mf.SpikeSlabClassifier(), {"X": X, "y": Y > 0}),
}
# Options that take text or objects of any kind, or are looked at where others ask for them.
FREE = {"init", "visible", "hidden", "learning_rate", "groups", "verbose"}


def refused(call, name, value):
    """The message of the error by which a call refuses an argument of this name."""
    with pytest.raises((TypeError, ValueError)) as error:
        call(**{name: value})
    message = str(error.value)
    assert error.type in (TypeError, ValueError), f"{error.type.__name__}: {message}"
    assert re.search(rf"\b{name}\b", message), message
    return message


def accepted(name, kind):
    """Values that are seeds, or NaN where it means a missing value or gives NaN."""
    seeds, passed_on = ("huge", "lists"), ("clamp", "starts", "b", "a", "x")
    if (name, kind) in (("clamp", "masked"), ("path", "str")):
        return True
    return (name == "rng" and kind in seeds) or (kind == "nan" and name in passed_on)


@pytest.mark.parametrize("function", CALLS)
def test_functions_name_the_argument_that_is_wrong(function):
    call, right, names = CALLS[function]
    for name, kind in product(names.split(), ODD):
        if not accepted(name, kind):
            message = refused(lambda **k: call(**(right | k)), name, ODD[kind])
            assert len(message) < 600


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_name_the_argument_that_is_wrong(name, kind):
    estimator, data = ESTIMATORS[name]
    for option in estimator.get_params():
        if option not in FREE:
            refused(lambda **k: clone(estimator).set_params(**k).fit(**data), option, ODD[kind])
    for argument in data.keys() & {"X"}:
        takes_frames = name[:5] in ("Potts", "Fully") or (name, kind) == ("GeneralizedRBM", "frame")
        if kind not in ("strings", "masked", "frame") or not takes_frames:
            refused(lambda **k: clone(estimator).fit(**(data | k)), argument, ODD[kind])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_imaginary_part_of_data_is_not_lost(name):
    estimator, data = ESTIMATORS[name]
    for form, (argument, values) in product((np.array, csr_array, pd.DataFrame), data.items()):
        if form is np.array or values.ndim == 2:
            wrong = form(values * (1 + 1j))
            message = refused(lambda **k: clone(estimator).fit(**(data | k)), argument, wrong)
            assert "imaginary" in message


def test_lists_and_frames_of_numbers_are_data():
    for prior in (mf.Bernoulli, mf.Gaussian, mf.Ising, mf.Categorical):
        made = X if prior is not mf.Ising else 2 * X - 1
        made = made.astype(int) if prior is mf.Categorical else made
        for given in (made.tolist(), pd.DataFrame(made)):
            for found, expected in zip(prior.from_data(given), prior.from_data(made), strict=True):
                np.testing.assert_array_equal(found, expected)


def test_masks_are_not_lost():
    """Masked entries are missing values where these are allowed, and refused elsewhere."""
    masked = np.ma.masked_array(X[0], np.arange(4) < 2)
    found = mf.tap(RBM, clamp=masked).mean[0]
    given = np.where(np.arange(4) < 2, np.nan, X[0])
    np.testing.assert_array_equal(found, mf.tap(RBM, clamp=given).mean[0])
    for call in (RBM.visible.log_prob, lambda x: mf.tap(RBM, x), lambda x: mf.Bernoulli(x)):
        with pytest.raises(ValueError, match=r"masked|NaN"):
            call(masked)
    whole = np.ma.masked_array(X, False)
    np.testing.assert_array_equal(mf.evaluation.pseudo_log_likelihood(RBM, whole),
                                  mf.evaluation.pseudo_log_likelihood(RBM, X))  # fmt: skip


def test_fields_of_estimators_are_in_their_signatures():
    """The table of free options does not outlive them."""
    known = set().union(*(inspect.signature(type(e)).parameters for e, _ in ESTIMATORS.values()))
    assert known >= FREE


@pytest.mark.parametrize("model", [None, "machine", 3, np.zeros((2, 2)), mf.RBM, mf.Ising([0.0])])
def test_solvers_refuse_what_is_no_model(model):
    solvers = [mf.tap, mf.relaxed_bp, mf.adaptive_tap, mf.belief_propagation, mf.exact]
    solvers.append(mf.log_partition_bounds)
    for solve in solvers:
        with pytest.raises(TypeError, match=r"model must be an RBM.* or a BoltzmannMachine, got"):
            solve(model)
    for solve in (mf.tap, mf.belief_propagation):
        with pytest.raises(TypeError, match=r"model must be an RBM.* or a BoltzmannMachine, got"):
            mf.mixture(solve, model)
