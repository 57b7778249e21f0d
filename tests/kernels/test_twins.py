"""Every kernel does what its NumPy twin does, whoever shares the work."""

import ast
import re
from pathlib import Path

import forks
import numpy as np
import pytest
from kernel_cases import CASES, Size, case

import fastmf
from fastmf._outcomes import CONVERGED, CYCLING, WINDOW_SWEEPS

# Decorator of a function that can be called from Python.
PUBLIC_KERNEL = r"kernel(?!.*\bmode=.(inner|inline|merged|by_address))"

PACKAGE = Path(fastmf.__file__).parent
TESTS = Path(__file__).parents[1]

# More units than one panel or block holds, in no round numbers, and rows enough to be refilled.
SMALL = Size(60, 31, 6)

# Kernels whose work is not shared by threads, nor divided into rows.
WITHOUT_ROWS = {"ep.sites.visit_block"}


with_rows = pytest.mark.parametrize(
    "the_case", [c for c in CASES if c.kernel not in WITHOUT_ROWS], ids=str
)
# Kernels in whose results all rows take part.
TOGETHER = {
    "mean_field.tap.greedy_colours",
    "sampling.effective_couplings.effective_couplings",
    "pseudo_likelihood.hamming.count_similar",
    "pseudo_likelihood.hamming.spanning_trees",
    "pseudo_likelihood.potts.value_and_gradient",
    "training.ascent.ascend",
}
with_types = pytest.mark.parametrize(
    "the_case, dtype", [(c, dtype) for c in CASES for dtype in c.dtypes], ids=str
)


def run(which, the_case, dtype="float64", n_workers=1, **options):
    arguments = the_case.build(SMALL, dtype, **options)
    the_case.run(which, arguments, n_workers)
    return the_case.filled(arguments)


@with_types
def test_kernel_and_twin_agree(the_case, dtype):
    compiled, plain = (the_case.build(SMALL, dtype) for _ in range(2))
    the_case.run("compiled", compiled)
    the_case.run("twin", plain)
    the_case.assert_close(compiled, plain, dtype)


@with_rows
def test_neither_workers_nor_company_matter(the_case):
    one = run("compiled", the_case)
    for n_workers in (2, 5):
        many = run("compiled", the_case, n_workers=n_workers)
        for name in one:
            np.testing.assert_array_equal(many[name], one[name], err_msg=name)
    if the_case.kernel not in TOGETHER:
        for rows in ([0], [0, 1, 2, 3], [4, 1, 5])[: 3 if the_case.any_rows else 2]:
            alone = run("compiled", the_case, rows=rows)
            for name in one:
                np.testing.assert_array_equal(alone[name], one[name][rows], err_msg=name)


def test_the_cases_are_what_their_names_say():
    """Cases that never damp, accelerate, cycle or save sweeps would compare nothing."""
    found = {
        name: run("compiled", case(f"mean_field.tap.tap-{name}"))
        for name in (
            "blocked",
            "accelerated",
            "oscillating",
            "fully_visible_cycling",
            "fully_visible_oscillating",
        )
    }
    assert (found["blocked"]["status"] == CONVERGED).all()
    assert (found["fully_visible_cycling"]["status"] == CYCLING).all()
    for name in ("oscillating", "fully_visible_oscillating"):
        assert (found[name]["n_iter"] > WINDOW_SWEEPS).all()
        assert (found[name]["status"] == CONVERGED).any()
    assert found["accelerated"]["n_iter"].sum() < 0.9 * found["blocked"]["n_iter"].sum()
    assert len(np.unique(found["blocked"]["mean"].round(3), axis=0)) > 1


def public_kernels(package):
    """ "file.function" of every kernel that can be called from outside."""
    for path in sorted((package / "kernels").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            decorators = [ast.unparse(d) for d in getattr(node, "decorator_list", ())]
            if any(re.match(PUBLIC_KERNEL, d) for d in decorators):
                yield f"{path.parent.name}.{path.stem}.{node.name}"


def test_every_kernel_has_a_case():
    kernels = set(public_kernels(PACKAGE))
    assert kernels == {the_case.kernel for the_case in CASES}
    assert kernels == {the_case.kernel for the_case in CASES if the_case.large}  # and is timed
    assert "mean_field.tap.tap" in kernels


def test_asv_times_every_large_case():
    source = (TESTS.parent / "asv_bench" / "benchmarks" / "kernels.py").read_text(encoding="utf-8")
    names = next(
        ast.literal_eval(node.value)  # a literal: the same at commits that lack some kernels
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NAMES"
    )
    assert sorted(names) == sorted(str(the_case) for the_case in CASES if the_case.large)


@pytest.mark.parametrize("without_compiler", ["1", pytest.param("0", marks=pytest.mark.slow)])
def test_fresh_processes_do_the_same(tmp_path, without_compiler):
    """Kernels that are not decorated, and kernels that were compiled by another process."""
    names = [
        "mean_field.tap.tap-third_order",
        "mean_field.tap.tap-groups",
        "mean_field.tap.log_partitions-groups",
        "ep.sites.tilt_sites-spike_and_slab",
        "sampling.annealing.anneal_layers-mixed",
        "bp.belief_propagation.belief_propagation-sum",
        "pseudo_likelihood.hamming.spanning_trees-forests",
        "pseudo_likelihood.potts.value_and_gradient-proteins",
    ]
    size = Size(14, 9, 2)
    forks.fresh("-m", "kernel_cases", tmp_path / "plain.npz", ",".join(map(str, size)), *names,
                NUMBA_DISABLE_JIT=without_compiler)  # fmt: skip
    with np.load(tmp_path / "plain.npz") as plain:
        for name in names:
            arguments = case(name).build(size, "float64")
            case(name).compiled(*arguments)
            for key, compiled in case(name).filled(arguments).items():
                np.testing.assert_allclose(compiled, plain[f"{name}/{key}"], 1e-7, 1e-9)
