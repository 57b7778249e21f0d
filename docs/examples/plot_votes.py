"""
Who votes with whom: couplings with standard errors
===================================================

The table has the votes (yes or no) of twelve members in 1,500 divisions. The votes are simulated:
there are three parties with agreement within each party, opposition between two of them, and one
independent member. A fully visible Boltzmann machine is fitted by maximum pseudo-likelihood, and
every coupling is tested.
"""

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np

import fastmf as mf

party = np.repeat([0, 1, 2], 4)
names = [f"{'ABC'[p]}{k + 1}" for p, k in zip(party, [*range(4)] * 3, strict=True)]
same = party[:, None] == party
opposed = abs(party[:, None] - party) == 1
true = 0.35 * same - 0.12 * (opposed & (party[:, None] + party == 1))
true[11] = true[:, 11] = 0
np.fill_diagonal(true, 0)
society = mf.BoltzmannMachine(true, mf.Ising(np.linspace(-0.2, 0.2, 12)))

# Votes are drawn exactly: the 4,096 outcomes of a division are enumerated.
states = 1.0 - 2.0 * ((np.arange(2**12)[:, None] >> np.arange(12)) & 1)
log_probability = -society.energy(states) - mf.exact(society).log_partition
rng = np.random.default_rng(0)


def table(n_rows=1500):
    """A table of votes."""
    return states[rng.choice(len(states), n_rows, p=np.exp(log_probability))]


votes = table()

machine = mf.FullyVisibleBoltzmannMachine().fit(votes)
errors = machine.standard_errors()[0]
tests = machine.test_couplings(adjust="holm")
significant = tests.adjusted < 0.05
print(f"{significant.sum()} of {len(significant)} couplings differ from zero (5%, Holm)")

# %%
# The figure compares estimates with the true couplings, with 95% intervals from Godambe's sandwich
# covariance.
pairs = tests.first, tests.second
figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
jitter = rng.normal(scale=0.006, size=len(tests.coupling))
axes.errorbar(
    true[pairs] + jitter, tests.coupling, 1.96 * tests.standard_error, fmt=".", elinewidth=0.7
)
axes.axline((0, 0), slope=1, color="k", linewidth=0.7)
axes.set(xlabel="true coupling", ylabel="estimate")
plt.show()

# %%
# Compute the coverage of the intervals over fifty tables:
covered = []
for _ in range(50):
    low, high = np.moveaxis(mf.FullyVisibleBoltzmannMachine().fit(table()).confint()[0], -1, 0)
    covered.append(((low <= true) & (true <= high))[pairs].mean())
print(f"{np.mean(covered):.1%} of the intervals")

# %%
# The figure shows the network of significant couplings, in red for agreement and blue for
# opposition.
angle = 2 * np.pi * np.arange(12) / 12
place = np.column_stack([np.cos(angle), np.sin(angle)])
figure, axes = plt.subplots(figsize=(5, 5), layout="constrained")
for j, k, coupling in zip(
    tests.first[significant], tests.second[significant], tests.coupling[significant], strict=True
):
    colour = "tab:red" if coupling > 0 else "tab:blue"
    axes.plot(*place[[j, k]].T, color=colour, linewidth=8 * abs(coupling), alpha=0.6)
axes.scatter(*place.T, s=500, c=party, cmap="Set2", zorder=2)
for (x, y), name in zip(place, names, strict=True):
    axes.text(x, y, name, ha="center", va="center")
axes.set(aspect="equal", xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
axes.axis("off")
plt.show()

# %%
# One test of all couplings of C4 shows whether this member follows anybody.
result = machine.likelihood_ratio_test([(11, k) for k in range(11)])
print(f"C4 with all others: p = {result.p_value:.2f}")

# %%
# A missing vote is imputed by its mean given the other votes.
division = votes[:1].copy()
division[0, [0, 5]] = np.nan
print("A1, B2:", votes[0, [0, 5]], "filled in:", machine.impute(division)[0, [0, 5]].round(2))
