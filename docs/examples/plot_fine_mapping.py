"""
Fine mapping: which of many correlated variants
===============================================

This example has a locus of 150 genetic variants, many of which are nearly copies of their
neighbours, and a trait that two variants affect. The data cannot distinguish between two copies. A
credible set contains the variants of which one is causal with a probability of 95%.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastmf as mf

rng = np.random.default_rng(4)
n, p = 600, 150

# Each genotype is the sum of two mosaics of 30 ancestors with correlated neighbouring alleles.
ancestors = rng.normal(size=(30, p))
for j in range(1, p):
    ancestors[:, j] = 0.97 * ancestors[:, j - 1] + 0.24 * ancestors[:, j]
ancestors = ancestors > rng.uniform(0, 1, p)
genotypes = np.zeros((n, p), np.int8)
for _ in range(2):
    first = rng.integers(p, size=n)  # where a mosaic goes over to its second ancestor
    one, other = ancestors[rng.integers(30, size=(2, n))]
    genotypes += np.where(np.arange(p) < first[:, None], one, other)

causes = [40, 110]
age = rng.uniform(20, 80, n)
trait = genotypes[:, causes] @ [0.5, -0.5] + 0.02 * age + rng.normal(size=n)

# %%
# Age is a covariate that is always included: a column that is not penalised.
X = np.column_stack([age, genotypes])
model = mf.SpikeSlabRegressor(unpenalised=[0]).fit(X, trait)
sets = model.credible_sets()
for found in sets:
    print(
        f"variants {np.sort(found.features - 1)}: probability {found.probability:.3f}, "
        f"purity {found.purity:.2f}"
    )

# %%
# Evidence from single variants is spread over the neighbours; inclusion probabilities are not.
alone = [np.corrcoef(X[:, j], trait - 0.02 * age)[0, 1] ** 2 * n for j in range(1, p + 1)]
figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained")
above.plot(alone, ".", color="0.6")
above.set_ylabel("n r$^2$ alone")
below.plot(model.inclusion_probability_[1:], ".", color="0.6")
for k, found in enumerate(sets):
    own = found.features - 1
    below.plot(own, model.inclusion_probability_[own + 1], "o", color=f"C{k}", label=f"set {k + 1}")
for axes in (above, below):
    for cause in causes:
        axes.axvline(cause, color="0.8", zorder=0)
below.set_ylabel("inclusion probability")
below.set_xlabel("variant (causes: grey lines)")
below.legend(frameon=False)

# %%
# Joint draws give quantities that single probabilities do not contain, such as the variance that
# the locus explains.
draws = model.sample_coefficients(300, rng=1)[:, 1:]
explained = (genotypes @ draws.T).var(axis=0) / trait.var()
print(f"explained variance: {np.quantile(explained, [0.05, 0.5, 0.95]).round(3)}")

# %%
# The figure shows the largest coefficients with two standard deviations.
figure = mf.plotting.coefficient_forest(
    model, names=["age", *(f"variant {j}" for j in range(p))], n_top=12
)
