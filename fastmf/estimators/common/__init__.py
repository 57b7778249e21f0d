"""Shared by all estimators: data, names, weights, missing values, warnings and files."""
