"""Models of the UAI competitions: exact sums, belief propagation and bounds beside known answers.

The folder has files NAME.uai or NAME.uai.gz, and beside each NAME.uai.evid and known answers in
NAME.uai.PR, .MAR or .MAP; by default it is the folder uai of FASTMF_DATA. Each line is one model:
distances to the answers, and CPU seconds.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

import experiment
import numpy as np

import fastmf as mf

HEADERS = {
    "sums": "model units edges exact exact_marginals exact_seconds one_start marginals reliable "
    "seconds lower upper bounds_seconds",
    "states": "model units edges exact_mode exact_seconds max_product seconds",
}
ERRORS = ValueError, TypeError, MemoryError


class Instance:
    """A model with evidence and known answers; its line of the table, and what was refused."""

    def __init__(self, path, refused):
        evidence = Path(f"{path}.evid")
        self.uai = mf.datasets.load_uai(file_of(path), evidence if evidence.exists() else None)
        self.model, self.refused, self.answers = self.uai.model, refused, {}
        for kind in ("PR", "MAR", "MAP"):
            with suppress(FileNotFoundError):
                self.answers[kind] = Path(f"{path}.{kind}").read_text().split()[1:]
        groups = self.model.prior
        unit = np.repeat(np.arange(groups.n_groups), groups.sizes)
        pairs = np.stack([unit[part] for part in self.model.couplings.nonzero()], 1)
        n_edges = len(np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0))
        name = path.name.removesuffix(".uai")
        self.line = {"model": name, "units": groups.n_groups, "edges": n_edges}

    def solve(self, column, function, **options):
        """The result of a function, None if it refuses; its seconds go into a column."""
        start = time.process_time()
        try:
            return function(self.model, clamp=self.uai.clamp, **options)
        except ERRORS as error:
            self.refused.append(f"{self.line['model']}: {function.__name__}: {error!s:.200}")
        finally:
            self.line[column] = time.process_time() - start

    def marginals(self):
        """The known marginals: of each variable the number of states, and their probabilities."""
        sizes = self.model.prior.sizes
        numbers = np.array(self.answers["MAR"][-(sizes.sum() + len(sizes)) :], float)
        return np.delete(numbers, np.cumsum(sizes + 1) - sizes - 1)

    def sums(self):
        """Compare log-partitions and marginals with the known ones."""
        log_z = np.nan
        if "PR" in self.answers:
            log_z = float(self.answers["PR"][-1]) * np.log(10) - self.uai.log_factor
        exact = self.solve("exact_seconds", mf.exact)
        beliefs = self.solve("seconds", mf.belief_propagation)
        for result, value, marginals in (
            (exact, "exact", "exact_marginals"), (beliefs, "one_start", "marginals"),
        ):  # fmt: skip
            if result is not None:
                self.line[value] = result.log_partition - log_z
                if "MAR" in self.answers:
                    difference = np.asarray(result.mean) - self.marginals()
                    self.line[marginals] = float(abs(difference).mean())
        if beliefs is not None:
            reliable = bool(beliefs.reliable) if beliefs.converged else "not converged"
            self.line["reliable"] = reliable
        if bounds := self.solve("bounds_seconds", mf.log_partition_bounds):
            self.line |= {"lower": bounds.lower - log_z, "upper": bounds.upper - log_z}

    def states(self):
        """Compare the most probable state with the known one."""
        state = np.array(self.answers["MAP"][-self.model.prior.n_groups :], int)
        best = -float(self.model.energy(state))
        if exact := self.solve("exact_seconds", mf.exact, averages=False, mode=True):
            self.line["exact_mode"] = -float(self.model.energy(exact.mode)) - best
        if beliefs := self.solve("seconds", mf.most_probable):
            self.line["max_product"] = float(beliefs.objective) - best


def file_of(path):
    """The file of a model, which may be compressed."""
    return path if path.exists() else path.with_name(f"{path.name}.gz")


def cell(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main(argv=None):
    parser = experiment.Parser(__doc__, quick={})
    folder = os.path.join(os.environ.get("FASTMF_DATA", "."), "uai")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(folder))
    options = parser.parse_args(argv)
    folder = options.folder
    files = [*folder.glob("*.uai"), *folder.glob("*.uai.gz")]
    paths = sorted({path.with_name(path.name.removesuffix(".gz")) for path in files})
    if not paths:
        raise FileNotFoundError(f"{folder} has no files *.uai or *.uai.gz.")
    sizes = {path: file_of(path).stat().st_size for path in paths}
    lines, refused = {kind: [] for kind in HEADERS}, []
    for path in sorted(paths, key=sizes.get)[:3] if options.quick else paths:
        instance = Instance(path, refused)
        kind = "states" if "MAP" in instance.answers else "sums"
        getattr(instance, kind)()
        lines[kind].append(instance.line)
    for kind, header in HEADERS.items():
        names = header.split()
        if lines[kind]:
            print(experiment.head(*names))
        for line in lines[kind]:
            print(experiment.line(*(cell(line.get(name, "")) for name in names)))
    print("\n".join(refused))


if __name__ == "__main__":
    experiment.run(main)
