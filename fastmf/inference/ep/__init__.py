"""Expectation propagation and adaptive TAP: the functions, their schedules and descents."""
