"""The command `network`: network analysis of a table of items, reported as a page."""

import time
import warnings
from itertools import combinations
from pathlib import Path

import numpy as np

import fastmf
from fastmf._common.arguments import count
from fastmf._common.warning import listed, warn_user
from fastmf.cli import _options, _rows
from fastmf.cli._page import figure, paragraph, section, table, write_page
from fastmf.datasets.files import number_of, read_text

# Largest number of categories of an item.
_MAX_CATEGORIES = 20


def add_network(parser):
    """Add the options of `network` that are made from signatures."""
    defaults = {"missing": "drop", "l2": 0.0}
    _options.add_parameters(parser, fastmf.OrdinalMachine, defaults, **defaults)


def network(arguments):
    """Fit a network to a table of items, and write a report.

    examples:
      fastmf network symptoms.csv
          network.html: which items depend on each other given all other items, with uncertainty
      fastmf network symptoms.csv --group diagnosis --permutations 1000
          also compares the couplings of two or more groups of rows
      fastmf network answers.csv --missing em --output report.html
          sums over missing values

    TABLE is a .csv, .tsv or .txt file with a line of names and one row for each person; cells are
    separated by commas, semicolons or tabs; it may be compressed by gzip. Items with two values are
    binary, items with more values ordinal. Values may be numbers or strings; couplings refer to
    their scores 0, 1, 2, ...

    Options
    -------
    TABLE
        table of items, with a line of names
    -o, --output PAGE = network.html
        page to write; the table of edges is written to the same folder
    --group COLUMN
        column with the group of each row
    --weight COLUMN
        column of weights of the rows
    --cluster COLUMN
        column of groups that were sampled together
    --ignore COLUMN ...
        columns that are left out
    --bootstraps N = 0
        number of samples of rows for stability
    --permutations N = 0
        number of permutations for the comparison of groups
    --seed N = 0
        seed of the random numbers
    -q, --quiet
        do not show progress
    """
    output = Path(arguments.output)
    edges = output.with_suffix(".csv")
    _options.check_outputs([arguments.table], (output, (".html",)), (edges, (".csv",)))
    for name in ("bootstraps", "n_permutations"):
        count(name, getattr(arguments, name), 0)
    if arguments.n_permutations and arguments.group is None:
        raise ValueError("--permutations are of groups: name their column by --group.")
    if arguments.missing == "em" and (arguments.bootstraps or arguments.n_permutations):
        raise ValueError("--bootstraps and --permutations are of complete rows: --missing drop.")
    start = time.perf_counter()
    network = TableNetwork(arguments)
    write_page(output, "network", network.page())
    first, second = (np.array(network.items)[side] for side in network.pairs)
    _rows.write_columns(edges, {"first": first, "second": second} | network.columns())
    print(f"{output}, {edges}: {network.summary()}, {time.perf_counter() - start:.1f} s")


# --- the table ------------------------------------------------------------------------------------


def read_items(path):
    """Read the columns of a table as lists of strings by name; empty cells are None."""
    names, columns = read_text(path)
    if len(set(names)) < len(names) or "" in names:
        wrong = next(name for name in names if name == "" or names.count(name) > 1)
        times = " more than once" if wrong else ""
        raise ValueError(
            f"{path}: its first line must name all columns, each with its own name, got "
            f"{wrong!r}{times}."
        )
    rows = [row for row in zip(*columns, strict=True) if any(cell is not None for cell in row)]
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def _numbers(name, cells):
    """Convert the cells of a column to numbers."""
    numbers = [None if cell is None else number_of(cell) for cell in cells]
    if None in numbers:
        k = numbers.index(None)
        raise ValueError(
            f"column {name!r} must hold numbers, got {cells[k]!r} in row {k + 1} of the data."
        )
    return np.array(numbers)


def _groups(name, cells):
    """Return the cells of a column that defines groups of rows."""
    if None in cells:
        raise ValueError(f"column {name!r} must have no empty cells.")
    return np.array(cells)


def _scores(items, columns):
    """Return scores of items, (n_rows, n_items), NaN if empty, and the categories of each item."""
    if len(items) < 2:
        raise ValueError("a network needs at least two items.")
    scores, categories, items_of = [], [], {}
    for name in items:
        cells = columns[name]
        values = sorted({cell for cell in cells if cell is not None}, key=_order)
        if not 2 <= len(values) <= _MAX_CATEGORIES:
            raise ValueError(
                f"column {name!r} has {len(values)} different values, items have 2 to "
                f"{_MAX_CATEGORIES}: leave it out by --ignore, or bin it first."
            )
        _rows.check_case(name, [value for value in values if _order(value)[0]])
        place = {value: k for k, value in enumerate(values)} | {None: np.nan}
        scores.append([place[cell] for cell in cells])
        categories.append(values)
        items_of.setdefault(tuple(values), []).append(name)
    for values, names in items_of.items():
        _warn_of_order(names, values)
    return np.array(scores, float).T, categories


def _warn_of_order(names, values):
    """Warn if the order or the spacing of categories may not be the one of 0, 1, 2, ..."""
    columns = f"in column{'s' * (len(names) > 1)} {listed(names, 5, repr)}: {', '.join(values)}."
    if len(values) > 2 and _order(values[-1])[0]:
        warn_user(
            f"words are taken in alphabetical order, {columns} Write numbers where that is not "
            "theirs."
        )
    elif len(values) > 2:
        steps = np.diff([float(value) for value in values])
        if not np.allclose(steps, steps[0]):
            warn_user(
                f"numbers are not evenly spaced, {columns} Their scores are 0, 1, 2, ... in this "
                "order: leave cells empty where a number, such as 99, marks a missing value."
            )


def _order(text):
    """Return a sort key: numbers by value, followed by strings."""
    value = number_of(text)
    return value is None, value or 0.0, text


# --- the page -------------------------------------------------------------------------------------


class TableNetwork:
    """The network of a table, and its report."""

    def __init__(self, arguments):
        self.options, columns = arguments, read_items(arguments.table)
        roles = arguments.group, arguments.weight, arguments.cluster
        non_items = [*filter(None, roles), *arguments.ignore]
        for name in non_items:
            if name not in columns:
                raise ValueError(f"{arguments.table} has no column {name!r}: {', '.join(columns)}.")
        self.items = [name for name in columns if name not in non_items]
        self.groups, self.weights, self.clusters = (
            read(name, columns[name]) if name else None
            for read, name in zip((_groups, _numbers, _groups), roles, strict=True)
        )
        if self.groups is not None and (n := len(set(self.groups.tolist()))) > _MAX_CATEGORIES:
            raise ValueError(
                f"column {arguments.group!r} has {n} different values, groups are "
                f"{_MAX_CATEGORIES} at most: name another column by --group."
            )
        self.scores, self.categories = _scores(self.items, columns)
        self.pairs = np.triu_indices(len(self.items), 1)

    def page(self):
        """Fit the machine; return the values of the page."""
        options = self.options
        _options.say("fitting couplings of all pairs", options.quiet)
        machine = self.machine = self._fitted()
        kind = "ordinal" if isinstance(machine, fastmf.OrdinalMachine) else "binary"
        sizes = [
            ("rows", str(len(self.scores))),
            ("items", f"{len(self.items)}, {kind}"),
            ("couplings", str(len(self.pairs[0]))),
            ("empty cells", str(machine.n_missing_)),
            ("rows left out for them", str(machine.n_dropped_)),
        ]
        penalty = f"A ridge penalty of {options.l2:g} pulls couplings towards zero."
        _options.say("errors and probabilities of edges", options.quiet)
        self.edges = edges = machine.edge_inclusion()
        return {
            "table": Path(options.table).name,
            "version": fastmf.__version__,
            "p_zero": f"{1 - edges.inclusion_probability:.2g}",
            "scale": f"{edges.scale:g}",
            "penalty": paragraph(penalty) if options.l2 else "",
            "sizes": table((), sizes),
            "network": figure(fastmf.plotting.coupling_network(edges), "Network of the items"),
            "forest": figure(fastmf.plotting.edge_forest(machine), "Strongest couplings"),
            "edges": self._edges(),
            "items": self._nodes(),
            "stability": self._stability() if options.bootstraps else "",
            "groups": "" if self.groups is None else self._comparisons(),
        }

    def _fitted(self, rows=slice(None), whose=""):
        """Fit a machine to some rows, with the categories of all rows."""
        sizes = [len(values) for values in self.categories]
        options = {"l2": self.options.l2, "missing": self.options.missing}
        if max(sizes) == 2:
            machine = fastmf.FullyVisibleBoltzmannMachine(**options)
        else:
            machine = fastmf.OrdinalMachine(n_categories=sizes, l2_field=self.options.l2, **options)
        weights, clusters = (None if x is None else x[rows] for x in (self.weights, self.clusters))
        from sklearn.exceptions import ConvergenceWarning  # imported late to start quickly

        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            try:
                machine.fit(self.scores[rows], sample_weight=weights, clusters=clusters)
            except ConvergenceWarning as warning:
                text, units = str(warning).rstrip("."), machine.existence_.units
                named = f" (items {', '.join(self.items[i] for i in units[:20])})" if units else ""
                raise ValueError(f"{whose}{text}{named}: give --l2, such as 0.01.") from None
        machine.feature_names_in_ = np.array(self.items, object)
        return machine

    def columns(self):
        """Return means, deviations, intervals, probabilities and Bayes factors of all pairs."""
        lower, upper = self.edges.interval().T
        values = {"mean": self.edges.mean, "std": self.edges.std, "lower": lower, "upper": upper}
        values |= {name: getattr(self.edges, name) for name in ("probability", "log_bayes_factor")}
        return {name: x[self.pairs] for name, x in values.items()}

    def _edges(self):
        scales = (self.edges.sensitivity.probability[k][self.pairs] for k in (0, 2))
        mean, _, *columns = self.columns().values()
        rows = zip(self._pair_names(), mean, *columns, *scales, strict=True)
        header = (
            "pair", "mean", "lower", "upper", "probability", "log Bayes factor", "half the scale",
            "twice",
        )  # fmt: skip
        return table(header, sorted(rows, key=lambda row: -row[4]))

    def _pair_names(self):
        return [f"{self.items[i]} - {self.items[j]}" for i, j in zip(*self.pairs, strict=True)]

    def _nodes(self):
        strength, influence = self.machine.strength(), self.machine.expected_influence()
        shares = self.machine.predictability()
        columns = (
            strength.value, strength.standard_error, influence.value, influence.standard_error,
            shares.r2, shares.standard_error, shares.accuracy, shares.marginal_accuracy,
        )  # fmt: skip
        header = (
            "item", "strength", "error", "expected influence", "error", "R2", "error", "accuracy",
            "without others",
        )  # fmt: skip
        return table(header, list(zip(self.items, *columns, strict=True)))

    def _stability(self):
        options = self.options
        _options.say(f"{options.bootstraps} samples of fewer rows", options.quiet)
        result = self.machine.stability(
            options.bootstraps, rng=options.random_state, verbose=not options.quiet
        )
        rows = []
        for k in np.flatnonzero(result.converged.any(1)):
            exists, row = result.converged[k], [f"{result.dropped[k]:.0%}"]
            row.append(exists.mean())
            for values in (result.strength, result.expected_influence):
                row += [np.mean(values[k, exists]), np.quantile(values[k, exists], 0.05)]
            rows.append(row)
        header = "rows dropped", "with a maximum", "strength", "5%", "expected influence", "5%"
        coefficients = (
            f"Stability coefficients: strength {result.coefficient():.2g}, expected influence "
            f"{result.coefficient('expected_influence'):.2g}."
        )
        about = (
            "Correlations with the centralities of all rows when some are dropped, means and 5% "
            "quantiles of the samples that have a maximum, whose share is in the second column."
        )
        shown = paragraph(about), paragraph(coefficients), table(header, rows)
        return section("Stability", *shown)

    def _comparisons(self):
        _options.say("comparing groups", self.options.quiet)
        names = sorted(set(self.groups.tolist()))
        if len(names) < 2:
            raise ValueError("the column of --group must have at least two values.")
        machines = [self._fitted(self.groups == name, f"group {name}: ") for name in names]
        sections, header = [], ("pair", "difference", "error", "p-value", "probability")
        for a, b in combinations(range(len(names)), 2):
            result = fastmf.compare_groups(
                machines[a], machines[b], n_permutations=self.options.n_permutations,
                rng=self.options.random_state, verbose=not self.options.quiet,
            )  # fmt: skip
            sizes = [int((self.groups == names[k]).sum()) for k in (a, b)]
            omnibus = result.omnibus
            text = (
                f"{sizes[0]} and {sizes[1]} rows. Test that no coupling differs: chi-squared "
                f"{omnibus.statistic:.1f} with {omnibus.n_degrees} degrees of freedom, p = "
                f"{omnibus.p_value:.3g}."
            )
            if min(sizes) < 5 * omnibus.n_degrees:
                text += " With fewer than five rows a coupling it rejects too often."
            if (test := result.permutation) is not None:
                text += (
                    f" By {test.n} permutations: largest difference {test.largest:.2f} (p = "
                    f"{test.largest_p_value:.3g}), difference of all moduli {test.strength:.2f} "
                    f"(p = {test.strength_p_value:.3g})."
                )
            values = (result.difference, result.std, result.p_value, result.probability)
            rows = zip(self._pair_names(), *(x[self.pairs] for x in values), strict=True)
            differences = table(header, sorted(rows, key=lambda row: -row[4]))
            heading = f"Groups {names[a]} and {names[b]}"
            sections.append(section(heading, paragraph(text), differences))
        return sections

    def summary(self):
        """Return a line that summarises the network."""
        p = self.edges.probability[self.pairs]
        likely, unlikely = (p > 0.9).sum(), (p < 0.1).sum()
        return (
            f"{len(self.items)} items, {len(self.scores)} rows, {likely} of {len(p)} couplings "
            f"with a probability above 0.9, {unlikely} below 0.1"
        )
