"""Means of the missing units of rows given those that are there."""
