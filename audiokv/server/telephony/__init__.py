"""Calls: the dialects of telephone exchanges and providers, each one small pure file."""
