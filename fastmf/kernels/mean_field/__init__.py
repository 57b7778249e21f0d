"""Sweeps of naive mean field, TAP and relaxed belief propagation.

`tap` iterates rows of dense models, `sparse` rows of graphs, `groups` states of categorical units;
all take the equations of a unit from `units`. `relaxed_bp` keeps a cavity for each pair of units.
How a sweep is judged is in `rows`.
"""
