"""Whether a fixed point can be believed: one rule for all solvers.

Where exact sums are quick, they decide. Otherwise a row has to agree with

- the mixture of the fixed points that its solver reaches from other starts, unless the row has a
  start of its own;
- another method: belief propagation with some units held at each of their values,
  one unit after the other, or adaptive TAP where those messages do not settle or units are not
  discrete. A row with a start of its own is compared with adaptive TAP, or belief propagation, from
  its own means.

Two answers agree if their log-partitions differ by at most 1 nat, and their means by at most 0.05
of the range of a unit on average and 0.2 of one unit. A method that does not converge says nothing.
Where the methods would take too long nothing is known (`reliable` is None). `judge` applies the
rule; no solver imports this room.
"""
