"""Fixtures of tests of several schedules."""

import pytest

from fastmf.inference.ep import schedules


@pytest.fixture
def from_the_first_sites():
    """A function that leaves out the parallel steps before a descent, so that it is long."""

    def none(problem, state, *_, **__):
        return state, "", ""

    return lambda patch: patch.setattr(schedules, "parallel_sweeps", none)
