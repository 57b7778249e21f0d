import numpy as np
import pytest

from fastmf.learning.training.ascent import AscentSettings, learning_rate, learning_rates
from fastmf.learning.training.trainer import train


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (0.1, [0.1, 0.1, 0.1]),
        ((0.1, 0.001), [0.1, 0.01, 0.001]),
        ([0.1, 0.2, "linear"], [0.1, 0.15, 0.2]),
        # No geometric sequence ends at 0, and an epoch at that rate would be lost.
        ((0.3, 0.0, "linear"), [0.3, 0.2, 0.1]),
        ((0.3, 0.0), [0.3, 0.2, 0.1]),
        ((0.0, 0.2), [0.0, 0.1, 0.2]),
        (lambda epoch: 1 / (1 + epoch), [1, 1 / 2, 1 / 3]),
    ],
)
def test_rates(spec, expected):
    settings = AscentSettings(learning_rate=spec, n_epochs=3)
    np.testing.assert_allclose([learning_rate(settings, epoch) for epoch in range(3)], expected)


@pytest.mark.parametrize("spec", [(0.1, 0.001), (0.3, 0.1, "linear")])
def test_rates_change_with_every_step_up_to_the_last_epoch(spec):
    settings = AscentSettings(learning_rate=spec, n_epochs=3)
    rates = np.concatenate([learning_rates(settings, epoch, 4) for epoch in range(2)])
    steps = np.diff(rates) if len(spec) == 3 else np.diff(np.log(rates))
    np.testing.assert_allclose(steps, steps[0])
    assert rates[0] == spec[0] and abs(rates[4] - learning_rate(settings, 1)) < 1e-15
    np.testing.assert_allclose(learning_rates(settings, 2, 4), spec[1], rtol=1e-12)


@pytest.mark.parametrize("n_epochs", [1, 3])
def test_rates_reach_zero_after_the_last_step(n_epochs):
    settings = AscentSettings(learning_rate=(0.3, 0.0), n_epochs=n_epochs)
    rates = np.concatenate([learning_rates(settings, epoch, 4) for epoch in range(n_epochs)])
    np.testing.assert_allclose(rates, np.linspace(0.3, 0, 4 * n_epochs, endpoint=False))


def test_rates_that_are_functions_of_the_epoch_are_constant_in_it():
    called = []
    settings = AscentSettings(learning_rate=lambda epoch: called.append(epoch) or 0.1)
    called.clear()
    assert learning_rates(settings, 3, 5).tolist() == [0.1] * 5 and called == [3]


@pytest.mark.parametrize("callbacks", [print, [1], iter([print])])
def test_bad_callbacks(callbacks):
    with pytest.raises(TypeError, match="callbacks must be a sequence of functions"):
        train(None, None, None, callbacks=callbacks)
