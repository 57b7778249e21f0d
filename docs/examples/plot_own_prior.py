"""
Custom priors
=============

A unit prior is a NamedTuple with two methods: the log-partition of a tilted unit, and its mean and
variance. In this example, units have the values -1, 0 and 1. Every solver accepts such a prior, and
compiles the two methods without changes.
"""

from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

import fastmf as mf
from fastmf.special import exp, log


class ThreeLevels(NamedTuple):
    """Units with values -1, 0 and 1 and weight exp(field x - cost x^2)."""

    field: np.ndarray
    cost: np.ndarray

    def log_partition(self, b, a):
        """Log of the sum over x of the weight times exp(b x - a x^2 / 2)."""
        t, c = self.field + b, self.cost + a / 2
        return log(1 + exp(t - c) + exp(-t - c))

    def moments(self, b, a):
        """Mean and variance under that tilt."""
        t, c = self.field + b, self.cost + a / 2
        up, down = exp(t - c), exp(-t - c)
        z = 1 + up + down
        mean = (up - down) / z
        return mean, (up + down) / z - mean * mean


# %%
# The two methods must be consistent: the mean is the derivative of the log-partition.
unit = ThreeLevels(np.array([0.2]), np.array([0.5]))
b = np.linspace(-3, 3, 121)[:, None]
mean, var = unit.moments(b, 0.0)
slope = np.gradient(unit.log_partition(b, 0.0)[:, 0], b[:, 0])
print(f"largest difference: {abs(slope - mean[:, 0])[1:-1].max():.1e}")

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for cost in (-1.0, 0.5, 2.0):
    mean = ThreeLevels(np.zeros(1), np.array([cost])).moments(b, 0.0)[0]
    axes.plot(b, mean, label=f"cost {cost:g}")
axes.set(xlabel="tilt b", ylabel="mean")
axes.legend(frameon=False)
plt.show()

# %%
# In a spin-one model in which all pairs are coupled, the order parameter grows continuously with
# the coupling if the cost of non-zero values is small, and jumps if it is large. The solver starts
# from the ordered and from the disordered state, and reaches both solutions if there are two.
n = 200
pairs = (1 - np.eye(n)) / n
strengths = np.linspace(0.5, 6, 56)
figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for cost, colour in ((0.0, "C0"), (2.2, "C1")):
    prior = ThreeLevels(np.full(n, 1e-4), np.full(n, cost))
    for start, style in ((np.full(n, 1.0), "-"), (np.zeros(n), "--")):
        order = [
            mf.tap(mf.BoltzmannMachine(strength * pairs, prior), start).mean.mean()
            for strength in strengths
        ]
        name = f"cost {cost:g}" if style == "-" else None
        axes.plot(strengths, order, style, color=colour, label=name)
axes.set(xlabel="coupling strength", ylabel="order parameter")
axes.legend(frameon=False, title="dashed: from disorder")
plt.show()
