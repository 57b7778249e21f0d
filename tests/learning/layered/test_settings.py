import numpy as np
import pytest

from fastmf.learning.layered.settings import LayeredSettings


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
        LayeredSettings(**{"starts": "noise", option: value})
