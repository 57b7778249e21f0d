"""
Sparse regression with more features than rows
==============================================

The data have a hundred rows and a thousand features, ten of which have an effect. Spike-and-slab
regression by expectation propagation computes for each coefficient the probability that it is not
zero, and learns the noise and the sparsity by maximising the evidence. It is compared with
scikit-learn's LassoCV.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LassoCV

import fastmf as mf

rng = np.random.default_rng(0)
n, p = 100, 1000
true = np.zeros(p)
true[rng.choice(p, 10, replace=False)] = rng.choice([-1, 1], 10) * rng.uniform(0.5, 2, 10)
X = rng.normal(size=(n, p))
y = X @ true + 0.5 * rng.normal(size=n)
X_new = rng.normal(size=(1000, p))
y_new = X_new @ true + 0.5 * rng.normal(size=1000)

slab = mf.SpikeSlabRegressor().fit(X, y)
lasso = LassoCV(cv=5, random_state=0).fit(X, y)

for name, model in (("spike and slab", slab), ("LassoCV", lasso)):
    error = np.mean((model.predict(X_new) - y_new) ** 2) ** 0.5
    largest = abs(model.coef_ - true).max()
    print(f"{name:15} prediction error {error:.3f}, largest error of a coefficient {largest:.3f}")
print(f"noise: {slab.noise_variance_**0.5:.2f} estimated, 0.50 true")

# %%
# The lasso shrinks its coefficients, and selects many features without an effect. Coefficients
# above 0.01 are shown.
figure, panels = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True, layout="constrained")
for axes, (name, model) in zip(panels, (("spike and slab", slab), ("LassoCV", lasso)), strict=True):
    axes.vlines(np.flatnonzero(true), 0, true[true != 0], color="0.7", linewidth=5)
    kept = np.flatnonzero(abs(model.coef_) > 0.01)
    axes.plot(kept, model.coef_[kept], ".", label=f"{len(kept)} coefficients")
    axes.axhline(0, color="k", linewidth=0.5)
    axes.set(title=name, xlabel="feature")
    axes.legend(frameon=False)
panels[0].set_ylabel("coefficient (true: grey)")
plt.show()

# %%
# The figure shows posterior inclusion probabilities, and coefficients with two posterior standard
# deviations.
chosen = np.argsort(-slab.inclusion_probability_)[:14]
figure, (top, below) = plt.subplots(
    2, 1, figsize=(7, 4.5), sharex=True, height_ratios=(1, 2), layout="constrained"
)
top.bar(range(14), slab.inclusion_probability_[chosen], color="C1")
top.set_ylabel("inclusion")
below.errorbar(range(14), slab.coef_[chosen], 2 * slab.coef_var_[chosen] ** 0.5, fmt="o", capsize=3)
below.plot(range(14), true[chosen], "kx", label="true")
below.set_xticks(range(14), chosen)
below.set(xlabel="feature", ylabel="coefficient")
below.legend(frameon=False)
plt.show()

# %%
# Predictions have standard deviations. The expected share of new rows lies within two standard
# deviations.
mean, deviation = slab.predict(X_new, return_std=True)
print(f"within two deviations: {(abs(mean - y_new) < 2 * deviation).mean():.1%}")
