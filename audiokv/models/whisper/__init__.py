"""Streaming recognition with Whisper models of any size."""
