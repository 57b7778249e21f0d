"""Rows of items as a fit takes them: distinct, without or with missing values, and in clusters."""

import numpy as np
from scipy import sparse

from fastmf._common.warning import warn_user
from fastmf.estimators.common.data import column_name, missing_entries
from fastmf.learning.pseudo_likelihood.missing import MAX_OF_A_ROW, Completions, n_completions
from fastmf.learning.pseudo_likelihood.rows import available, distinct, sampling

MISSING = ("error", "drop", "available", "em")


def observe(machine, labels, weights, sizes, *, seen_only, edges, clusters=None, merge=True):
    """Set what a machine keeps of rows; return the rows of its fit, and their weights.

    Labels are negative where missing. Rows are complete but for available cases, and distinct if
    they may `merge`; `_sampling` (n_clusters, n_rows) is of rows that may be incomplete.
    """
    missing = machine.missing
    if clusters is not None:
        _check_clusters(clusters, len(labels))
    if missing == "em":
        usable = _summable(labels, sizes, edges)
    elif missing == "absent":
        # Rows without any label make no difference, unless all rows are.
        usable = (labels >= 0).any(1) | (labels < 0).all()
    else:
        terms = available(labels, edges if missing == "available" else None)
        usable = terms.any(1)
    used = usable & (weights > 0)
    if not used.any():
        where = "" if edges is None else " in a feature and its neighbours in graph"
        what = f"values{where}, none missing" if missing in ("drop", "available") else "values"
        raise ValueError(f"X must have a row of positive weight with {what}.")
    if missing == "available":
        _check_terms(machine, terms[used].any(0))
    rows, sums, members = labels[used], weights[used], np.arange(used.sum())
    if merge:
        rows, sums, members = distinct(rows, sums)
    machine._sampling = machine._completions = None
    if clusters is not None:
        machine._sampling = sampling(members, weights[used], np.asarray(clusters)[used])
    if missing == "em" and (rows < 0).any():
        machine._completions = Completions.of(rows, sums, sizes, seen_only)
        rows, sums = machine._completions.states, machine._completions.weights
    machine.n_missing_, machine.n_dropped_ = int((labels < 0).sum()), int((~usable).sum())
    return rows, sums


def _check_terms(machine, seen):
    """Raise unless each feature was seen together with all its neighbours."""
    if not seen.all():
        absent = [column_name(machine, int(j)) for j in np.flatnonzero(~seen)]
        raise ValueError(
            "missing='available' needs, for each column, a row with its value and those of all its "
            f"neighbours in graph, got none for {', '.join(absent[:10])}: leave out columns or "
            "edges, or take missing='em'."
        )


def _summable(labels, sizes, edges=None):
    """Which rows have values, and few enough completions for `missing="em"`; others may warn.

    So do pairs of columns, of `edges` if given, that no row has both values of.
    """
    empty = np.flatnonzero((labels < 0).all(0))
    if len(empty):
        raise ValueError(
            f"X must have values in each column, got none in column {empty[0]}: leave it out."
        )
    seen = (labels >= 0).astype(np.float32)
    pairs = np.triu_indices(len(sizes), 1) if edges is None else tuple(np.transpose(edges))
    apart = np.flatnonzero((seen.T @ seen)[pairs] == 0)
    if len(apart):
        named = ", ".join(f"{pairs[0][k]} and {pairs[1][k]}" for k in apart[:5])
        warn_user(
            f"no row has values of both columns of {len(apart)} pairs, such as {named}: rows say "
            "nothing of their couplings; leave the pairs out (graph), or give a ridge penalty l2."
        )
    excessive = n_completions(labels, sizes) > MAX_OF_A_ROW
    if excessive.all():
        raise ValueError(
            f"missing='em' sums over the completions of a row, up to {MAX_OF_A_ROW:,}, and all "
            "rows have more: leave out items that are missing most often, or impute them first."
        )
    if excessive.any():
        warn_user(
            f"{int(excessive.sum())} rows have more than {MAX_OF_A_ROW:,} completions of their "
            "missing values and are left out: leave out the items that are missing most often, or "
            "impute these rows first."
        )
    return ~excessive & (labels >= 0).any(1)


def _check_clusters(clusters, n_rows):
    """Raise unless each row has the label of one of at least two clusters."""
    if np.shape(clusters) != (n_rows,):
        raise ValueError(
            f"clusters must have one label for each of {n_rows} rows, got shape "
            f"{np.shape(clusters)}."
        )
    clusters = np.asarray(clusters)
    absent = missing_entries(clusters[:, None])[:, 0]
    if absent.any():
        raise ValueError(
            f"clusters must have no missing labels, got one in row {int(absent.argmax())}: give "
            "such rows labels of their own."
        )
    if len(set(clusters.tolist())) < 2:
        raise ValueError("clusters must be at least two, got one: its errors are not known.")


def saved_rows(machine):
    """Arrays of the clusters and the completions of a fit, for files."""
    out = {}
    if machine._sampling is not None:
        out["sampling"] = _coordinates(machine._sampling)
    if machine._completions is not None:
        out["share"] = _coordinates(machine._completions.share)
        out["row_weights"] = machine._completions.row_weights
    return out


def restored_rows(machine, arrays, states):
    """Put back what `saved_rows` kept; `states` are the labels of the rows of the fit."""
    machine._completions = machine._sampling = None
    n = len(states)
    if "share" in arrays or "row_weights" in arrays:
        weights = arrays.member("row_weights", "f", (None,), low=0)
        share = _sparse_in("share", arrays, n, len(weights))
        machine._completions, n = Completions(states, share, weights), len(weights)
    if "sampling" in arrays:
        machine._sampling = _sparse_in("sampling", arrays, n)


def _coordinates(matrix):
    """Rows, columns and values of the entries of a sparse array, (3, n_entries)."""
    matrix = sparse.coo_array(matrix)
    return np.stack([*matrix.coords, matrix.data])


def _sparse_in(name, arrays, n_columns, n_rows=None):
    """A sparse array of coordinates, or of compressed rows in files of earlier versions."""
    if f"{name}_indptr" in arrays:
        column = arrays.member(f"{name}_indices", "iu", (None,), low=0)
        ends = arrays.member(f"{name}_indptr", "iu", (None,), low=0, high=len(column))
        values = arrays.member(name, "f", column.shape, low=0)
        return sparse.csr_array((values, column, ends), shape=(len(ends) - 1, n_columns))
    entries = arrays.member(name, "f", (3, None), low=0)
    row, column = entries[:2].astype(np.int64)
    n_rows = int(row.max()) + 1 if n_rows is None else n_rows
    return sparse.csr_array((entries[2], (row, column)), shape=(n_rows, n_columns))
