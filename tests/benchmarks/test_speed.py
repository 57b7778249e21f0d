"""Every large case on the clock: small ones beside their twins, real sizes with -m slow."""

import pytest
from kernel_cases import CASES, Size

pytest.importorskip("pytest_benchmark")

LARGE = pytest.mark.parametrize("the_case", [c for c in CASES if c.large], ids=str)


def timed(benchmark, the_case, which, size, dtype):
    """Arguments after the last of five runs, each on fresh ones."""
    last = []

    def setup():
        last[:] = [the_case.build(size, dtype)]
        return (which, *last), {}

    the_case.run(which, the_case.build(Size(20, 10, 4), dtype))  # compiles
    benchmark.group = str(the_case)
    benchmark.pedantic(the_case.run, setup=setup, rounds=5)
    return last[0]


@LARGE
def test_small_and_right(benchmark, the_case):
    size = Size(60, 31, 9)
    found = timed(benchmark, the_case, "compiled", size, "float64")
    expected = the_case.build(size, "float64")
    if the_case.has_twin:
        the_case.run("twin", expected)
        the_case.assert_close(found, expected, "float64")


@pytest.mark.slow
@LARGE
@pytest.mark.parametrize("which", ["compiled", "twin"])
def test_real_sizes(benchmark, the_case, which):
    if which == "twin" and not the_case.has_twin:
        pytest.skip("its twin is the general path of learning")
    timed(benchmark, the_case, which, Size(784, 100, 100), "float32")
