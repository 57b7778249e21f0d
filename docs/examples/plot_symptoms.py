"""
Networks of symptoms: which edges are there, and how sure is that
==================================================================

Answers of 600 persons to eight questions with the scores 0 to 3, made here from a network that is
known: five questions about mood in a chain, three about sleep that depend on each other. The
network is found again by `OrdinalMachine`, with the probability of every edge, the evidence for its
absence, and what is known of each question from all others.
"""

# sphinx_gallery_thumbnail_number = 1
import numpy as np

import fastmf as mf

names = ["sad", "tired", "guilty", "slow", "hopeless", "wakes", "early", "restless"]
groups = ["mood"] * 5 + ["sleep"] * 3
true = np.zeros((8, 8))
for i, j in [(0, 1), (1, 2), (2, 3), (3, 4), (5, 6), (6, 7), (5, 7), (1, 5)]:
    true[i, j] = true[j, i] = 0.35
# Thresholds that make all four answers about as frequent.
thresholds = -np.outer(true.sum(1), 1.5 * np.arange(4))
society = mf.BoltzmannMachine(true, mf.Ordinal(thresholds))

# All 65,536 rows of answers have their probabilities.
states = np.array(np.unravel_index(np.arange(4**8), [4] * 8)).T.astype(float)
log_probability = -society.energy(states)
probability = np.exp(log_probability - log_probability.max())
rng = np.random.default_rng(0)
answers = states[rng.choice(len(states), 600, p=probability / probability.sum())].astype(int)

machine = mf.OrdinalMachine().fit(answers)
edges = machine.edge_inclusion()
figure = mf.plotting.coupling_network(edges, names=names, groups=groups)

# %%
# Lines are the paler the less sure an edge is. The eight edges that were put in, beside all others:
there = true[np.triu_indices(8, 1)] > 0
probability = edges.probability[np.triu_indices(8, 1)]
print("edges that are there:", np.sort(probability[there]).round(2))
print("edges that are not: ", np.sort(probability[~there]).round(2))

# %%
# Estimates with 95% intervals by the sandwich formula:
forest = mf.plotting.edge_forest(machine, n_top=15, names=names)

# %%
# Evidence for absence is more than a probability that is small: with a log Bayes factor of -1 the
# odds of an edge are 2.7 times smaller than they were before the data.
factors = edges.log_bayes_factor[np.triu_indices(8, 1)][~there]
print("log Bayes factors without an edge:", np.median(factors).round(2))
print("with half, given and twice the scale of couplings:")
for scale, p in zip(edges.sensitivity.scale, edges.sensitivity.probability, strict=True):
    values = p[np.triu_indices(8, 1)]
    print(f"  {scale:g}: {values[there].mean():.2f} there, {values[~there].mean():.2f} not")

# %%
# How well each question is known from all others, and whether centralities would be the same with
# fewer persons:
known, strength = machine.predictability(), machine.strength()
for k, name in enumerate(names):
    print(
        f"{name:9s} R2 {known.r2[k]:.2f} ({known.standard_error[k]:.2f}), strength "
        f"{strength.value[k]:.2f} ({strength.standard_error[k]:.2f})"
    )
stability = machine.stability(50)
print("share of persons that may be left out:", stability.coefficient())
