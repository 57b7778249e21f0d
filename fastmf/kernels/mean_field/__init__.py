"""Sweeps of naive mean field, TAP and relaxed belief propagation.

`tap` iterates rows of dense models, of graphs, and of models with categorical units; `units` has
the equations of a unit and the criteria of convergence. `relaxed_bp` has a cavity for each pair of
units.
"""
