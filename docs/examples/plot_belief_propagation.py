"""
Belief propagation: exact on trees, approximate on loops
========================================================

This example applies sum-product to small machines of binary units. It compares the errors of the
marginals with naive mean field and TAP as the weights grow, and shows the convergence of the
messages.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastmf as mf

rng = np.random.default_rng(0)
weights = rng.normal(size=(12, 8))
visible, hidden = mf.Bernoulli(rng.normal(size=12)), mf.Bernoulli(rng.normal(size=8))
scales = np.linspace(0.1, 3, 30)
methods = {
    "naive mean field": lambda model: mf.tap(model, order=1),
    "TAP": mf.tap,
    "sum-product": mf.belief_propagation,
    "relaxed BP": mf.relaxed_bp,
    "adaptive TAP": mf.adaptive_tap,
}
errors = {name: [] for name in methods}
for scale in scales:
    model = mf.RBM(scale * weights, visible, hidden)
    exact = np.concatenate(mf.exact(model).mean)
    for name, solve in methods.items():
        errors[name].append(abs(np.concatenate(solve(model).mean) - exact).mean())

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for name, values in errors.items():
    axes.semilogy(scales, values, label=name)
axes.set(xlabel="scale of the weights", ylabel="mean error of a marginal")
axes.legend(frameon=False)
plt.show()

# %%
# On a tree the marginals and the log-partition are exact. Here the tree is a star with one hidden
# unit.
star = mf.RBM(2 * weights[:, :1], visible, mf.Bernoulli(np.array([0.3])))
found, exact = mf.belief_propagation(star), mf.exact(star)
print(f"error of the log-partition: {abs(found.log_partition - exact.log_partition):.1e}")

# %%
# The figure shows residuals by sweep. Weights of both signs cause frustration, and the messages may
# oscillate. With `damping=None`, only the oscillating rows are damped, after their residual has
# stopped falling.
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for scale in (0.5, 1.5, 3.0, 4.5):
    model = mf.RBM(scale * weights, visible, hidden)
    result = mf.belief_propagation(model, max_iter=300)
    axes.semilogy(np.arange(1, result.n_iter + 1), result.history, label=f"scale {scale:g}")
axes.set(xlabel="sweep", ylabel="residual")
axes.legend(frameon=False)
plt.show()

# %%
# Max-product from 21 starts and local search find the most probable assignment.
decoded = mf.most_probable(model, n_starts=21, rng=0)
states = 1.0 * ((np.arange(2**12)[:, None] >> np.arange(12)) & 1)
best = (states @ model.visible.field) + np.maximum(
    states @ model.weights + model.hidden.field, 0
).sum(1)
print(f"found {decoded.score:.6f}, best of all {best.max():.6f}")
