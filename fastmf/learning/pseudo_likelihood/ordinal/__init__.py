"""Machines of ordinal items."""
