"""Compare the CPU time of each kernel with its NumPy twin, and with earlier measurements.

    python scripts/kernel_ratios.py                           # all kernels, both float types
    python scripts/kernel_ratios.py --only moments --write r.json
    python scripts/kernel_ratios.py --compare old.json new.json

One thread is used. Kernel and twin alternate, so that ratios are also valid on a busy machine, in
contrast to milliseconds.
"""

import json
import os
import time
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
from timing import parser  # noqa: E402

from kernel_cases import CASES, Size  # isort: skip  # noqa: E402  (found through timing)
from kernel_cases.moments import MOMENTS  # isort: skip  # noqa: E402

SIZE, TINY = Size(784, 500, 100), Size(20, 10, 4)
# Ratios kernel : twin that differ by less than this factor count as equal.
FACTOR = 1.4
TIMED = [case for case in [*CASES, *MOMENTS] if getattr(case, "large", True)]


def measure(case, dtype):
    """Return milliseconds of kernel and twin, the best of up to 30 alternating calls.

    Calls end after half a second, but at least three are made if they take at most three seconds.
    """
    best = {"compiled": np.inf, "twin": np.inf}
    for which in best:
        case.run(which, case.build(TINY, dtype))  # compiles
    begin = time.perf_counter()
    for k in range(30):
        for which in best:
            arguments = case.build(SIZE, dtype)  # a call changes its arguments
            start = time.process_time()
            case.run(which, arguments)
            best[which] = min(best[which], 1e3 * (time.process_time() - start))
        if time.perf_counter() - begin > (3.0 if k < 2 else 0.5):
            break
    return best["compiled"], best["twin"]


def measure_all(only=("",)):
    """Measure and print all cases with one of `only` in their names; return milliseconds."""
    print(f"{'kernel':64}{'type':9}{'ms':>10}{'NumPy':>10}{'faster':>9}", flush=True)
    milliseconds = {}
    for case in TIMED:
        for dtype in case.dtypes if any(text in str(case) for text in only) else ():
            try:
                kernel, twin = measure(case, dtype)
            except Exception as error:  # kernels of another version may have other arguments
                print(f"{case!s:64}{dtype:9}failed: {error!s:.40}", flush=True)
                continue
            milliseconds[f"{case} {dtype}"] = [float(f"{kernel:.3g}"), float(f"{twin:.3g}")]
            mark = "" if kernel <= twin else "  slower"
            print(f"{case!s:64}{dtype:9}{kernel:10.3f}{twin:10.3f}{twin / kernel:8.1f}x{mark}",
                  flush=True)  # fmt: skip
    return milliseconds


def changes(old, new, factor=FACTOR):
    """Return lines for the ratios kernel : twin that have changed by more than a factor."""
    lines = []
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            lines.append(f"{name:75}{'new' if name in new else 'gone'}")
            continue
        before, after = (times[name][0] / times[name][1] for times in (old, new))
        if not 1 / factor <= after / before <= factor:
            word = "slower" if after > before else "faster"
            lines.append(f"{name:75}{before:9.3f} ->{after:9.3f}  {word}")
    return lines


def main(argv=None):
    """Measure or compare, as told by the command line."""
    command_line = parser(__doc__)
    add = command_line.add_argument
    add("--only", nargs="+", default=[""], metavar="TEXT", help="kernels with TEXT in their name")
    add("--write", metavar="JSON", help="file to write")
    add("--compare", nargs=2, metavar=("OLD", "NEW"), help="print what changed")
    arguments = command_line.parse_args(argv)
    if arguments.compare:
        old, new = (json.loads(Path(path).read_text()) for path in arguments.compare)
        lines = changes(old, new)
        print("\n".join(lines) if lines else f"no ratio has changed by a factor of {FACTOR}")
        return
    milliseconds = measure_all(arguments.only)
    if arguments.write:
        Path(arguments.write).write_text(json.dumps(milliseconds, indent=0) + "\n")


if __name__ == "__main__":
    main()
