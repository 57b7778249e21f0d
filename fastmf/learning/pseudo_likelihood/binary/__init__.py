"""Fully visible machines of binary units."""
