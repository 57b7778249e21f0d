"""Fully visible machines of binary, ordinal and categorical units, by pseudo-likelihood."""
