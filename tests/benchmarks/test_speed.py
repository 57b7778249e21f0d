"""Every large case on the clock: small ones beside their twins, real sizes with -m slow.

`python -m pytest tests/benchmarks -m slow -k reference` compares ratios kernel : twin with those in
`asv_bench/reference.json`, which `make bench` measures.
"""

import json
import time
from pathlib import Path

import pytest
from kernel_cases import CASES, Size
from kernel_cases.moments import MOMENTS

pytest.importorskip("pytest_benchmark")

LARGE = pytest.mark.parametrize("the_case", [c for c in CASES if c.large], ids=str)
REFERENCE = Path(__file__).parents[2] / "asv_bench" / "reference.json"
# A kernel that takes so many times as long beside its twin as in the reference has become slow;
# less is the difference between two machines.
FACTOR = 3.0
# Milliseconds below which ratios are those of calls, not of kernels.
SHORTEST = 0.05


def timed(benchmark, the_case, which, size, dtype, rounds=5):
    """Arguments after the last of several runs, each on fresh ones."""
    last = []

    def setup():
        last[:] = [the_case.build(size, dtype)]
        return (which, *last), {}

    the_case.run(which, the_case.build(Size(20, 10, 4), dtype))  # compiles
    benchmark.group = str(the_case)
    benchmark.pedantic(the_case.run, setup=setup, rounds=rounds)
    return last[0]


@LARGE
def test_small_and_right(benchmark, the_case):
    size = Size(60, 31, 9)
    found = timed(benchmark, the_case, "compiled", size, "float64")
    expected = the_case.build(size, "float64")
    the_case.run("twin", expected)
    the_case.assert_close(found, expected, "float64")


@pytest.mark.slow
@LARGE
@pytest.mark.parametrize("which", ["compiled", "twin"])
def test_real_sizes(benchmark, the_case, which):
    timed(benchmark, the_case, which, Size(784, 100, 100), "float32")


def _with_reference():
    """Cases and types whose times stand in the reference."""
    known = json.loads(REFERENCE.read_text())
    return [
        pytest.param(case, dtype, known[f"{case} {dtype}"], id=f"{case}-{dtype}")
        for case in [*CASES, *MOMENTS]
        for dtype in case.dtypes
        if f"{case} {dtype}" in known
    ]


@pytest.mark.slow
@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("the_case, dtype, reference", _with_reference())
def test_ratio_of_the_reference(benchmark, the_case, dtype, reference):
    size, twin = Size(784, 500, 100), []
    timed(benchmark, the_case, "compiled", size, dtype, rounds=3)
    for _ in range(3):
        arguments = the_case.build(size, dtype)
        start = time.process_time()
        the_case.run("twin", arguments)
        twin.append(time.process_time() - start)
        if twin[-1] > 1:
            break
    ratio = benchmark.stats.stats.min / min(twin)
    benchmark.extra_info["kernel : twin"] = ratio
    if min(reference) < SHORTEST:
        pytest.skip("too short a time")
    assert ratio < FACTOR * reference[0] / reference[1]
