"""Sweeps of naive mean field, TAP and relaxed belief propagation.

`tap` iterates rows of dense models, of graphs, and of models with categorical units, with the
equations of a unit from `units`, where a row is assessed after a sweep, too. `relaxed_bp` keeps a
cavity for each pair of units.
"""
