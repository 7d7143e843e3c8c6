"""Clients: files, microphone and the web page, all on one reconnecting link."""
