"""Models of the UAI competitions: exact sums, belief propagation and bounds beside known answers.

    python scripts/experiments/uai_instances.py FOLDER

FOLDER has files NAME.uai or NAME.uai.gz, and beside each NAME.uai.evid and known answers in
NAME.uai.PR, NAME.uai.MAR or NAME.uai.MAP; without a name it is the folder uai of FASTMF_DATA. Each
line is one model: how far ln Z and the marginals (mean over all states of absolute differences)
are from the answers, the bracket around ln Z less the answer, and seconds of CPU time. Belief
propagation runs from one start (algorithm="sum") and as it chooses (algorithm="auto"); `corrected`
has its loop correction added, and `method` is what it chose. Of models with a known state, how far
the logarithm of the weight of the best state found is above that of the known one. What a method
refuses is printed below the table. The first call of each method compiles.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from experiment import parser, run, table

import fastmf as mf

HEADER = (
    "model units edges exact_log_z exact_marginals exact_seconds one_start marginals reliable "
    "seconds auto corrected auto_marginals auto_reliable method auto_seconds lower upper "
    "bounds_seconds"
).split()
# Columns of each way to run belief propagation.
BELIEFS = {
    "sum": ("one_start", "marginals", "reliable", "seconds"),
    "auto": ("auto", "auto_marginals", "auto_reliable", "auto_seconds"),
}
MAP_HEADER = "model units edges exact_mode exact_seconds max_product seconds".split()


def answers(path):
    """The known results beside a model."""
    found = {}
    for kind in ("PR", "MAR", "MAP"):
        with suppress(FileNotFoundError):
            found[kind] = mf.datasets.read_uai_result(f"{path}.{kind}")
    return found


def timed(function, *arguments, **options):
    """The result of a function, or the error that it raises, and seconds."""
    start = time.process_time()
    try:
        found = function(*arguments, **options)
    except (ValueError, TypeError, MemoryError) as error:
        found = error
    return found, time.process_time() - start


def marginal_error(mean, marginals):
    """Mean absolute difference of all states."""
    return float(abs(np.asarray(mean) - np.concatenate(marginals)).mean())


def sums(name, uai, known, args, refused):
    """The line of a model whose log-partition or marginals are known."""
    model, clamp = uai.model, uai.clamp
    log_z = known["PR"].log_partition - uai.log_factor if "PR" in known else np.nan
    line = {"model": name, "units": model.prior.n_groups, "edges": n_edges(model)}
    exact, seconds = timed(mf.exact, model, clamp=clamp, max_bytes=args.max_bytes)
    line |= {"exact_seconds": seconds}
    note(line, "exact", exact, log_z, known, refused)
    for algorithm, columns in BELIEFS.items():
        bp, seconds = timed(mf.belief_propagation, model, algorithm=algorithm, clamp=clamp)
        value, marginals, reliable, used = columns
        line[used] = seconds
        note(line, algorithm, bp, log_z, known, refused, (value, marginals))
        if not isinstance(bp, Exception):
            line[reliable] = bool(bp.reliable) if bp.converged else "not converged"
            if algorithm == "auto":
                line["method"] = bp.method
                if bp.loop_correction is not None:
                    line["corrected"] = line[value] + float(bp.loop_correction)
    bounds, line["bounds_seconds"] = timed(mf.log_partition_bounds, model, clamp=clamp)
    if isinstance(bounds, Exception):
        refused.append(f"{name}: bounds: {bounds!s:.200}")
    else:
        line |= {"lower": bounds.lower - log_z, "upper": bounds.upper - log_z}
    return line


def note(line, method, found, log_z, known, refused, columns=None):
    """Write how far a result is from the answers, or why it was refused."""
    if isinstance(found, Exception):
        refused.append(f"{line['model']}: {method}: {found!s:.200}")
        return
    value, marginals = columns or (f"{method}_log_z", f"{method}_marginals")
    line[value] = found.log_partition - log_z
    if "MAR" in known:
        line[marginals] = marginal_error(found.mean, known["MAR"].marginals)


def states(name, uai, known, args, refused):
    """The line of a model of which a state of large weight is known."""
    model, clamp = uai.model, uai.clamp
    best = -float(model.energy(known["MAP"].state))
    line = {"model": name, "units": model.prior.n_groups, "edges": n_edges(model)}
    exact, seconds = timed(
        mf.exact, model, clamp=clamp, averages=False, mode=True, max_bytes=args.max_bytes
    )
    bp, bp_seconds = timed(mf.most_probable, model, clamp=clamp)
    line |= {"exact_seconds": seconds, "seconds": bp_seconds}
    if isinstance(exact, Exception):
        refused.append(f"{name}: exact: {exact!s:.200}")
    else:
        line["exact_mode"] = -float(model.energy(exact.mode)) - best
    if isinstance(bp, Exception):
        refused.append(f"{name}: belief_propagation: {bp!s:.200}")
    else:
        line["max_product"] = float(bp.objective) - best
    return line


def n_edges(model):
    """Number of pairs of coupled units."""
    unit = np.repeat(np.arange(model.prior.n_groups), model.prior.sizes)
    rows, columns = (unit[part] for part in model.couplings.nonzero())
    return len(np.unique(rows[rows < columns] * len(unit) + columns[rows < columns]))


def cell(value):
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def show(header, lines):
    """Print lines as a table of Markdown."""
    if lines:
        print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for line in lines:
        print("| " + " | ".join(cell(line.get(name)) for name in header) + " |", flush=True)


def main(argv=None):
    args = arguments(argv)
    folder = Path(args.folder)
    files = [*folder.glob("*.uai"), *folder.glob("*.uai.gz")]
    paths = sorted({path.with_name(path.name.removesuffix(".gz")) for path in files})
    if not paths:
        raise FileNotFoundError(f"{folder} has no files *.uai or *.uai.gz.")
    if args.quick:
        paths = sorted(paths, key=lambda path: file_of(path).stat().st_size)[:3]
    found, refused = {"sums": [], "states": []}, []
    for path in paths:
        name = path.name.removesuffix(".uai")
        if args.models and name not in args.models:
            continue
        model = file_of(path)
        evidence = Path(f"{path}.evid")
        uai = mf.datasets.load_uai(model, evidence if evidence.exists() else None)
        known = answers(path)
        kind, line = ("states", states) if "MAP" in known else ("sums", sums)
        found[kind].append(line(name, uai, known, args, refused))
    for kind, header in (("sums", HEADER), ("states", MAP_HEADER)):
        show(header, found[kind])
        print()
        if args.output:
            rows = [[line.get(name) for name in header] for line in found[kind]]
            table(f"{args.output}-{kind}.csv", header, rows)
    print("\n".join(refused))


def file_of(path):
    """The file of a model, which may be compressed."""
    return path if path.exists() else path.with_name(f"{path.name}.gz")


def arguments(argv=None):
    """The command line."""
    made = parser(__doc__)
    add = made.add_argument
    add("folder", nargs="?", default=os.path.join(os.environ.get("FASTMF_DATA", "."), "uai"))
    add("--models", nargs="*", metavar="NAME", help="these models only")
    add("--max-bytes", type=float, default=2**31, help="memory of exact sums [2^31]")
    add("--output", metavar="PREFIX", help="write PREFIX-sums.csv and PREFIX-states.csv")
    add("--quick", action="store_true", help="the three smallest files")
    return made.parse_args(argv)


if __name__ == "__main__":
    run(main)
