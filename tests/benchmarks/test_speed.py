"""Every large case on the clock, kernel beside twin: `pytest -m slow tests/benchmarks`."""

import pytest
from kernel_cases import CASES, Size

pytest.importorskip("pytest_benchmark")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("which", ["compiled", "twin"])
@pytest.mark.parametrize("the_case", [c for c in CASES if c.large], ids=str)
def test_speed(benchmark, the_case, which):
    size = Size(784, 100, 100)
    the_case.run(which, the_case.build(Size(20, 10, 2), "float32"))  # compile
    benchmark.group = str(the_case)
    benchmark.pedantic(
        the_case.run,
        setup=lambda: ((which, the_case.build(size, "float32"), 2), {}),
        rounds=5,
    )
