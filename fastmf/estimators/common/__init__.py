"""Data, names of features, weights, missing values, warnings and files of estimators."""
