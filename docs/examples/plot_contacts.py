"""
Contacts of a molecule from its sequences
=========================================

Positions of a molecule that are in contact coevolve. This example simulates sequences of a chain
that folds into a hairpin, in which facing positions prefer to pair; the alphabet has four letters.
Positions without contact may also be correlated, for instance both ends of a chain of neighbours.
The couplings of a Potts machine, fitted by pseudo-likelihood, measure the dependence of two
positions given all other positions.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastmf as mf
from fastmf.evaluation import contact_precision

n_positions, n_states, n_rows = 24, 4, 3000
positions = np.arange(n_positions)
facing = positions[:, None] + positions == n_positions - 1
distances = np.where(facing, 5.0, 20.0)

# In the true model, facing positions pair (0 with 3, 1 with 2), and neighbours in the chain
# interact.
rng = np.random.default_rng(0)
true = np.zeros((n_positions, n_states, n_positions, n_states))
for i in range(n_positions // 2):
    true[i, :, n_positions - 1 - i] = 1.0 * np.eye(n_states)[::-1]
for i in range(n_positions - 1):
    true[i, :, i + 1] += rng.normal(scale=1.5, size=(n_states, n_states))
true += true.transpose(2, 3, 0, 1)
field = rng.normal(scale=0.3, size=(n_positions, n_states))

# Gibbs sampling of many chains at once, position by position.
X = rng.integers(0, n_states, (n_rows, n_positions))
for _ in range(100):
    for i in range(n_positions):
        tilt = field[i] + sum(true[i][:, j][:, X[:, j]].T for j in positions if j != i)
        X[:, i] = (tilt + rng.gumbel(size=tilt.shape)).argmax(1)

# %%
# The figure compares two scores of all pairs: mutual information, which measures correlations, and
# direct couplings.
machine = mf.PottsMachine(l2=0.02, l2_field=0.02).fit(X)

one_hot = np.eye(n_states)[X].reshape(n_rows, -1)
pairs = (one_hot.T @ one_hot / n_rows + 1e-9).reshape(n_positions, n_states, n_positions, n_states)
single = pairs[positions, :, positions].diagonal(axis1=1, axis2=2)
ratio = np.log(pairs / (single[:, :, None, None] * single))
information = (pairs * ratio).sum((1, 3))
np.fill_diagonal(information, 0)
scores = {"mutual information": information, "Potts machine": machine.contact_scores()}

figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
for ax, (name, values) in zip(axes, scores.items(), strict=True):
    ax.imshow(values, cmap="Greys")
    precision = contact_precision(values, distances, n_positions // 2 - 1, separation=2)
    ax.set(title=f"{name}: {precision:.0%} of the best {n_positions // 2 - 1}")

# %%
# The upper triangle shows the contacts predicted by the Potts machine, and the lower triangle the
# true contacts.
from fastmf import plotting  # noqa: E402

contacts = plotting.contact_map(
    machine.contact_scores(), distances, n_top=n_positions // 2 - 1, separation=2
)
