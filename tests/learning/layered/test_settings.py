import numpy as np
import pytest

from fastmf.learning.layered.settings import Settings, rate


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
    settings = Settings(learning_rate=spec, n_epochs=3)
    np.testing.assert_allclose([rate(settings, epoch) for epoch in range(3)], expected)


def test_rate_of_a_single_epoch_is_the_first():
    assert rate(Settings(learning_rate=(0.1, 0.01), n_epochs=1), 0) == 0.1


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("gradient", "newton", ValueError),
        ("starts", "zeros", ValueError),
        ("learning_rate", -0.1, ValueError),
        ("learning_rate", np.nan, ValueError),
        ("learning_rate", np.inf, ValueError),
        ("learning_rate", (0.1, -1), ValueError),
        ("learning_rate", (0.1, 0.2, "cubic"), ValueError),
        ("learning_rate", (0.1,), ValueError),
        ("learning_rate", "fast", TypeError),
        ("learning_rate", None, TypeError),
        ("momentum", 1.0, ValueError),
        ("momentum", True, TypeError),
        ("l2", -1, ValueError),
        ("l1", -1e-9, ValueError),
        ("n_epochs", -1, ValueError),
        ("n_epochs", 2.5, TypeError),
        ("batch_size", 0, ValueError),
        ("n_starts", 0, ValueError),
        ("n_sweeps", 0, ValueError),
        ("noise", 1.0, ValueError),
        ("patience", 0, ValueError),
        ("early_stopping", "yes", ValueError),
        ("monitor_rows", "all", TypeError),
    ],
)
def test_options_out_of_range(option, value, error):
    with pytest.raises(error, match=option):
        Settings(**{"starts": "noise", option: value})
