"""Recognisers: the only part of the project that imports torch."""
