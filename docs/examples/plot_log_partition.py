"""
Log-partitions by every method, beside the exact one
====================================================

With 14 hidden units, enumeration gives the exact log-partition. This example compares it with naive
mean field, TAP, the third order, and annealed importance sampling.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastmf as mf

X = mf.datasets.load_digits(binary=True, dtype=float).X
rbm = mf.GeneralizedRBM(14, n_epochs=30, batch_size=50, learning_rate=0.1, random_state=0).fit(X)
report = mf.evaluation.log_partition_report(rbm.model_, X[:500])
print(report)

# %%
# "TAP2, log-sum-exp" adds up the weights of the distinct solutions. Annealing from independent
# units is too low on average, and annealing from samples of the model too high. If both agree, the
# estimate is reliable.

# %%
# To see when TAP is accurate, the couplings of a random machine are increased, beginning with
# independent units. Naive mean field is a lower bound. TAP is far more accurate unless the
# couplings are strong.
rng = np.random.default_rng(0)
weights = rng.normal(size=(60, 14)) / np.sqrt(60)
visible, hidden = mf.Ising(0.2 * rng.normal(size=60)), mf.Ising(0.2 * rng.normal(size=14))
strengths = np.linspace(0.05, 1.6, 24)
errors = {order: [] for order in (1, 2, 3)}
for strength in strengths:
    model = mf.RBM(strength * weights, visible, hidden)
    exact = mf.exact(model, averages=False).log_partition
    for order, values in errors.items():
        values.append(abs(mf.tap(model, order=order).log_partition - exact))

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for name, values in zip(("naive mean field", "TAP", "third order"), errors.values(), strict=True):
    axes.semilogy(strengths, values, label=name)
axes.set(xlabel="scale of the couplings", ylabel="error of log Z (nats)")
axes.legend(frameon=False)
plt.show()
