"""Checks of whether a fixed point is reliable: one rule for all solvers.

Where exact sums are quick, they decide. Otherwise a row solved without `init` must agree with

- belief propagation with single units held at each of their values, one unit after the other;
- where this does not converge, or units are not discrete: adaptive TAP, and the mixture of the
  fixed points that the solver reaches from other starts.

A row solved from `init` is compared with adaptive TAP, or belief propagation, started from the
means of the row.

Two answers agree if their log-partitions differ by at most 1 nat, and their means by at most 0.05
of the range of a unit on average and 0.2 for one unit. Methods that do not converge are ignored. If
the methods would take too long, `reliable` is None. `judge` applies the rule; no solver imports
this package.
"""
