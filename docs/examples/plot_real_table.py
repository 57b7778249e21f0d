"""
A table of measurements: density, missing values, outliers
==========================================================

The table has thirteen measurements of 178 wines, in units from per cent to milligrams per litre. A
machine with real-valued units learns their joint density from the raw table, in which some values
are missing.
"""

# sphinx_gallery_thumbnail_number = 1
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

import fastmf as mf

table = load_wine()
wine, names = table.data, table.feature_names
rng = np.random.default_rng(0)
holes = rng.random(wine.shape) < 0.1
seen = np.where(holes, np.nan, wine)

machine = mf.GeneralizedRBM(8, visible="gaussian", n_epochs=100, random_state=0).fit(seen)
alone = machine.pointwise_
independent = (alone.log_prob(wine) - alone.log_partition(0.0, 0.0)).sum(1).mean()
print(f"{machine.score(wine):.2f} nats a wine, {independent:.2f} by independent columns")

# %%
# The missing measurements are imputed by their means given the observed values. Errors are in units
# of the standard deviation of each column, which is the error of the column mean.
filled = machine.impute(seen)
error = np.sqrt(np.nanmean(np.where(holes, ((filled - wine) / wine.std(0)) ** 2, np.nan), axis=0))
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
order = np.argsort(error)
axes.barh(np.array(names)[order], error[order])
axes.axvline(1, color="gray", linestyle="--", label="mean of the column")
axes.set(xlabel="error of what was missing (standard deviations)")
axes.legend()

# %%
# Samples of the machine have the correlations of the table.
samples = machine.sample(1000, n_sweeps=200, start="data", random_state=0)
first, second = names.index("flavanoids"), names.index("proline")
figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
axes.plot(samples[:, first], samples[:, second], ".", color="lightgray", label="samples")
axes.plot(wine[:, first], wine[:, second], ".", label="wines")
axes.set(xlabel=names[first], ylabel=names[second])
axes.legend()

# %%
# Outliers are rows of low density. Here each of ten rows combines measurements of two different
# wines, all of which are common values: no single column identifies these rows, but their joint
# density does.
one, other = rng.permutation(len(wine))[:20].reshape(2, 10)
mixed = wine[one].copy()
mixed[:, ::2] = wine[other, ::2]
log_density = machine.score_samples(np.vstack([wine, mixed]))
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
bins = np.linspace(log_density.min(), log_density.max(), 40)
axes.hist(log_density[: len(wine)], bins, label="wines")
axes.hist(log_density[len(wine) :], bins, label="mixed rows")
axes.set(xlabel="log-density (nats)", ylabel="rows")
axes.legend()
print(f"medians: {np.median(log_density[:178]):.1f}, mixed {np.median(log_density[178:]):.1f} nats")
