"""Functions that every part of the package may use: checks of arguments, memory, linear algebra."""
