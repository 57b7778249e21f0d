import json
import time
from typing import NamedTuple

import numpy as np
import pytest
from kernel_cases import Size
from kernel_cases.moments import MOMENTS

from fastmf.priors import _compiled


class Sleeper(NamedTuple):
    """A case whose kernel computes for one unit of time, its twin for several."""

    factor: int
    dtypes: tuple = ("float64",)

    def build(self, size, dtype):
        return size

    def run(self, which, size):
        if size.n_rows < 10:  # what compiles is not counted
            return
        end = time.process_time() + 0.01 * (1 if which == "compiled" else self.factor)
        while time.process_time() < end:
            pass

    def __str__(self):
        return f"sleeper-{self.factor}"


def test_kernel_and_twin_are_timed_and_printed_one_by_one(load, monkeypatch, capsys, tmp_path):
    script = load("kernel_ratios")
    monkeypatch.setattr(script, "TIMED", [Sleeper(3), Sleeper(1)])
    script.main(["--write", str(tmp_path / "r.json")])
    found = json.loads((tmp_path / "r.json").read_text())
    kernel, twin = found["sleeper-3 float64"]
    assert 10 <= kernel < 15 and twin / kernel == pytest.approx(3, rel=0.2)
    _head, three, _one = capsys.readouterr().out.splitlines()
    assert three.startswith("sleeper-3") and "float64" in three


@pytest.mark.parametrize("the_case", MOMENTS, ids=str)
def test_twins_of_moments_call_no_kernels(the_case, monkeypatch):
    # With as many units the public method calls kernels, which would be timed beside themselves.
    size = Size(784, 1, _compiled.TASK_UNITS // 784 + 1)
    arguments = the_case.build(size, "float64")
    compiled = the_case.build(size, "float64")
    the_case.run("compiled", compiled)
    monkeypatch.delattr(_compiled, "in_parallel")
    the_case.run("twin", arguments)
    for k in (4, 5):
        np.testing.assert_allclose(arguments[k], compiled[k], rtol=1e-10, atol=1e-13)
