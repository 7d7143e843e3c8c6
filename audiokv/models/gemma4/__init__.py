"""Gemma 4 with an audio tower, on a live stream."""
