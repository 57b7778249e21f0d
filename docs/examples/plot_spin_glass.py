"""
Magnetisation of a spin glass
=============================

In the Sherrington-Kirkpatrick model all pairs of n spins are coupled, with independent Gaussian
couplings of variance 1/n at temperature 1. TAP is exact for large n as long as the system has a
single phase. In a field, magnetisation and overlap as functions of the temperature follow the
replica-symmetric solution down to low temperatures; solutions of naive mean field do not.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastmf as mf

n, field = 1000, 0.5
rng = np.random.default_rng(0)
J = np.triu(rng.normal(size=(n, n)) / np.sqrt(n), 1)
J += J.T

temperatures = np.linspace(0.6, 3.0, 25)
orders = {"naive mean field": 1, "TAP": 2}
found = {name: [] for name in orders}
for temperature in temperatures:
    model = mf.BoltzmannMachine(J / temperature, mf.Ising(np.full(n, field / temperature)))
    for name, order in orders.items():
        result = mf.tap(model, order=order)
        found[name].append((result.mean.mean(), (result.mean**2).mean()))
        if name == "TAP" and temperature < 0.95:
            plefka = ((1 - result.mean**2) ** 2).mean() / temperature**2
            print(f"temperature {temperature:.1f}: Plefka's number {plefka:.2f}")

# %%
# In the replica-symmetric equations, the local field is Gaussian around the external field with
# variance q, the mean square of the magnetisations. The equations are iterated with a Gauss-Hermite
# rule.
nodes, weights = np.polynomial.hermite_e.hermegauss(80)
weights /= weights.sum()


def replica_symmetric(temperature):
    """Magnetisation and overlap."""
    q = 1.0
    for _ in range(500):
        m = np.tanh((field + np.sqrt(q) * nodes) / temperature)
        q = weights @ m**2
    return weights @ m, q


expected = np.array([replica_symmetric(temperature) for temperature in temperatures])

figure, panels = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
for k, (axes, label) in enumerate(zip(panels, ("magnetisation", "overlap q"), strict=True)):
    axes.plot(temperatures, expected[:, k], "k", label="replica symmetric, infinite n")
    for (name, values), marker in zip(found.items(), "xo", strict=True):
        axes.plot(
            temperatures, np.array(values)[:, k], marker, label=name, markersize=4, fillstyle="none"
        )
    axes.set(xlabel="temperature", ylabel=label)
panels[1].legend(frameon=False)
plt.show()

# %%
# At the lowest temperatures TAP deviates from the curve, because its expansion is no longer valid:
# Plefka's number, the mean of (1 - m^2)^2 over the squared temperature, must be below one. It
# approaches one at low temperatures, and is above one at 0.6.

# %%
# Small systems can be enumerated. The figure shows the error of single magnetisations over ten
# systems of 14 spins. The largest errors of TAP are at low temperature, where some systems have
# several solutions.
temperatures = np.linspace(0.6, 3.0, 13)
errors = {name: np.zeros(len(temperatures)) for name in orders}
for seed in range(10):
    rng = np.random.default_rng(seed)
    J = np.triu(rng.normal(size=(14, 14)) / np.sqrt(14), 1)
    J += J.T
    for k, temperature in enumerate(temperatures):
        model = mf.BoltzmannMachine(J / temperature, mf.Ising(np.full(14, field / temperature)))
        exact = mf.exact(model).mean
        for name, order in orders.items():
            errors[name][k] += abs(mf.tap(model, order=order).mean - exact).mean() / 10

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, values in errors.items():
    axes.semilogy(temperatures, values, ".-", label=name)
axes.set(xlabel="temperature", ylabel="mean error of a magnetisation")
axes.legend(frameon=False)
plt.show()
