"""Pseudo-likelihood of fully visible machines of categorical units (Potts machines)."""
