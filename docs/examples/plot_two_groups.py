"""
Do two groups have the same network?
====================================

Two groups of persons answer six yes-or-no questions. Their networks differ in two edges, and some
answers are missing. Both networks are fitted to the observed answers and compared, by tests of all
couplings together, of each single coupling, and by permutations of the persons.
"""

# sphinx_gallery_thumbnail_number = 1
import matplotlib.pyplot as plt
import numpy as np

import fastmf as mf

rng, names = np.random.default_rng(2), list("abcdef")
first = np.zeros((6, 6))
for i in range(6):
    first[i, (i + 1) % 6] = first[(i + 1) % 6, i] = 0.3
second = first.copy()
second[0, 1] = second[1, 0] = 0.0  # an edge less
second[2, 5] = second[5, 2] = 0.3  # and one more


def answers(couplings, n_persons):
    """Rows drawn exactly, of which every twentieth answer is missing."""
    bits = (np.arange(64)[:, None] >> np.arange(6)) & 1
    states = 2.0 * bits - 1
    weights = np.exp(((states @ couplings) * states).sum(1) / 2)
    rows = bits[rng.choice(64, n_persons, p=weights / weights.sum())].astype(float)
    rows[rng.random(rows.shape) < 0.05] = np.nan
    return rows


tables = answers(first, 800), answers(second, 800)
machines = [mf.FullyVisibleBoltzmannMachine(missing="em").fit(table) for table in tables]
for machine in machines:
    print(machine.n_missing_, "answers are missing, errors take that into account")

figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
for machine, ax, title in zip(machines, axes, ("first group", "second group"), strict=True):
    mf.plotting.coupling_network(machine, names=names, layout="circle", legend=False, ax=ax)
    ax.set_title(title)
plt.show()

# %%
# To see which edges differ, compute the probability of a difference for each edge, and a test of
# all edges together:
found = mf.compare_groups(*machines)
for i, j in zip(*np.triu_indices(6, 1), strict=True):
    if found.probability[i, j] > 0.5:
        print(
            f"{names[i]}-{names[j]}: {found.difference[i, j]:+.2f} ({found.std[i, j]:.2f}), "
            f"probability {found.probability[i, j]:.3f}"
        )
print(f"no difference at all: p = {found.omnibus.p_value:.2g}")

# %%
# Permutations assign the persons to the two groups at random. They use complete rows, and do not
# rely on a formula for standard errors:
complete = [mf.FullyVisibleBoltzmannMachine(missing="drop").fit(table) for table in tables]
permutation = mf.compare_groups(*complete, n_permutations=200).permutation
print(f"largest difference {permutation.largest:.2f}: p = {permutation.largest_p_value:.3f}")
print(
    f"difference of all moduli {permutation.strength:.2f}: p = {permutation.strength_p_value:.3f}"
)
