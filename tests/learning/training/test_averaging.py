from types import SimpleNamespace

import numpy as np
import pytest

import fastmf as mf
from fastmf.evaluation import Checkpoint, IterateAverage
from fastmf.learning.training.parameters import ModelParameters

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


@pytest.mark.parametrize("kind", PRIORS)
def test_parameters_are_the_means_of_those_added(kind):
    average, models = IterateAverage(), [machine(kind) for _ in range(5)]
    for model in models:
        average.add(model)
    assert average.n_averaged == 5
    assert type(average.model.visible) is type(models[0].visible)
    for found, *each in zip(arrays(average.model), *map(arrays, models), strict=True):
        np.testing.assert_allclose(found, np.mean(each, 0), rtol=1e-12)
        assert np.std(each) > 0.1


def test_of_deep_machines():
    models = [
        mf.DBM(
            (RNG.normal(size=(5, 4)), RNG.normal(size=(4, 3))),
            tuple(mf.Bernoulli(RNG.normal(size=n)) for n in (5, 4, 3)),
        )
        for _ in range(2)
    ]
    average = IterateAverage()
    for model in models:
        average.add(model)
    assert isinstance(average.model, mf.DBM)
    for found, *each in zip(arrays(average.model), *map(arrays, models), strict=True):
        np.testing.assert_allclose(found, np.mean(each, 0), rtol=1e-12)


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


def resumable(folder, n_epochs, callbacks=()):
    average = IterateAverage(3, folder / "average.npz")
    X = (np.random.default_rng(2).random((60, 8)) < 0.3).astype(np.float32)
    mf.GeneralizedRBM(
        3, gradient="pcd", n_epochs=n_epochs, batch_size=20, random_state=0, learning_rate=0.1,
        callbacks=[Checkpoint(folder / "checkpoint.npz"), average, *callbacks],
    ).fit(X)  # fmt: skip
    return average


@pytest.mark.parametrize("last", [1, 2, 3, 5])
def test_a_run_that_resumes_goes_on_from_the_average_in_the_file(tmp_path, last):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    expected = resumable(whole, 7)
    resumable(parts, 7, [lambda state: state.epoch == last])
    found = resumable(parts, 7)
    assert found.n_averaged == expected.n_averaged == 5
    for one, other in zip(arrays(found.model), arrays(expected.model), strict=True):
        np.testing.assert_array_equal(one, other)


def test_training_anew_forgets_the_run_before(tmp_path):
    average, models = IterateAverage(2, tmp_path / "file.npz"), [machine("bernoulli") for _ in "ab"]
    for model in models:
        for epoch in (1, 2):
            average(SimpleNamespace(epoch=epoch, model=model))
    assert average.n_averaged == 1
    np.testing.assert_array_equal(average.model.weights, models[1].weights)
    # And another object replaces the file.
    again = IterateAverage(2, tmp_path / "file.npz")
    for epoch in (1, 2):
        again(SimpleNamespace(epoch=epoch, model=models[0]))
    assert again.n_averaged == 1


def test_a_file_of_later_epochs_is_not_used(tmp_path):
    average = IterateAverage(1, tmp_path / "file.npz")
    for epoch in range(1, 5):
        average(SimpleNamespace(epoch=epoch, model=machine("bernoulli")))
    again, model = IterateAverage(1, tmp_path / "file.npz"), machine("bernoulli")
    again(SimpleNamespace(epoch=3, model=model))
    assert again.n_averaged == 1
    np.testing.assert_array_equal(again.model.weights, model.weights)


def test_files_that_do_not_serve_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder"):
        IterateAverage(path=tmp_path / "nowhere" / "file.npz")
    model = machine("bernoulli")
    model.save(tmp_path / "model.npz")
    average = IterateAverage(path=tmp_path / "model.npz")
    with pytest.raises(ValueError, match="not a file of IterateAverage"):
        average(SimpleNamespace(epoch=2, model=model))


def test_the_model_of_a_run_that_has_ended_is_in_the_file(tmp_path):
    expected = resumable(tmp_path, 5)
    found = resumable(tmp_path, 5)  # has nothing to do
    assert found.model.weights.dtype == np.float32
    np.testing.assert_array_equal(found.model.weights, expected.model.weights)
    assert found.n_averaged == expected.n_averaged == 3
    # Training that begins at the first epoch does not use it.
    again = IterateAverage(2, tmp_path / "average.npz")
    again(SimpleNamespace(epoch=1, model=machine("bernoulli")))
    assert again.model is None and again.n_averaged == 0


@pytest.mark.parametrize("name", ["position", "dtype", "model", "weights"])
@pytest.mark.parametrize(
    "altered",
    [None, np.array([{}], object), np.array(["x" * 10**4]), np.array([-1, 2]), np.full(2, np.nan)],
    ids=["lacking", "object", "text", "negative", "NaN"],
)
def test_members_that_are_none_of_an_average(tmp_path, name, altered):
    average, path = IterateAverage(1, tmp_path / "average.npz"), tmp_path / "average.npz"
    average(SimpleNamespace(model=machine("bernoulli"), epoch=1))
    with np.load(path) as file:
        members = dict(file) | {name: altered}
    np.savez(path, **{k: v for k, v in members.items() if v is not None})
    with pytest.raises((ValueError, LookupError), match=r"average\.npz") as caught:
        IterateAverage(1, path).model
    assert name in str(caught.value) or name == "model"
    assert "\n" not in str(caught.value) and len(str(caught.value)) < len(str(path)) + 300
