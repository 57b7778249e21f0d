"""What tests of mean field share."""

import pytest


@pytest.fixture
def no_exact_sums(monkeypatch):
    """Small machines are checked as large ones are, which exact sums would decide first."""
    for name in ("MAX_NUMBERS", "MAX_ENTRIES"):
        monkeypatch.setattr(f"fastmf.inference.mean_field.exact_check.{name}", 0)
