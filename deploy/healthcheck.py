# ruff: noqa: INP001  a script, no module
"""Exits with 0 when the server answers that it works: ``healthcheck [PORT]``.

An overloaded server is healthy: it serves the streams it has, and a restart would end them.
"""

from __future__ import annotations

import json
import sys
from http.client import HTTPConnection, HTTPException

DEFAULT_PORT = 8765
TIMEOUT_S = 4.0
HEALTHY = {"ok", "overloaded"}


def is_healthy(port: int) -> bool:
    """Return whether the server on a port of this machine works."""
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        report = json.load(connection.getresponse())
    except (OSError, HTTPException, ValueError):
        return False
    finally:
        connection.close()
    return isinstance(report, dict) and report.get("status") in HEALTHY


if __name__ == "__main__":
    sys.exit(not is_healthy(int(sys.argv[1]) if sys.argv[1:] else DEFAULT_PORT))
