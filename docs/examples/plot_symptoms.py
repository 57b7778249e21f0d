"""
Networks of symptoms: which edges are there, and how sure is that
==================================================================

This example simulates the answers of 600 persons to eight questions with scores 0 to 3, from a
known network: five questions about mood in a chain, and three questions about sleep that depend on
each other. `OrdinalMachine` recovers the network, with the probability of every edge, the evidence
for its absence, and the predictability of each question from all other questions.
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

# Compute the probabilities of all 65,536 possible rows of answers.
states = np.array(np.unravel_index(np.arange(4**8), [4] * 8)).T.astype(float)
log_probability = -society.energy(states)
probability = np.exp(log_probability - log_probability.max())
rng = np.random.default_rng(0)
answers = states[rng.choice(len(states), 600, p=probability / probability.sum())].astype(int)

machine = mf.OrdinalMachine().fit(answers)
edges = machine.edge_inclusion()
figure = mf.plotting.coupling_network(edges, names=names, groups=groups)

# %%
# Uncertain edges have pale lines. The output compares the eight true edges with all other pairs:
there = true[np.triu_indices(8, 1)] > 0
probability = edges.probability[np.triu_indices(8, 1)]
print("edges that are there:", np.sort(probability[there]).round(2))
print("edges that are not: ", np.sort(probability[~there]).round(2))

# %%
# The figure shows estimates with 95% intervals by the sandwich formula:
forest = mf.plotting.edge_forest(machine, n_top=15, names=names)

# %%
# Bayes factors measure evidence for the absence of an edge: with a log Bayes factor of -1, the
# posterior odds of an edge are 2.7 times smaller than the prior odds.
factors = edges.log_bayes_factor[np.triu_indices(8, 1)][~there]
print("log Bayes factors without an edge:", np.median(factors).round(2))
print("with half, given and twice the scale of couplings:")
for scale, p in zip(edges.sensitivity.scale, edges.sensitivity.probability, strict=True):
    values = p[np.triu_indices(8, 1)]
    print(f"  {scale:g}: {values[there].mean():.2f} there, {values[~there].mean():.2f} not")

# %%
# The last block computes the predictability of each question from all other questions, and the
# stability of centralities with fewer persons:
known, strength = machine.predictability(), machine.strength()
for k, name in enumerate(names):
    print(
        f"{name:9s} R2 {known.r2[k]:.2f} ({known.standard_error[k]:.2f}), strength "
        f"{strength.value[k]:.2f} ({strength.standard_error[k]:.2f})"
    )
stability = machine.stability(50)
print("share of persons that may be left out:", stability.coefficient())
