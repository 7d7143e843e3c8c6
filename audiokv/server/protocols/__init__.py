"""One file for each client protocol."""
