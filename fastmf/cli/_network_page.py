"""The page of `fastmf network`: what is computed, and how it is written."""

import base64
import csv
import warnings
from html import escape
from io import BytesIO, StringIO

import numpy as np

import fastmf
from fastmf._common import html
from fastmf.cli.report import STYLE
from fastmf.models._io import replacing

# Digits of numbers in tables.
_DIGITS = 2
SENSITIVE = "Probabilities with half and twice the scale of couplings"


class Page:
    """Results about the network of a table, in sections.

    Parameters
    ----------
    title : str
    items : list of str
    options : argparse.Namespace
        Options of the command line.
    """

    def __init__(self, title, items, options):
        self.title, self.items, self.options = title, items, options
        self.sections, self.machine, self.edges = [], None, None

    def steps(self, table, special):
        """Tasks in order: texts and functions."""
        self.scores, self.categories = table
        self.special = special
        steps = [
            ("fitting couplings of all pairs", self._fit),
            ("errors and probabilities of edges", self._edges),
            ("centralities and predictability", self._nodes),
        ]
        if self.options.bootstraps:
            steps.append((f"{self.options.bootstraps} samples of fewer rows", self._stability))
        if "group" in special:
            steps.append(("comparing groups", self._groups))
        return steps

    def add(self, heading, text, table=None, figure=None):
        """A section: a text, a table (header, rows), and a figure of matplotlib."""
        self.sections.append((heading, text, table, figure))

    def _new_machine(self, rows=slice(None), whose=""):
        """A machine that was fitted to rows, with the categories of the whole table."""
        sizes = [len(known) for known in self.categories]
        penalties = {"l2": self.options.l2, "missing": self.options.missing}
        if max(sizes) == 2:
            machine = fastmf.FullyVisibleBoltzmannMachine(**penalties)
        else:
            machine = fastmf.OrdinalMachine(
                n_categories=sizes, l2_field=self.options.l2, **penalties
            )
        weights, clusters = (self.special.get(name) for name in ("weight", "cluster"))
        weights = None if weights is None else weights[rows]
        clusters = None if clusters is None else np.array(clusters)[rows]
        from sklearn.exceptions import ConvergenceWarning  # not before it is used

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

    # --- sections -------------------------------------------------------------------------------

    def _fit(self):
        self.machine = machine = self._new_machine()
        kind = "binary" if type(machine).__name__.startswith("Fully") else "ordinal"
        n_rows = len(self.scores)
        rows = [
            ("rows", str(n_rows)), ("items", f"{len(self.items)}, {kind}"),
            ("couplings", str(len(self.items) * (len(self.items) - 1) // 2)),
            ("empty cells", str(machine.n_missing_)),
            ("rows left out for them", str(machine.n_dropped_)),
        ]  # fmt: skip
        text = (
            "Items are coupled with each other, all pairs at once, by maximum pseudo-likelihood: a "
            "coupling says how two items go together given all others."
        )
        if self.options.l2:
            text += f" A ridge penalty of {self.options.l2:g} pulls couplings towards zero."
        self.add("Table", text, (("", ""), rows))

    def _edges(self):
        self.edges = found = self.machine.edge_inclusion()
        figure = fastmf.plotting.coupling_network(found)
        text = (
            "The wider a line, the stronger the coupling; the paler, the less sure that it is not "
            "zero. Before the data, each coupling is zero with probability "
            f"{1 - found.inclusion_probability:.2g}, and otherwise normal with a standard "
            f"deviation of {found.scale:g}."
        )
        self.add("Network", text, None, figure)
        text = "Estimates with 95% intervals by the sandwich formula, the 30 strongest at most."
        self.add("Couplings", text, None, fastmf.plotting.edge_forest(self.machine))
        rows = [
            (f"{row['first']} - {row['second']}", row["mean"], row["lower"], row["upper"],
             row["probability"], row["log_bayes_factor"], *row["scales"])
            for row in self._lines()
        ]  # fmt: skip
        rows.sort(key=lambda row: -row[4])
        header = (
            "pair", "mean", "lower", "upper", "probability", "log Bayes factor", "half the scale",
            "twice",
        )  # fmt: skip
        text = (
            "Posterior means and 95% intervals of couplings that may be zero, probabilities that "
            "they are not, and the evidence for that over none: negative where the data speak for "
            f"absence. {SENSITIVE} are in the last columns."
        )
        self.add("Edges", text, (header, rows))

    def _lines(self):
        """One dict for each pair of items."""
        found = self.edges
        interval = found.interval()
        for i, j in zip(*np.triu_indices(len(self.items), 1), strict=True):
            line = {"first": self.items[i], "second": self.items[j]}
            for name in ("mean", "std", "probability", "log_bayes_factor"):
                line[name] = float(getattr(found, name)[i, j])
            line["lower"], line["upper"] = map(float, interval[i, j])
            line["scales"] = [float(found.sensitivity.probability[k, i, j]) for k in (0, 2)]
            yield line

    def _nodes(self):
        strength, influence = self.machine.strength(), self.machine.expected_influence()
        known = self.machine.predictability()
        rows = [
            (name, strength.value[k], strength.standard_error[k], influence.value[k],
             influence.standard_error[k], known.r2[k], known.standard_error[k],
             known.accuracy[k], known.marginal_accuracy[k])
            for k, name in enumerate(self.items)
        ]  # fmt: skip
        header = (
            "item", "strength", "error", "expected influence", "error", "R2", "error", "accuracy",
            "without others",
        )  # fmt: skip
        text = (
            "Sums of the moduli and of the values of an item's couplings, and how well it is known "
            "from all others: the share of its variance that is explained, and how often its most "
            "probable value is right, beside that of its most frequent value."
        )
        self.add("Items", text, (header, rows))

    def _stability(self):
        found = self.machine.stability(
            self.options.bootstraps, rng=self.options.seed, verbose=not self.options.quiet
        )
        rows, of_both = [], (found.strength, found.expected_influence)
        for k in np.flatnonzero(found.converged.any(1)):
            exists = found.converged[k]
            figures = [(np.mean(r[k, exists]), np.quantile(r[k, exists], 0.05)) for r in of_both]
            rows.append((f"{found.dropped[k]:.0%}", exists.mean(), *figures[0], *figures[1]))
        header = "rows dropped", "with a maximum", "strength", "5%", "expected influence", "5%"
        text = (
            "Correlations with the centralities of all rows when some are dropped, means and 5% "
            "quantiles of the samples that have a maximum, whose share is in the second column. "
            f"Stability coefficients: strength {found.coefficient():.2g}, expected influence "
            f"{found.coefficient('expected_influence'):.2g}."
        )
        self.add("Stability", text, (header, rows))

    def _groups(self):
        groups = np.array(self.special["group"])
        names = sorted(set(groups.tolist()))
        if len(names) < 2:
            raise ValueError("the column of --group must have at least two values.")
        machines = [self._new_machine(groups == name, f"group {name}: ") for name in names]
        found = fastmf.compare_groups(
            *machines, n_permutations=self.options.permutations, rng=self.options.seed,
            verbose=not self.options.quiet,
        )  # fmt: skip
        pairs = {(0, 1): found} if len(names) == 2 else found.pairwise
        if len(names) > 2:
            self.add("Groups", _omnibus("all groups have the same couplings", found), None)
        for (a, b), one in pairs.items():
            heading = f"Groups {names[a]} and {names[b]}"
            sizes = [int((groups == names[k]).sum()) for k in (a, b)]
            text = f"{sizes[0]} and {sizes[1]} rows. {_omnibus('no coupling differs', one)}"
            if min(sizes) < 5 * one.omnibus.n_degrees:
                text += " With fewer than five rows a coupling it rejects too often."
            if one.permutation is not None:
                text += (
                    f" By {one.permutation.n} permutations: largest difference "
                    f"{one.permutation.largest:.2f} (p = {one.permutation.largest_p_value:.3g}), "
                    f"difference of all moduli {one.permutation.strength:.2f} (p = "
                    f"{one.permutation.strength_p_value:.3g})."
                )
            self.add(heading, text, self._differences(one))

    def _differences(self, found):
        """Table of differences, the most probable first."""
        i, j = np.triu_indices(len(self.items), 1)
        order = np.argsort(-found.probability[i, j], kind="stable")
        rows = [
            (f"{self.items[i[k]]} - {self.items[j[k]]}", found.difference[i[k], j[k]],
             found.std[i[k], j[k]], found.p_value[i[k], j[k]], found.probability[i[k], j[k]])
            for k in order
        ]  # fmt: skip
        header = "pair", "difference", "error", "p-value", "probability"
        return header, rows

    # --- what is written ------------------------------------------------------------------------

    def edges_csv(self):
        """All edges as text of a .csv file."""
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = "first", "second", "mean", "std", "lower", "upper", "probability"
        writer.writerow([*names, "log_bayes_factor"])
        for line in self._lines():
            numbers = [f"{line[name]:.6g}" for name in (*names[2:], "log_bayes_factor")]
            writer.writerow([line["first"], line["second"], *numbers])
        return text.getvalue()

    def summary(self):
        """One line about the network."""
        p = self.edges.probability[np.triu_indices(len(self.items), 1)]
        likely, unlikely = (p > 0.9).sum(), (p < 0.1).sum()
        return (
            f"{len(self.items)} items, {len(self.scores)} rows, {likely} of {len(p)} couplings "
            f"with a probability above 0.9, {unlikely} below 0.1"
        )


def _omnibus(hypothesis, found):
    test = found.omnibus
    return (
        f"Test that {hypothesis}: chi-squared {test.statistic:.1f} with {test.n_degrees} degrees "
        f"of freedom, p = {test.p_value:.3g}."
    )


def _cells(row):
    """Cells as text."""
    return [cell if isinstance(cell, str) else f"{cell:.{_DIGITS}f}" for cell in row]


def write_html(path, page):
    """Write a page that holds all figures and needs no other file."""
    body = []
    for heading, text, table, figure in page.sections:
        body.append(f"<section><h2>{escape(heading)}</h2>\n<p>{escape(text)}</p>")
        if figure is not None:
            data = base64.b64encode(_png(figure)).decode()
            body.append(
                f'<figure><img alt="{escape(heading)}" src="data:image/png;base64,{data}"></figure>'
            )
        if table is not None:
            header, rows = table
            own = html.table([_cells(row) for row in rows], header if any(header) else ())
            body.append(f'<div class="wide">{own}</div>')
        body.append("</section>")
    text = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Network of {escape(page.title)}</title><style>{STYLE}</style></head><body>
<header><h1>Network of {escape(page.title)}</h1></header>
<main>
{chr(10).join(body)}
</main>
<footer>Written by <code>fastmf network</code>, fastmf {fastmf.__version__}.</footer>
</body></html>
"""
    with replacing(path) as file:
        file.write(text.encode())


def write_markdown(path, page):
    """Write a page in Markdown, and its figures beside it."""
    body = [f"# Network of {page.title}"]
    for k, (heading, text, table, figure) in enumerate(page.sections):
        body += [f"## {heading}", text]
        if figure is not None:
            picture = path.with_name(f"{path.stem}_{k}.png")
            with replacing(picture) as file:
                file.write(_png(figure))
            body.append(f"![{heading}]({picture.name})")
        if table is not None:
            header, rows = table
            lines = [header, ["---"] * len(header), *map(_cells, rows)]
            cells = [[str(cell).replace("|", "\\|") for cell in line] for line in lines]
            body.append("\n".join(f"| {' | '.join(line)} |" for line in cells))
    with replacing(path) as file:
        file.write(("\n\n".join(body) + "\n").encode())


def _png(figure):
    buffer = BytesIO()
    figure.savefig(buffer, dpi=130)
    return buffer.getvalue()
