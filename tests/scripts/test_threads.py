import numpy as np
import pytest


def test_a_product_by_workers_is_that_of_numpy(load):
    kernels = load("experiments/_thread_kernels")
    kind = kernels.kinds()[0]
    rows, matrix, out = kind.arguments
    kernels.with_workers(kind)(2)
    np.testing.assert_allclose(out, rows @ matrix, rtol=1e-10, atol=1e-12)


def test_a_row_of_the_table_of_times(script):
    found = {"own workers": {"sums": [0.1, 7, 1, 2, 3, 4]}, "omp": {"sums": [0.5, 7, 2, 2, 4, 5]}}
    *_, own, loop = script.table_of_times(found)
    assert own == "| sums | own workers | 0.10 | 1.00 | 2.00 | 3.00 | 4.00 |"
    assert loop.startswith("| sums | `prange`, omp | 0.50 |")


def test_different_results_are_an_error(script):
    found = {"own workers": {"sums": [0.1, 7, 1]}, "omp": {"sums": [0.5, 8, 2]}}
    with pytest.raises(AssertionError, match="sums: the results differ"):
        list(script.table_of_times(found))


def test_milliseconds_are_those_of_a_call(script):
    assert 1.9 < script.milliseconds(lambda: script.time.sleep(0.002), 0.01) < 100


@pytest.mark.slow
def test_both_ways_have_the_same_results(script):
    found = {way: script.measured("times", way, 0.01) for way in (script.WORKERS, "workqueue")}
    assert len(list(script.table_of_times(found))) == 2 + 2 * 6
