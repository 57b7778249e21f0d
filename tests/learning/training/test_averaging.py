from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import fastmf as mf
from fastmf.evaluation import IterateAverage
from fastmf.learning.training.ascent import ModelParameters

RNG = np.random.default_rng(0)
PRIORS = {
    "bernoulli": lambda n: mf.Bernoulli(RNG.normal(size=n)),
    "spike and slab": lambda n: mf.TruncatedGaussBernoulli(
        RNG.normal(size=n), RNG.random(n) + 1, RNG.normal(size=n), np.zeros(n), np.ones(n)
    ),
}


def arrays(model):
    found = []
    ModelParameters.of(model).combine(lambda x: found.append(x) or x)
    return found


def machine(kind, dtype=np.float64):
    rbm = mf.RBM(RNG.normal(size=(6, 4)), PRIORS[kind](6), mf.Bernoulli(RNG.normal(size=4)))
    parts = ModelParameters.of(rbm).combine(lambda x: x.astype(dtype))
    return rbm.rebuilt(**vars(parts))


def deep_machine():
    layers = (mf.Bernoulli(RNG.normal(size=n)) for n in (5, 4, 3))
    return mf.DBM((RNG.normal(size=(5, 4)), RNG.normal(size=(4, 3))), tuple(layers))


@pytest.mark.parametrize("make", [*(partial(machine, kind) for kind in PRIORS), deep_machine])
def test_parameters_are_the_means_of_those_added(make):
    average, models = IterateAverage(), [make() for _ in range(5)]
    for model in models:
        average.add(model)
    assert average.n_averaged == 5
    assert type(average.model) is type(models[0])
    assert type(average.model.layers[0]) is type(models[0].layers[0])
    for found, *each in zip(arrays(average.model), *map(arrays, models), strict=True):
        np.testing.assert_allclose(found, np.mean(each, 0), rtol=1e-12)
        assert np.std(each) > 0.1


def test_sums_of_float32_are_exact_and_the_type_is_kept():
    # In float32, each of the later additions would be rounded to nothing.
    large, small = (
        mf.RBM(
            np.full((2, 1), value, np.float32),
            mf.Bernoulli(np.zeros(2, np.float32)),
            mf.Bernoulli(np.zeros(1, np.float32)),
        )
        for value in (1.0, 1 + 2**-20)
    )
    average = IterateAverage()
    for model in [large] * 7 + [small]:
        average.add(model)
    assert average.model.weights.dtype == np.float32
    assert (average.model.weights == np.float32(1 + 2**-23)).all()


def test_only_epochs_from_the_first_one_count():
    average, models = IterateAverage(first_epoch=3), [machine("bernoulli") for _ in range(4)]
    for epoch, model in enumerate(models, 1):
        average(SimpleNamespace(epoch=epoch, model=model))
        assert (average.model is None) == (epoch < 3)
    assert average.n_averaged == 2
    np.testing.assert_allclose(
        average.model.weights, (models[2].weights + models[3].weights) / 2, rtol=1e-12
    )


def test_training_is_not_changed():
    X = (RNG.random((60, 8)) < 0.3).astype(np.float32)
    options = {"gradient": "pcd", "n_epochs": 4, "batch_size": 20, "random_state": 0}
    models, average = [], IterateAverage(first_epoch=2)
    followed = mf.GeneralizedRBM(
        3, callbacks=[average, lambda state: models.append(state.model)], **options
    ).fit(X)
    alone = mf.GeneralizedRBM(3, **options).fit(X)
    np.testing.assert_array_equal(followed.weights_, alone.weights_)
    expected = np.mean([model.weights.astype(float) for model in models[1:]], 0)
    np.testing.assert_allclose(average.model.weights, expected, rtol=1e-6)
    followed.model_ = average.model
    assert (followed.transform(X) != alone.transform(X)).any()


def test_other_shapes_are_refused():
    average = IterateAverage()
    average.add(machine("bernoulli"))
    other = mf.RBM(np.zeros((6, 3)), PRIORS["bernoulli"](6), mf.Bernoulli(np.zeros(3)))
    with pytest.raises(ValueError, match=r"\(6, 4\).*got.*\(6, 3\).*new IterateAverage"):
        average.add(other)


def test_training_anew_forgets_the_run_before():
    average, models = IterateAverage(2), [machine("bernoulli") for _ in "ab"]
    for model in models:
        for epoch in (1, 2):
            average(SimpleNamespace(epoch=epoch, model=model))
    assert average.n_averaged == 1
    np.testing.assert_array_equal(average.model.weights, models[1].weights)
