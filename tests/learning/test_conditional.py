import numpy as np
import pytest
from differences import assert_gradient
from scipy import sparse
from scipy.special import expit

from fastmf.learning import conditional
from fastmf.learning.conditional import ConditionalSettings, ConditionalSteps, gradient, infer
from fastmf.learning.training.ascent import ModelParameters, initial_state
from fastmf.learning.training.trainer import Checkpoint, train
from fastmf.models import CRBM, exact

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 2))
Y = RNG.integers(0, 2, (4, 5)).astype(float)
STATES = ((np.arange(32)[:, None] >> np.arange(5)) & 1).astype(float)


def crbm(m, scale=1.0):
    rng = np.random.default_rng(m)
    shapes = (5, m), (5, 2), (m, 2), 5, m
    return CRBM(*(scale * rng.normal(size=shape) for shape in shapes))


def exact_log_likelihood(model):
    log_partition = [exact(model.given(x)).log_partition for x in X]
    return np.mean(-model.free_energy(Y, X) - log_partition)


def approximate_log_likelihood(inference):
    def value(model):
        found = infer(model, model.fields(X), inference, 600, log_partition=True)
        assert found.residual.max() < 1e-12
        return np.mean(-model.free_energy(Y, X) - found.log_partition)

    return value


def minus_loss(joint):
    """Structured hinge losses by enumeration; the labels' own hidden units are their best."""

    def free(model, v, x):
        if not joint:
            return -model.free_energy(v, x)
        b, c = model.fields(x)
        return (v * b).sum(1) + np.maximum(0, v @ model.weights + c).sum(1)

    def value(model):
        total = 0.0
        for y, x in zip(Y, X, strict=True):
            values = free(model, STATES, np.tile(x, (32, 1))) + abs(STATES - y).sum(1)
            total += free(model, y[None], x[None])[0] - values.max()
        return total / len(Y)

    return value


def test_belief_propagation_gives_the_exact_gradient_on_trees():
    model = crbm(1)
    found = gradient(model, Y, X, ConditionalSettings())
    assert_gradient(found, model, exact_log_likelihood, abs=1e-7)


@pytest.mark.parametrize("inference", ["bp", "mean_field"])
def test_the_gradient_of_the_approximate_likelihood(inference):
    model = crbm(3, 0.7)
    found = gradient(model, Y, X, ConditionalSettings(inference=inference), n_sweeps=600)
    assert_gradient(found, model, approximate_log_likelihood(inference), abs=1e-7)


@pytest.mark.parametrize("inference, solver", [("bp", "propagated"), ("mean_field", "tap")])
def test_rows_end_where_their_beliefs_are_resolved(inference, solver, monkeypatch):
    results, solve = [], getattr(conditional, solver)

    def spy(*args, **options):
        result = solve(*args, **options)
        results.append(getattr(result, "record", result))
        return result

    monkeypatch.setattr(conditional, solver, spy)
    settings, n_sweeps = ConditionalSettings(inference=inference), 10**4
    model = crbm(3, 0.7)
    narrow = CRBM(**{k: v.astype(np.float32) for k, v in vars(ModelParameters.of(model)).items()})
    found = gradient(narrow, Y.astype("f4"), X.astype("f4"), settings, n_sweeps=n_sweeps)
    # The oracle: the same in double precision, far beyond single precision.
    expected = gradient(model, Y, X, settings, n_sweeps=n_sweeps)
    assert (results[0].n_iter < 200).all() and (results[0].residual > 0).any()
    assert (results[1].residual < 1e-14).all()
    for name, derivative in vars(found).items():
        np.testing.assert_allclose(derivative, getattr(expected, name), atol=1e-5)


def test_bethe_is_close_to_exact_on_weak_couplings():
    # What Bethe leaves out is of fourth order in the couplings, and mean field of second.
    model = crbm(3, 0.15)
    exactly = exact_log_likelihood(model)
    errors = {
        inference: abs(approximate_log_likelihood(inference)(model) - exactly)
        for inference in ("bp", "mean_field")
    }
    assert errors["bp"] < 1e-4 < 10 * errors["mean_field"]
    assert errors["bp"] < errors["mean_field"] / 10


@pytest.mark.parametrize("objective, joint", [("latent_svm", True), ("marginal_svm", False)])
def test_the_gradient_of_structured_losses_on_trees(objective, joint):
    model = crbm(1)
    found = gradient(model, Y, X, ConditionalSettings(objective=objective), n_sweeps=20)
    assert_gradient(found, model, minus_loss(joint), abs=1e-7)


def test_logistic_regression_needs_no_hidden_units():
    model = CRBM(np.zeros((5, 0)), *(crbm(1).visible_weights,), np.zeros((0, 2)), Y[0], [])

    def log_likelihood(model):
        b, _ = model.fields(X)
        return np.mean((Y * b - np.logaddexp(0, b)).sum(1))

    found = gradient(model, Y, X, ConditionalSettings(objective="logistic"))
    assert_gradient(found, model, log_likelihood, abs=1e-7)


@pytest.mark.parametrize("start", ["data", "logistic", "random"])
def test_long_chains_give_the_likelihood_gradient(start):
    model, rows = crbm(2, 0.5), 4000
    many_X, many_Y = np.tile(X[0], (rows, 1)), np.tile(Y[0], (rows, 1))
    settings = ConditionalSettings(objective="cd", n_gibbs=20, gibbs_start=start)
    found = gradient(model, many_Y, many_X, settings, rng=np.random.default_rng(0))
    answer = exact(model.given(X[0]))
    np.testing.assert_allclose(found.visible_bias, Y[0] - answer.mean[0], atol=0.035)


def test_the_perceptron_moves_only_where_it_finds_a_lower_free_energy():
    model = crbm(2, 3.0)
    free_energies = model.free_energy(STATES, np.tile(X[0], (32, 1)))
    settings = ConditionalSettings(objective="perceptron", n_gibbs=5)
    best, worst = (STATES[[k]] for k in (free_energies.argmin(), free_energies.argmax()))
    still = gradient(model, best, X[:1], settings, rng=np.random.default_rng(0))
    assert all((part == 0).all() for part in vars(still).values())
    moved = gradient(model, worst, X[:1], settings, rng=np.random.default_rng(0))
    found = worst - moved.visible_bias  # the labelling that the search has found

    def advantage(model):
        """By how much the free energy of the label is below that of the other labelling."""
        return (model.free_energy(found, X[:1]) - model.free_energy(worst, X[:1])).item()

    assert advantage(model) < 0
    assert_gradient(moved, model, advantage, abs=1e-7)


def test_the_perceptron_compares_the_most_probable_labels_not_drawn_ones():
    field = np.array([0.1, -0.1, 0.1, 0.1, -0.1])
    model = CRBM(np.zeros((5, 3)), np.zeros((5, 2)), np.zeros((3, 2)), field, np.zeros(3))
    settings = ConditionalSettings(objective="perceptron", n_gibbs=3)
    labels = (field < 0).astype(float)[None]
    moved = gradient(model, labels, X[:1], settings, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(labels - moved.visible_bias, field[None] > 0)


@pytest.mark.parametrize("features", [np.asarray, sparse.csr_matrix])
def test_an_interrupted_run_resumes_to_the_same_bits(tmp_path, features):
    data = Y, features(X)
    settings = ConditionalSettings(n_epochs=4, batch_size=2, momentum=0.5, early_stopping=True)
    options, steps = {"seed": 1, "validation": data}, ConditionalSteps(settings)
    whole = train(crbm(3), data, steps, **options)
    path = tmp_path / "run"
    stop = [lambda state: state.epoch == 2]
    train(crbm(3), data, steps, callbacks=[Checkpoint(path), *stop], **options)
    resumed = train(crbm(3), data, steps, callbacks=[Checkpoint(path)], **options)
    assert resumed.history == whole.history
    for name in vars(ModelParameters.of(whole.model)):
        np.testing.assert_array_equal(getattr(resumed.model, name), getattr(whole.model, name))
    with pytest.raises(ValueError, match="differs in data"):
        train(crbm(3), (1 - Y, data[1]), steps, callbacks=[Checkpoint(path)], **options)


def test_biases_that_are_not_finite_are_told():
    """Without features only the biases move, which no bound of the couplings sees."""
    state = initial_state(crbm(0))
    state.velocity.visible_bias[:] = 1e308
    settings = ConditionalSettings(objective="logistic", momentum=0.99)
    with np.errstate(over="ignore"), pytest.raises(FloatingPointError, match="diverged"):
        for _ in range(3):
            ConditionalSteps(settings)(state, (Y, np.zeros_like(X)), 0.0, None)


def test_l1_makes_weights_zero():
    settings = ConditionalSettings(n_epochs=60, batch_size=4, learning_rate=0.05, l1=0.2)
    trained = train(crbm(2, 0.1), (Y, X), ConditionalSteps(settings), seed=0).model
    for weights in (trained.weights, trained.visible_weights, trained.hidden_weights):
        assert (weights == 0).any()


@pytest.mark.parametrize("objective", ["likelihood", "marginal_svm_beliefs"])
@pytest.mark.parametrize("n_sweeps", [3, 60])
def test_beliefs_are_those_of_algorithm_1(objective, n_sweeps):
    """Ping & Ihler (2017), Algorithm 1 from messages of 1/2, and Eq. 18, by tables of messages."""
    model = crbm(3, 0.7)
    sums, total, visibles, hiddens = objective == "likelihood", np.zeros((5, 3)), [], []
    for x, y in zip(X, Y, strict=True):
        b, c = (field[0] for field in model.fields(x[None]))
        b = b if sums else b + 1 - 2 * y
        values = np.arange(2)
        pairs = np.exp(model.weights[..., None, None] * np.outer(values, values))
        visible, hidden = np.exp(np.outer(b, values)), np.exp(np.outer(c, values))
        up = np.full((5, 3, 2), 0.5)  # messages to hidden units
        for _ in range(n_sweeps):
            above = hidden * up.prod(0)
            down = np.einsum("ijvh,ijh->ijv", pairs, above / up)
            down /= down.sum(-1, keepdims=True)
            below = visible * down.prod(1)
            cavities = (below[:, None] / down)[..., None] * pairs
            best = cavities[np.arange(5)[:, None], np.arange(3), below.argmax(1)[:, None]]
            up = cavities.sum(2) if sums else best
            up = up / up.sum(-1, keepdims=True)
        above = hidden * up.prod(0)
        visibles.append(below[:, 1] / below.sum(1))
        hiddens.append(above[:, 1] / above.sum(1))
        joint = (below[:, None] / down)[..., None] * pairs * (above / up)[:, :, None]
        total += joint[..., 1, 1] / joint.sum((-2, -1))
    inference = "bp_uniform" if sums else None
    settings = ConditionalSettings(objective=objective, inference=inference)
    found = gradient(model, Y, X, settings, n_sweeps=n_sweeps)
    given = expit(Y @ model.weights + model.fields(X)[1])
    # Pairs have the message of the last half sweep alone: both agree at fixed points.
    if n_sweeps == 60:
        np.testing.assert_allclose(found.weights, (Y.T @ given - total) / 4, atol=1e-12)
    np.testing.assert_allclose(found.hidden_bias, (given - hiddens).mean(0), atol=1e-12)
    np.testing.assert_allclose(found.visible_bias, (Y - visibles).mean(0), atol=1e-12)
    if sums:  # predictions are by the same messages
        predicted = infer(model, model.fields(X), inference, n_sweeps)
        np.testing.assert_allclose(predicted.visible, visibles, atol=1e-12)
