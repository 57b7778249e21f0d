"""Gradients in coordinates in which units are counted from their means."""

import numpy as np

from fastmf.learning.parameters import chain, unchained


def centred(model, slope, means):
    """The gradient when units are coupled by their deviations from offsets, in usual parameters.

    Parameters
    ----------
    model : RBM or DBM
    slope : ModelParameters
        Gradient of the log-likelihood by its parameters.
    means : list of arrays of shape (n_units,)
        The offsets of each layer: its means over the data.

    Returns
    -------
    ModelParameters
        The direction of a small step of gradient ascent in the other coordinates.

    Notes
    -----
    Montavon & Mueller (2012); Melchior, Fischer & Wiskott (2016). With offsets m and l,
    (v - m)' W (h - l) is v' W h but for fields: it is the same machine with fields less W l and
    W' m. In these coordinates the gradient by W is G = dW - m dh' - dv l', for gradients dv and dh
    by the fields, which then move by dv - G l and dh - G' m. Where a layer's field is no tilt, that
    is in priors without `moment_gradient`, its neighbours have no offsets.
    """
    layers, (weights, slopes) = chain(model)[1], chain(slope)
    tilts = [hasattr(prior, "moment_gradient") for prior in layers]
    fields = [s.field if tilt else 0 * m for s, m, tilt in zip(slopes, means, tilts, strict=True)]
    moved, turned = [np.array(f) for f in fields], []
    for k, w in enumerate(weights):
        below, above = means[k] * tilts[k + 1], means[k + 1] * tilts[k]
        # One product of rank two, in the type of the couplings; not by BLAS: see kernels.statistics
        left, right = np.stack([below, fields[k]], 1), np.stack([fields[k + 1], above])
        w = w - np.einsum("ik,kj->ij", left.astype(w.dtype), right.astype(w.dtype))
        moved[k] -= np.einsum("ij,j->i", w, above)
        moved[k + 1] -= np.einsum("i,ij->j", below, w)
        turned.append(w)
    of_layers = zip(slopes, moved, tilts, strict=True)
    slopes = [s._replace(field=f) if tilt else s for s, f, tilt in of_layers]
    return unchained(model, turned, slopes)
