"""Stand-in for mf.tap (RBM only), to be deleted."""

from types import SimpleNamespace

import numpy as np


def tap(
    model,
    init=None,
    *,
    order=2,
    field=None,
    precision=None,
    clamp=None,
    damping=None,
    tol=1e-8,
    max_iter=1000,
    free_energy=True,
    rng=None,
    n_threads=None,
    history=False,
    schedule="blocked",
    acceleration=None,
    onsager_every=1,
):
    W = model.weights
    dtype = W.dtype
    W2, W3 = W * W, W**3
    nv, nh = W.shape
    if init is None:
        init = np.zeros((1, nv), dtype)
    if isinstance(init, int):
        K = init
        zero = np.zeros((K, nv), dtype)
        m = model.visible.sample(zero, zero, rng)
        c = zero
        mh, ch = np.zeros((K, nh), dtype), np.zeros((K, nh), dtype)
    elif isinstance(init, tuple):
        (m, mh), (c, ch) = init
    else:
        m = np.asarray(init, dtype)
        c = np.zeros_like(m)
        mh, ch = np.zeros((len(m), nh), dtype), np.zeros((len(m), nh), dtype)
    m, c, mh, ch = (np.array(x, dtype) for x in (m, c, mh, ch))
    K = len(m)
    extra_b = np.broadcast_to(np.asarray(0 if field is None else field, dtype), (K, nv))
    extra_a = np.broadcast_to(np.asarray(0 if precision is None else precision, dtype), (K, nv))
    held = np.zeros((K, nv), bool)
    if clamp is not None:
        clamp = np.asarray(clamp)
        if clamp.dtype == bool:
            held, values = np.broadcast_to(clamp, (K, nv)), m.copy()
        else:
            held, values = ~np.isnan(clamp), clamp
        m, c = np.where(held, values, m).astype(dtype), np.where(held, 0, c).astype(dtype)
    two = order >= 2

    def fields(prior, own, source, source_var, own_prior_other, W, W2, W3):
        a = -(source_var @ W2) if two else np.zeros_like(own)
        b = source @ W + a * own
        if order == 3:
            k3, _ = own_prior_other.third_cumulant(source)
            dk3 = prior.third_cumulant(own)[1]
            b = b + (k3 @ W3) * dk3 / 6
        return b, a

    def sweep(s, rows):
        m, c, mh, ch = s
        b, a = fields(model.hidden, mh, m, c, model.visible, W, W2, W3)
        mh2, ch2 = model.hidden.moments(b, a)
        d = damp[rows, None]
        mh2, ch2 = d * mh + (1 - d) * mh2, d * ch + (1 - d) * ch2
        b, a = fields(model.visible, m, mh2, ch2, model.hidden, W.T, W2.T, W3.T)
        m2, c2 = model.visible.moments(b + extra_b[rows], a + extra_a[rows])
        m2, c2 = np.where(held[rows], m, m2), np.where(held[rows], 0, c2)
        m2, c2 = d * m + (1 - d) * m2, d * c + (1 - d) * c2
        change = np.maximum(abs(m2 - m).max(1), abs(mh2 - mh).max(1))
        return (m2, c2, mh2, ch2), change

    damp = np.full(K, damping or 0, dtype)
    state = [m, c, mh, ch]
    active = np.arange(K)
    n_iter = np.zeros(K, int)
    residual = np.full(K, np.inf)
    for it in range(max_iter):
        new, change = sweep([s[active] for s in state], active)
        for s, n in zip(state, new):
            s[active] = n
        n_iter[active] += 1
        residual[active] = change
        active = active[change >= tol]
        if damping is None and it == 150:
            damp[active] = 0.5
        if damping is None and it == 300:
            damp[active] = 0.8
        if not len(active):
            break
    m, c, mh, ch = state
    bh, ah = fields(model.hidden, mh, m, c, model.visible, W, W2, W3)
    bv, av = fields(model.visible, m, mh, ch, model.hidden, W.T, W2.T, W3.T)
    bv, av = bv + extra_b, av + extra_a
    log_partition = None
    if free_energy:
        zv = model.visible.log_partition(bv, av) - bv * m + av * (m * m + c) / 2
        zv = np.where(held, model.visible.log_prob(m) + (extra_b * m - extra_a * m * m / 2), zv)
        zh = model.hidden.log_partition(bh, ah) - bh * mh + ah * (mh * mh + ch) / 2
        pairs = ((m @ W) * mh).sum(1)
        if two:
            pairs = pairs + ((c @ W2) * ch).sum(1) / 2
        if order == 3:
            k3, dk3 = model.visible.third_cumulant(m)
            h3, dh3 = model.hidden.third_cumulant(mh)
            # B holds the derivative terms: remove them from the Legendre part by the exact one-moment form
            pairs = pairs + ((k3 @ W3) * h3).sum(1) / 6
        log_partition = zv.sum(1) + zh.sum(1) + pairs
    return SimpleNamespace(
        mean=(m, mh),
        var=(c, ch),
        b=(bv, bh),
        a=(av, ah),
        log_partition=log_partition,
        converged=residual < tol,
        n_iter=n_iter,
        residual=residual,
    )
