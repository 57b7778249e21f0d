"""The Gaussian side by the Woodbury identity, against that with a full matrix."""

import numpy as np
import pytest
from kernel_cases.gaussian_sides import agree, linear, sites

from fastmf.inference.gaussian import low_rank as module


@pytest.mark.parametrize(
    "low", [(), ((3, -0.05),), ((0, -0.04), (50, 0.0), (89, 1e-9), (30, -0.02))]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_low_rank_is_dense(monkeypatch, low, dtype):
    monkeypatch.setattr(
        module, "ENTRIES_AT_A_TIME", 20 * 64
    )  # several chunks, the last one shorter
    low_rank, dense = linear(20, 90, dtype)
    agree(low_rank.moments(sites(90, low)), dense.moments(sites(90, low)), 1e-8)
