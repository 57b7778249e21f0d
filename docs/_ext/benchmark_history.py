"""Draws the curves of `asv_bench/history.csv` before the pages are read."""

import csv
from collections import defaultdict
from pathlib import Path

TABLE = Path(__file__).parents[2] / "asv_bench" / "history.csv"
PICTURE = "project/generated/history.svg"


def curves(path):
    """Commits in the file's order, and (number of the commit, ratio) by part and kernel."""
    commits, parts = {}, defaultdict(lambda: defaultdict(list))
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            k = commits.setdefault((row["date"], row["commit"]), len(commits))
            part, kernel = row["kernel"].split(".", 1)
            parts[part][f"{kernel}, {row['dtype']}"].append((k, float(row["ratio"])))
    return list(commits), parts


def draw(table, picture):
    """A panel for each part of the package, a curve for each kernel and type."""
    from matplotlib.figure import Figure

    commits, parts = curves(table)
    n_rows = -(-len(parts) // 2)
    figure = Figure(figsize=(10, 3.4 * n_rows), layout="constrained")
    panels = figure.subplots(n_rows, 2, squeeze=False).ravel()
    ticks = sorted({round(k) for k in _spread(len(commits), 6)})
    for panel, (part, kernels) in zip(panels, parts.items(), strict=False):
        for k, (name, points) in enumerate(kernels.items()):
            style = "--" if name.endswith("float32") else "-"
            panel.plot(
                *zip(*points, strict=True), style, color=f"C{k // 2}", marker=".", label=name
            )
        panel.axhline(1, color="grey", linewidth=0.8)
        panel.set(title=part.replace("_", " "), yscale="log", ylabel="time / time of NumPy twin")
        panel.set_xticks(ticks, [" ".join(commits[k]) for k in ticks], rotation=20, ha="right",
                         fontsize=7)  # fmt: skip
        panel.legend(fontsize=6)
    for panel in panels[len(parts) :]:
        panel.set_axis_off()
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, metadata={"Date": None})


def _spread(n, most):
    """At most so many numbers from 0 to n - 1."""
    steps = min(n, most)
    return [k * (n - 1) / max(steps - 1, 1) for k in range(steps)]


def setup(app):
    """Register the drawing."""
    app.connect("builder-inited", lambda app: draw(TABLE, Path(app.srcdir) / PICTURE))
    return {"parallel_read_safe": True}
