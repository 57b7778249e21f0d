import itertools
import re

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import block_diag
from sklearn.datasets import make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier, StackingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer, roc_auc_score
from sklearn.model_selection import KFold, cross_val_predict, cross_val_score
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier

from fastmf.estimators import ConditionalRBM
from fastmf.evaluation import Checkpoint
from fastmf.models import CRBM, exact

METHODS = [
    {"objective": "logistic"},
    {"objective": "cd"},
    {"objective": "cd", "n_gibbs": 10, "gibbs_start": "logistic"},
    {"objective": "perceptron", "n_gibbs": 10},
    {"objective": "likelihood", "inference": "mean_field"},
    {"objective": "likelihood"},
    {"objective": "latent_svm"},
    {"objective": "marginal_svm"},
]


def copies(n=150, dtype=float):
    """Six labels that all equal one hidden bit, of which every feature is a noisy sight."""
    rng = np.random.default_rng(0)
    bit = rng.integers(0, 2, (n, 1))
    X = np.where(rng.random((n, 6)) < 0.15, 1 - bit, bit).astype(dtype)
    return X, np.repeat(bit, 6, 1)


def quick(**options):
    """Features are zeros and ones here; `test_features.py` is about others."""
    options = {"n_epochs": 20, "batch_size": 10, "learning_rate": 0.1, "random_state": 0} | options
    options = {"standardize": False} | options
    return ConditionalRBM(4, **options)


@pytest.fixture(scope="module")
def learned():
    """The machine that several tests ask something."""
    return quick().fit(*copies())


@pytest.mark.parametrize("method", METHODS, ids=lambda m: "-".join(map(str, m.values())))
def test_every_method_learns(method):
    X, Y = copies()
    machine = quick(**method, n_epochs=12).fit(X[:100], Y[:100])
    assert machine.score(X[100:], Y[100:]) > 0.85
    proba = machine.predict_proba(X[100:])
    assert proba.shape == (50, 6) and (proba >= 0).all() and (proba <= 1).all()
    assert np.isfinite(machine.score_samples(X, Y)).all()
    assert machine.n_sweeps_ == 7 + 12
    assert machine.model_.n_hidden == (0 if method["objective"] == "logistic" else 4)


def test_hidden_units_raise_the_likelihood_above_logistic_regression(learned):
    X, Y = copies()
    logistic = quick(objective="logistic").fit(X, Y)
    scores = [m.score_samples(X, Y).mean() for m in (logistic, learned)]
    assert scores[1] > scores[0] + 0.2


def test_score_samples_is_near_the_exact_log_likelihood():
    X, Y = make_multilabel_classification(60, n_classes=5, random_state=0)
    X = X / X.max()
    machine = quick(n_epochs=5).fit(X, Y)
    log_partition = [exact(machine.model_.given(x)).log_partition for x in X]
    expected = -machine.model_.free_energy(Y, X) - log_partition
    np.testing.assert_allclose(machine.score_samples(X, Y), expected, rtol=1e-10)


@pytest.mark.parametrize("n_hidden", [3, 40])
def test_score_samples_sums_the_smaller_side(n_hidden):
    """Hidden units, or labels, that copy a bit: belief propagation is nats off."""
    rng, n_labels = np.random.default_rng(0), 43 - n_hidden
    weights = 4 + rng.normal(size=(n_labels, n_hidden))
    inputs = rng.normal(size=(n_labels, 2)), rng.normal(size=(n_hidden, 2))
    model = CRBM(weights, *inputs, -weights.sum(1) / 2, -weights.sum(0) / 2)
    X, Y = rng.normal(size=(20, 2)), (rng.random((20, n_labels)) < 0.5).astype(int)
    machine = ConditionalRBM(n_hidden, init=model, n_epochs=0).fit(X, Y)
    b, c = X @ inputs[0].T + model.visible_bias, X @ inputs[1].T + model.hidden_bias
    of_labels = (Y * b).sum(1) + np.logaddexp(0, Y @ weights + c).sum(1)
    if n_hidden > 3:
        b, c, weights = c, b, weights.T
    states = np.array(list(itertools.product((0, 1), repeat=3)))
    logs = c @ states.T + np.logaddexp(0, states @ weights.T + b[:, None]).sum(2)
    expected = of_labels - np.logaddexp.reduce(logs, axis=1)
    np.testing.assert_allclose(machine.score_samples(X, Y), expected, rtol=1e-10)


@pytest.mark.parametrize("strength", [0.05, 0.2])
def test_approximate_scores_say_how_much_they_are_off(strength):
    """Two copies of a machine that can be summed, too large together."""
    rng = np.random.default_rng(0)
    weights = strength * (1 + rng.normal(size=(40, 12)) / 4)
    one = CRBM(
        weights, np.zeros((40, 1)), np.zeros((12, 1)), -weights.sum(1) / 2, -weights.sum(0) / 2
    )
    two = CRBM(
        block_diag(weights, weights), np.zeros((80, 1)), np.zeros((24, 1)),
        np.tile(one.visible_bias, 2), np.tile(one.hidden_bias, 2),
    )  # fmt: skip
    X, Y = np.zeros((12, 1)), (rng.random((12, 80)) < 0.5).astype(int)
    machine = ConditionalRBM(24, init=two, n_epochs=0, standardize=False).fit(X, Y)
    right = -two.free_energy(Y, X) - 2 * exact(one.given(X[0]), averages=False).log_partition
    if strength == 0.2:
        with pytest.warns(ConvergenceWarning, match="by belief propagation are about") as said:
            found = machine.score_samples(X, Y)
        told = float(re.search(r"about (\S+) nats too", str(said[0].message))[1])
        assert abs(found - right).mean() == pytest.approx(told, rel=0.05) and told > 1
    else:
        np.testing.assert_allclose(machine.score_samples(X, Y), right, atol=0.05)


@pytest.mark.parametrize("objective", ["latent_svm", "marginal_svm"])
def test_steps_of_structured_losses_have_the_hamming_margin(objective):
    """A step of a tree, against differences of the hinge loss by enumeration.

    The scores of many rows are near a margin of 1: a margin of 0.9 or 1.1 has other derivatives.
    """
    rng, shapes = np.random.default_rng(1), {"weights": (4, 1), "visible_weights": (4, 2)}
    shapes |= {"hidden_weights": (1, 2), "visible_bias": (4,), "hidden_bias": (1,)}
    parameters = {name: rng.normal(size=shape) / 2 for name, shape in shapes.items()}
    X, Y = rng.normal(size=(400, 2)), (rng.random((400, 4)) < 0.5).astype(int)
    states = np.array(list(itertools.product((0, 1), repeat=4)))

    def gain(weights, visible_weights, hidden_weights, visible_bias, hidden_bias):
        b, c = X @ visible_weights.T + visible_bias, X @ hidden_weights.T + hidden_bias
        summed = np.maximum if objective == "latent_svm" else np.logaddexp
        values = b @ states.T + summed(0, states @ weights + c.T).T
        distances = (Y[:, None] != states).sum(2)
        return (values[distances == 0] - (values + distances).max(1)).mean()

    model, rate = CRBM(**parameters), 1e-3
    options = {"n_epochs": 1, "batch_size": 400, "learning_rate": rate, "standardize": False}
    moved = ConditionalRBM(1, objective=objective, init=model, n_sweeps=50, **options).fit(X, Y)
    for name, shape in shapes.items():
        found = (getattr(moved.model_, name) - parameters[name]) / rate
        for unit in np.ndindex(shape):
            step = np.zeros(shape)
            step[unit] = 1e-6
            up, down = (gain(**parameters | {name: parameters[name] + d}) for d in (step, -step))
            assert found[unit] == pytest.approx((up - down) / 2e-6, abs=1e-6), name


def test_decoding(learned):
    X, Y = copies()
    # Hard decisions may cycle, and say less about labels that hang together as strongly as here.
    for decode, least in (("marginal_modes", 0.9), ("joint_map", 0.8), ("marginal_map", 0.55)):
        assert (learned.predict(X, decode) == Y).mean() > least
    with pytest.raises(ValueError, match="decode must be one of"):
        learned.predict(X, "best")


def test_a_search_finds_the_most_probable_labels(learned):
    X, _ = copies()
    every = np.array(list(itertools.product((0, 1), repeat=6)))
    best = np.stack([-learned.model_.free_energy(every, np.tile(x, (64, 1))) for x in X]).max(1)

    labels = learned.predict(X, "marginal_map")
    assert (best + learned.model_.free_energy(labels, X)).max() < 1e-9


def test_sparse_features_and_single_precision():
    X, Y = copies()
    short, thin = quick(n_epochs=3).fit(X, Y), quick(n_epochs=3).fit(sparse.csr_matrix(X), Y)
    np.testing.assert_allclose(thin.model_.weights, short.model_.weights, atol=1e-10)
    np.testing.assert_array_equal(thin.predict(sparse.csr_matrix(X)), short.predict(X))
    single = quick(n_epochs=3).fit(X.astype(np.float32), Y)
    assert single.model_.dtype == np.float32
    assert single.predict_proba(X).dtype == np.float32
    far = (np.random.default_rng(0).normal(size=X.shape) + X + 1e5).astype(np.float32)
    np.testing.assert_allclose(single.model_.weights, short.model_.weights, atol=2e-5)
    np.testing.assert_allclose(single.predict_proba(X), short.predict_proba(X), atol=1e-4)
    learns = quick(n_epochs=3, standardize=True)
    single, double = (learns.fit(far.astype(kind), Y).predict_proba(far) for kind in ("f", "d"))
    np.testing.assert_allclose(single, double, atol=1e-5)


def test_labels_of_any_two_values():
    X, Y = copies()
    numbers, words = (quick(n_epochs=2).fit(X, y) for y in (Y, np.where(Y == 1, "yes", "no")))
    np.testing.assert_array_equal(words.predict(X) == "yes", numbers.predict(X) == 1)
    words = quick(n_epochs=2).fit(X, np.where(Y[:, 0] == 1, "yes", "no"))
    assert set(words.predict(X)) <= {"yes", "no"} and words.predict_proba(X).shape == (150, 2)
    with pytest.raises(ValueError, match=r"y must have shape \(150,\), got \(150, 1\)"):
        words.score(X, words.predict(X)[:, None])
    with pytest.raises(ValueError, match="sample_weight"):
        words.score(X, words.predict(X), np.ones(7))
    with pytest.raises(ValueError, match="two values"):
        quick().fit(X, Y + np.arange(6))
    with pytest.raises(ValueError, match="one class"):
        quick().fit(X, np.full(len(X), 7))


def test_scorers_of_scikit_learn_know_many_labels(learned):
    X, Y = copies()
    assert learned.classes_.tolist() == [[0, 1]] * 6 and learned.values_.tolist() == [0, 1]
    expected = roc_auc_score(Y, learned.predict_proba(X))
    assert get_scorer("roc_auc")(learned, X, Y) == pytest.approx(expected, abs=1e-12)
    one = quick(n_epochs=2).fit(X, np.where(Y[:, 0] == 1, "yes", "no"))
    assert list(one.classes_) == ["no", "yes"]
    expected = roc_auc_score(Y[:, 0], one.predict_proba(X)[:, 1])
    words = np.where(Y[:, 0] == 1, "yes", "no")
    assert get_scorer("roc_auc")(one, X, words) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n_labels, values", [(1, (0, 1)), (2, (-1, 1)), (3, (False, True))])
def test_meta_estimators_of_scikit_learn_take_many_labels(n_labels, values):
    X, Y = copies(60)
    Y = np.array(values)[Y[:, :n_labels]]
    crbm = quick(n_epochs=1)
    found = cross_val_predict(crbm, X, Y, method="predict_proba", cv=KFold(2))
    halves = [np.arange(60) >= 30, np.arange(60) < 30]
    for fitted, others in zip(halves, halves[::-1], strict=True):
        expected = crbm.fit(X[fitted], Y[fitted]).predict_proba(X[others])
        np.testing.assert_array_equal(found[others], expected)
    assert cross_val_predict(crbm, X, Y, cv=2).shape == Y.shape
    auc = get_scorer("roc_auc")(crbm.fit(X, Y), X, Y)
    assert auc == pytest.approx(roc_auc_score(Y, crbm.predict_proba(X)), abs=1e-12)
    assert np.isfinite(cross_val_score(crbm, X, Y, cv=2, error_score="raise")).all()
    chain = ClassifierChain(crbm).fit(X, Y == values[1])
    assert chain.predict_proba(X).shape == Y.shape
    several = MultiOutputClassifier(crbm).fit(X, Y).predict_proba(X)
    assert [part.shape for part in several] == [(60, 2)] * n_labels
    stack = StackingClassifier([("crbm", crbm)], RandomForestClassifier(5), cv=2)
    assert stack.fit(X, np.squeeze(Y)).predict(X).shape == np.squeeze(Y).shape


@pytest.mark.parametrize("convert", [sparse.csr_array, sparse.csr_matrix, sparse.csc_array])
def test_sparse_labels(convert):
    X, Y = copies(60)
    dense, machine = quick(n_epochs=2).fit(X, Y), quick(n_epochs=2)
    machine.fit(X, convert(Y), validation_data=(X, convert(Y)))
    np.testing.assert_array_equal(machine.model_.weights, dense.model_.weights)
    assert machine.score(X, convert(Y)) == dense.score(X, Y)
    np.testing.assert_array_equal(machine.score_samples(X, convert(Y)), dense.score_samples(X, Y))
    assert isinstance(machine.predict(X), np.ndarray)


def test_early_stopping_and_start_from_a_logistic_regression():
    X, Y = copies()
    logistic = quick(objective="logistic").fit(X, Y)
    machine = quick(init=logistic.model_, early_stopping=2).fit(X, Y)
    scores = machine.history_["validation_accuracy"]
    assert machine.n_iter_ == len(scores) == np.argmax(scores) + 1 + 2
    assert machine.n_sweeps_ == 7 + np.argmax(scores) + 1
    still = quick(init=logistic.model_, n_epochs=0).fit(X, Y).model_
    np.testing.assert_array_equal(still.visible_weights, logistic.model_.visible_weights)
    few_labels = CRBM(np.ones((2, 4)), np.ones((2, 6)), np.ones((4, 6)), [0, 0], [0] * 4)
    with pytest.raises(ValueError, match="init must have 6 labels"):
        quick(init=few_labels).fit(X, Y)
    with pytest.raises(TypeError, match="init must be a CRBM"):
        quick(init=logistic).fit(X, Y)
    for others in (Y[:, :1], Y[:, :2]):
        with pytest.raises(ValueError, match="y must have 6 columns"):
            quick(early_stopping=True).fit(X, Y, validation_data=(X, others))


def test_files(tmp_path):
    X, Y = copies()
    for labels in (Y, Y[:, 0]):
        machine = quick(n_epochs=2).fit(X, labels)
        machine.save(tmp_path / "machine")
        back = ConditionalRBM.load(tmp_path / "machine")
        np.testing.assert_array_equal(back.predict_proba(X), machine.predict_proba(X))
        np.testing.assert_array_equal(back.predict(X), machine.predict(X))
        assert back.history_ == machine.history_
    words = np.where(Y == 1, "yes", "no").astype(object)
    machine = quick(n_epochs=2).fit(X, words)
    machine.save(tmp_path / "machine")
    back = ConditionalRBM.load(tmp_path / "machine")
    np.testing.assert_array_equal(back.predict(X), machine.predict(X))
    machine.model_.save(tmp_path / "model")
    with pytest.raises(ValueError, match="is not a ConditionalRBM"):
        ConditionalRBM.load(tmp_path / "model")


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_rows_of_weight_zero_are_as_if_they_were_absent(convert, early_stopping):
    X, Y = copies(60)
    weights = np.repeat([2.0, 0.0], 30)
    options = {"n_epochs": 3, "objective": "logistic", "early_stopping": early_stopping}
    machine, fewer = quick(**options), quick(**options)
    machine.fit(convert(X), np.where(weights[:, None] > 0, Y, 1 - Y), sample_weight=weights)
    fewer.fit(convert(X[:30]), Y[:30], sample_weight=weights[:30])
    for name, value in machine.model_.parameters().items():
        np.testing.assert_array_equal(value, fewer.model_.parameters()[name])


def test_rows_count_as_often_as_their_weights_say():
    Y = np.repeat([1, 0], 40)
    machine = quick(objective="logistic", n_epochs=60)
    machine.fit(np.zeros((80, 1)), Y, sample_weight=np.where(Y, 3.0, 1.0))
    assert machine.predict_proba(np.zeros((1, 1)))[0, 1] == pytest.approx(0.75, abs=0.05)
    with pytest.raises(ValueError, match="sample_weight"):
        machine.fit(np.zeros((80, 1)), Y, sample_weight=-np.ones(80))


def with_unknown(Y, fraction=0.4):
    """Labels of which a fraction is not known, one of each row at least."""
    unknown = np.random.default_rng(1).random(Y.shape) < fraction
    unknown[unknown.all(1), 0] = False
    return np.where(unknown, np.nan, Y)


# Methods that draw unknown labels as another one of the list does, more slowly.
SLOWER = METHODS[2], *METHODS[4:]


@pytest.mark.parametrize(
    "options", [pytest.param(m, marks=[pytest.mark.slow] * (m in SLOWER)) for m in METHODS]
)
def test_labels_may_be_partly_unknown(options, tmp_path):
    X, Y = copies()
    known = with_unknown(Y)
    if options["objective"] == "perceptron":
        with pytest.raises(ValueError, match="objective='perceptron' does not take"):
            quick(**options).fit(X, known)
        return
    # Logistic regressions of rows that lack labels take more steps.
    options = options | {"n_epochs": 16 if options["objective"] == "logistic" else 8}
    crbm = quick(**options).fit(X, known)
    whole = quick(**options).fit(X, Y)
    assert crbm.score(X, Y) > whole.score(X, Y) - 0.03
    assert crbm.score(X, known) == pytest.approx(
        np.nanmean(np.where(np.isnan(known), np.nan, crbm.predict(X) == Y), axis=1).mean()
    )
    assert np.isfinite(crbm.score_samples(X, known)).all()
    assert (crbm.score_samples(X, known) > crbm.score_samples(X, Y) - 1e-6).mean() > 0.95

    X, known, callbacks = X[:60], known[:60], [Checkpoint(tmp_path / "run.npz")]
    quick(**options | {"n_epochs": 1}, callbacks=callbacks).fit(X, known)
    resumed = quick(**options | {"n_epochs": 2}, callbacks=callbacks).fit(X, known)
    expected = quick(**options | {"n_epochs": 2}).fit(X, known)
    np.testing.assert_array_equal(resumed.model_.weights, expected.model_.weights)


def test_forms_of_unknown_labels():
    X, Y = copies(60)
    known = with_unknown(Y)
    expected = quick(n_epochs=2).fit(X, known)
    words = np.where(np.isnan(known), None, np.where(known == 1, "yes", "no"))
    found = quick(n_epochs=2).fit(X, words)
    np.testing.assert_array_equal(found.model_.weights, expected.model_.weights)
    assert found.values_.tolist() == ["no", "yes"]
    masked = np.ma.masked_array(Y, np.isnan(known))
    found = quick(n_epochs=2).fit(X, masked)
    np.testing.assert_array_equal(found.model_.weights, expected.model_.weights)
    known[4] = np.nan
    with pytest.raises(ValueError, match="all labels of 1 rows"):
        quick().fit(X, known)
    weights = np.ones(len(X))
    weights[4] = 0
    assert quick(n_epochs=1).fit(X, known, sample_weight=weights).n_iter_ == 1


@pytest.mark.parametrize("method", [METHODS[0], METHODS[4]])
def test_weights_count_only_relative_to_each_other(method):
    rng = np.random.default_rng(0)
    X, Y, weights = rng.normal(size=(60, 3)), rng.integers(0, 2, (60, 2)), rng.random(60)
    fits = [
        ConditionalRBM(2, n_epochs=3, random_state=0, **method).fit(X, Y, sample_weight=c * weights)
        for c in (1.0, 2.0**-40, 2.0**40)
    ]
    for found in fits[1:]:
        np.testing.assert_array_equal(found.predict_proba(X), fits[0].predict_proba(X))
