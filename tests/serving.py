"""``audiokv serve`` as a process of its own, for tests that are its users."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

STOPPED = {0, 130}
PATIENCE_S = 240


@dataclass(frozen=True, slots=True)
class RealServer:
    """A server that listens.

    Attributes:
        port: The main port.
        own_ports: Ports of one protocol each, by its name.
    """

    port: int
    own_ports: dict[str, int]

    @property
    def page(self) -> str:
        """Address of the page."""
        return f"http://127.0.0.1:{self.port}/"

    @property
    def sockets(self) -> str:
        """Address that the paths of WebSockets are appended to."""
        return f"ws://127.0.0.1:{self.port}/"


@contextmanager
def serving(*arguments: str, own_ports: Sequence[str] = ()) -> Iterator[RealServer]:
    """Start ``audiokv serve`` on free ports with no settings from outside; stop it at the end.

    Args:
        arguments: Further arguments.
        own_ports: Protocols that get a port of their own.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AUDIOKV_")}
    environment |= {k: v for k, v in os.environ.items() if k == "AUDIOKV_CACHE"}
    names = ["port", *(f"{own}-port" for own in own_ports)]
    flags = [part for name in names for part in (f"--{name}", "0")]
    with subprocess.Popen(  # noqa: S603  our own command
        [sys.executable, "-m", "audiokv", "serve", *flags, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            yield _listening(process, 1 + len(own_ports))
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        assert process.returncode in STOPPED


def _listening(process: subprocess.Popen[str], n_ports: int) -> RealServer:
    """Read the ports a server names when it listens."""
    assert process.stdout is not None
    main, own = 0, dict[str, int]()
    for line in process.stdout:
        if found := re.search(r"http://.*:(\d+)/", line):
            main = int(found[1])
        elif found := re.match(r"(\w+) clients at .*:(\d+)", line):
            own[found[1]] = int(found[2])
        if bool(main) + len(own) == n_ports:
            return RealServer(main, own)
    pytest.fail("the server ended before it listened")


def send(server: RealServer, *arguments: str | Path) -> None:
    """Let ``audiokv send`` send files faster than they last, and wait until it is done."""
    assert start_sending(server, *arguments).wait(PATIENCE_S) == 0


def start_sending(server: RealServer, *arguments: str | Path) -> subprocess.Popen[bytes]:
    """Start ``audiokv send`` with files and options; do not wait."""
    command = [sys.executable, "-m", "audiokv", "send", "--fast"]
    return subprocess.Popen(  # noqa: S603  our own command
        [*command, "--url", f"{server.sockets}v1/stream", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
    )
