"""Gemma-3n live: exact streaming audio tower, bounded prefix, a tail that is rolled back."""
