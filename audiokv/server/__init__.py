"""The asyncio server: transports, sessions, the inference worker and fan-out."""
