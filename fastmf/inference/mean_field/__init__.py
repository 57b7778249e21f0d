"""Mean-field solvers (TAP, relaxed belief propagation), and functions of their solutions."""
