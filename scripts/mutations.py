"""Change one term of an equation by 10 %, and print the first test that notices it.

The tests of public names run against a copy of the package, one mutation at a time; comparisons
of kernels with their twins are left out. One mutation takes some seconds to minutes:

    python scripts/mutations.py [WORD ...]

Words choose mutations whose names contain one of them.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BP, TAP = "inference/bp/test_belief_propagation.py", "inference/mean_field/test_tap.py"
RELAXED = "inference/mean_field/test_relaxed_bp.py"
PL, EP = "learning/pseudo_likelihood", "inference/ep/test_expectation_propagation.py"
# Name, file of the package, text, text in its place, and tests.
MUTATIONS = (
    ("Onsager term of TAP", "kernels/mean_field/units.py",
     "a[i] = -variance[i]", "a[i] = -variance[i] - variance[i] / np.float32(10)", TAP),
    ("free energy of TAP, pair term", "kernels/mean_field/units.py",
     "a[i] * v / 4", "a[i] * v / 4.4", TAP),
    ("Bethe terms of relaxed BP", "kernels/mean_field/relaxed_bp.py",
     "0.5 * (n_source", "0.55 * (n_source", RELAXED),
    ("sum-product message", "kernels/bp/messages.py",
     "above, below = (t + e[j] * p[j])", "above, below = (t + 1.1 * e[j] * p[j])", BP),
    ("gradient of RBMs, data term", "learning/layered/gradients.py",
     "(*pair, 1) for", "(*pair, 1.1) for",
     "learning/layered/test_gradients.py"),
    ("gradient of RBMs, Onsager term", "learning/layered/gradients.py",
     "pairwise(second)", "pairwise([1.1 * x for x in second])",
     "learning/layered/test_gradients.py"),
    ("momentum", "kernels/training/ascent.py",
     "change = momentum *", "change = dtype(0.9) * momentum *", "learning/training"),
    ("weight decay", "kernels/training/ascent.py",
     "decay * weights[j]", "1.1 * decay * weights[j]", "learning/training"),
    ("gradient of conditional RBMs", "learning/conditional.py",
     "if pairs is None else pairs", "if pairs is None else 1.1 * pairs",
     "learning/test_conditional.py"),
    ("gradient of binary pseudo-likelihood", f"{PL}/fit.py",
     "packed(couplings + couplings", "packed(1.1 * couplings + couplings", f"{PL}/binary"),
    ("gradient of ordinal pseudo-likelihood", f"{PL}/fit.py",
     "packed(couplings + couplings", "packed(1.1 * couplings + couplings", f"{PL}/ordinal"),
    ("gradient of Potts pseudo-likelihood", "kernels/pseudo_likelihood/potts.py",
     "out[a] + gradient[a]", "out[a] + 1.1 * gradient[a]", f"{PL}/potts"),
    ("sandwich covariance", f"{PL}/godambe.py",
     "return inverse @ scores @", "return 1.1 * inverse @ scores @", f"{PL}/test_godambe.py"),
    ("site of expectation propagation", "kernels/ep/sites.py",
     "(mean * precision - c1)", "(mean * precision - 1.1 * c1)", EP),
    ("evidence of expectation propagation", "inference/ep/sites.py",
     "marginals - units -", "marginals - 1.1 * units -", EP),
    ("gradient of the evidence", "learning/evidence/__init__.py",
     "- model.total_rows) / 2", "- 1.1 * model.total_rows) / 2",
     "learning/evidence/test_evidence.py"),
    ("weights of annealed importance sampling", "kernels/sampling/layers.py",
     "before - (new - old) * linear", "before - 1.1 * (new - old) * linear",
     "evaluation/test_annealed.py"),
)  # fmt: skip


def first_failure(file, text, other, tests):
    """The name of the first test that fails after a mutation, None if none does."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("fastmf", "tests", "scripts", "docs"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, Path(folder) / name, ignore=ignored)
        for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md"):
            shutil.copy(ROOT / name, folder)
        path = Path(folder) / "fastmf" / file
        source = path.read_text(encoding="utf-8")
        if text not in source:
            raise ValueError(f"{file} has no {text!r}.")
        path.write_text(source.replace(text, other), encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": folder, "NUMBA_CACHE_DIR": f"{folder}/cache"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", f"tests/{tests}"]
        run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if run.returncode == 0:
            return None
        failure = re.search(r"^FAILED (\S+)", run.stdout, re.MULTILINE)
        if failure is None:
            raise RuntimeError(run.stdout[-2000:] + run.stderr[-2000:])
        return failure[1]


def main(words):
    """Print a row of a table for each mutation."""
    print("| term | noticed by |\n|---|---|", flush=True)
    for name, *mutation in MUTATIONS:
        if not words or any(word in name for word in words):
            print(f"| {name} | {first_failure(*mutation) or '**no test**'} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
