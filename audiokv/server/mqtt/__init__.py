"""Captions published to an MQTT 5 broker, and audio of small devices taken from it."""
