import numpy as np
import pytest

from fastmf.learning.training.settings import AscentSettings, learning_rate


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (0.1, [0.1, 0.1, 0.1]),
        ((0.1, 0.001), [0.1, 0.01, 0.001]),
        ([0.1, 0.2, "linear"], [0.1, 0.15, 0.2]),
        ((0.2, 0.0, "linear"), [0.2, 0.1, 0.0]),
        ((0.2, 0.0), [0.2, 0.1, 0.0]),  # no geometric sequence ends there
        ((0.0, 0.2), [0.0, 0.1, 0.2]),
        (lambda epoch: 1 / (1 + epoch), [1, 1 / 2, 1 / 3]),
    ],
)
def test_rates(spec, expected):
    settings = AscentSettings(learning_rate=spec, n_epochs=3)
    np.testing.assert_allclose([learning_rate(settings, epoch) for epoch in range(3)], expected)


def test_rate_of_a_single_epoch_is_the_first():
    assert learning_rate(AscentSettings(learning_rate=(0.1, 0.01), n_epochs=1), 0) == 0.1
