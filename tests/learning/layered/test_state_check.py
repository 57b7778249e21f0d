import numpy as np
import pytest

from fastmf.learning.layered.family import train
from fastmf.learning.layered.settings import LayeredSettings
from fastmf.learning.layered.state_check import check
from fastmf.models import DBM, RBM
from fastmf.priors import (
    Bernoulli,
    Binomial,
    Categorical,
    Concatenated,
    GaussBernoulli,
    Gaussian,
    Ising,
    TruncatedGaussBernoulli,
    TruncatedGaussian,
)

N_ROWS = 30
rng = np.random.default_rng(0)
PRIORS = {
    "bernoulli": Bernoulli(np.zeros(4)),
    "ising": Ising(np.zeros(4)),
    "binomial": Binomial(np.zeros(4), np.full(4, 3)),
    "gaussian": Gaussian(np.zeros(4), 1.0),
    "truncated": TruncatedGaussian(np.zeros(4), 1.0, -1.0, 2.0),
    "spikes": GaussBernoulli(np.zeros(4), 1.0, 0.0),
    "bounded spikes": TruncatedGaussBernoulli(np.zeros(4), 1.0, 0.5, 0.0, 1.0),
    "categorical": Categorical(np.zeros((2, 2))),
    "mixed": Concatenated(Categorical(np.zeros((1, 3))), Gaussian(0.0, 1.0)),
}


def machine(visible, deep=False, dtype=float):
    weights = 0.1 * rng.normal(size=(4, 3)).astype(dtype)
    if deep:
        above = 0.1 * rng.normal(size=(3, 4)).astype(dtype)
        return DBM((weights, above), (visible, Bernoulli(np.zeros(3)), visible))
    return RBM(weights, visible, Bernoulli(np.zeros(3)))


def settings_of(gradient, **options):
    return LayeredSettings(
        gradient=gradient, n_epochs=2, batch_size=8, learning_rate=0.001, **options
    )


KINDS = [("pcd", {"n_starts": 5}), ("pcd", {}), ("tap", {"starts": "persistent", "n_starts": 9})]


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("prior", PRIORS)
def test_states_of_runs_are_admitted(tmp_path, kind, prior, deep):
    gradient, options = KINDS[kind]
    settings, path = settings_of(gradient, **options), tmp_path / "run"
    dtype = np.float32 if len(prior) % 2 else np.float64
    model = machine(PRIORS[prior], deep, dtype)
    zero = np.zeros((N_ROWS, 4))
    X = model.layers[0].sample(zero, zero, np.random.default_rng(1)).astype(dtype)

    def stop(state):
        check(state, settings, N_ROWS)
        return state.epoch == 1

    def run(**more):
        return train(model, X, settings, seed=0, checkpoint=path, **more)

    run(callbacks=[stop])
    assert run().epoch == 2  # the state in the file is admitted, too


@pytest.fixture(params=["pcd", "tap"])
def state(request):
    options = dict(KINDS)["tap"] if request.param == "tap" else {"n_starts": 5}
    settings = settings_of(request.param, **options, preconditioning=0.1)
    X = np.asarray(rng.random((N_ROWS, 4)) < 0.5, float)
    found = train(machine(PRIORS["bernoulli"]), X, settings, seed=0)
    check(found, settings, N_ROWS)
    return found, settings


@pytest.mark.parametrize("name", ["chains", "preconditioners", "solutions"])
def test_arrays_of_another_run_are_refused(state, name):
    state, settings = state
    arrays = getattr(state, name)
    for changed in (
        arrays[:-1] or arrays * 2,
        (*arrays, arrays[0]),
        tuple(array[:-1] for array in arrays[:1]) + arrays[1:],
        tuple(array[:, :-1] for array in arrays),
        tuple(array - 2 for array in arrays),
    ):
        setattr(state, name, changed)
        with pytest.raises(ValueError, match=name):
            check(state, settings, N_ROWS)
    setattr(state, name, arrays)
    check(state, settings, N_ROWS)


def test_more_solutions_than_are_kept_are_refused(state):
    state, settings = state
    state.solutions = tuple(np.repeat(part, 60, 0) for part in state.solutions)
    with pytest.raises(ValueError, match="at most 50 rows"):
        check(state, settings, N_ROWS)


def test_nothing_is_kept_before_the_first_step(state):
    state, settings = state
    state.epoch = state.batch = 0
    with pytest.raises(ValueError, match=r"chains/... must be of the shapes \[\]"):
        check(state, settings, N_ROWS)


def test_matrices_that_are_not_symmetric_are_refused(state):
    state, settings = state
    first, *others = state.preconditioners
    first = first.copy()
    first[0, 1] += 1
    state.preconditioners = (first, *others)
    with pytest.raises(ValueError, match="must be symmetric"):
        check(state, settings, N_ROWS)
