from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from fastmf._common.signatures import Array
from fastmf.evaluation import LogPartitionReport

def coefficient_forest(
    model: Any,
    *,
    names: Sequence[str] | Array | None = None,
    n_top: int = 20,
    ax: Axes | None = None,
) -> Figure: ...
def coupling_network(
    edges: Any,
    *,
    names: Sequence[str] | Array | None = None,
    groups: Sequence[str] | Array | None = None,
    layout: str = "auto",
    minimum: float = 0.5,
    legend: bool = True,
    ax: Axes | None = None,
    colours: Any = ("C3", "C0"),
) -> Figure: ...
def edge_forest(
    machine: Any,
    *,
    level: float = 0.95,
    n_top: int = 30,
    names: Sequence[str] | Array | None = None,
    ax: Axes | None = None,
) -> Figure: ...
def log_partitions(report: LogPartitionReport, *, ax: Axes | None = None) -> Figure: ...
def curves_by_epoch(
    epoch: ArrayLike,
    curves: Mapping[str, ArrayLike],
    *,
    errors: Mapping[str, ArrayLike] | None = None,
    label: str = "nats per unit",
    ax: Axes | None = None,
) -> Axes: ...
def free_energy_by_epoch(
    epoch: ArrayLike, solutions: Sequence[Any], *, ax: Axes | None = None
) -> Axes: ...
def image_rows(
    rows: Mapping[str, ArrayLike], shape: tuple[int, int], *, ax: Axes | None = None
) -> Figure: ...
def learning_curve(history: Any, *, label: str | None = None, ax: Axes | None = None) -> Figure: ...
def receptive_fields(
    weights: Any,
    shape: tuple[int, int],
    *,
    n_fields: int = 100,
    columns: int | None = None,
    order: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Figure: ...
def contact_map(
    scores: Any,
    distances: ArrayLike | None = None,
    *,
    n_top: int | None = None,
    separation: int = 5,
    cutoff: float = 8.0,
    ax: Axes | None = None,
) -> Figure: ...
def mutation_matrix(
    effects: Any, alphabet: str | None = None, *, sequence: Any = None, ax: Axes | None = None
) -> Figure: ...
