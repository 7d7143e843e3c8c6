"""Recipes that make what is committed here but not written by hand."""
