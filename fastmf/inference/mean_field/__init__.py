"""Mean-field solvers (TAP, relaxed belief propagation) and what is made of their solutions."""
