"""Many steps in one call of a kernel are the same steps one by one."""

import weakref

import numpy as np
import pytest
from both_paths import (
    ONE_BY_ONE,
    RUN,
    assert_equal,
    assert_resumes,
    every_gradient,
    random_machine,
    states_by_threads,
)
from scipy.sparse import csr_array
from stripes import start, stripes

from fastmf.learning.layered.compiled_steps import CompiledSteps
from fastmf.learning.layered.family import LAYERED_FAMILY, train
from fastmf.learning.layered.settings import LayeredSettings


@pytest.mark.parametrize("preconditioning", [None, 0.1])
@every_gradient
def test_they_are_those_of_the_general_path(options, preconditioning):
    if options.get("centred", True):
        options = options | {"preconditioning": preconditioning}
    # The last batch of an epoch has fewer rows than the others.
    X, settings = stripes()[:33], LayeredSettings(**RUN | options)
    found = train(start(), X, settings, seed=1)
    expected = train(start(), X, settings, seed=1, family=ONE_BY_ONE)
    assert_equal(found, expected, rtol=1e-9, atol=1e-12)
    assert found.history.keys() == expected.history.keys()


@pytest.mark.parametrize("options", [{}, {"gradient": "pcd"}, {"preconditioning": 0.2}], ids=str)
def test_they_are_those_of_the_general_path_in_single_precision(options):
    X, model = np.random.default_rng(2).integers(0, 2, (33, 40)), random_machine(40, 9, "f4")
    settings = LayeredSettings(**RUN | options)
    found = train(model, X.astype("f4"), settings, seed=1)
    expected = train(model, X.astype("f4"), settings, seed=1, family=ONE_BY_ONE)
    assert_equal(found, expected, rtol=1e-3, atol=1e-5)
    assert {w.dtype for w in found.model.couplings} == {np.dtype("f4")}


@pytest.mark.parametrize("make", [np.asarray, csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("gradient", ["tap", "pcd"])
def test_the_number_of_threads_does_not_matter(gradient, make):
    model = random_machine(300, 90, "float32")
    rng = np.random.default_rng(0)
    X = make((rng.random((200, 300)) < 0.3).astype(np.float32))
    settings = LayeredSettings(gradient=gradient, batch_size=60)
    rows = np.stack([rng.permutation(200)[:60] for _ in range(20)])
    states = states_by_threads(model, X, settings, rows, 0.05)
    assert abs(states[0].model.weights - model.weights).max() > 0.01
    for state in states[1:]:
        assert_equal(state, states[0], rtol=0, atol=0)


@pytest.mark.parametrize("gradient", ["tap", "pcd"])
def test_a_run_goes_on_from_a_checkpoint_as_if_nothing_had_happened(gradient, tmp_path):
    settings = LayeredSettings(**RUN, gradient=gradient)
    assert_resumes(start(), stripes()[:33], settings, tmp_path, epoch=2)


@pytest.mark.parametrize("gradient", ["tap", "pcd"])
def test_their_memory_is_freed_with_them(gradient):
    model, X = random_machine(20, 5, "f8"), np.zeros((12, 20))
    taken = CompiledSteps(model, X, LayeredSettings(gradient=gradient), 6, 6)
    found = weakref.ref(taken), weakref.ref(taken.phases[2])
    del taken
    assert [ref() for ref in found] == [None, None]


def test_a_callback_may_replace_the_model():
    settings = LayeredSettings(**RUN)
    other = random_machine(*start().weights.shape, "float64")

    def replace(state):
        state.model = other

    runs = [
        train(start(), stripes(), settings, seed=0, callbacks=[replace], family=family)
        for family in (LAYERED_FAMILY, ONE_BY_ONE)
    ]
    assert runs[0].model is runs[1].model is other


def test_they_stop_where_learning_diverges():
    settings = LayeredSettings(**RUN | {"learning_rate": 1e12})
    with pytest.raises(FloatingPointError, match="smaller learning_rate"):
        train(start(), stripes(), settings, seed=0)
