"""The real server as a process of its own, watched from outside."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from benchmarks.results_file import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 15.0
SAMPLE_EVERY_S = 0.1

_PAGE_URL = re.compile(r" at http(s?)://(\S+?)/?$")


@dataclass(slots=True)
class ServerUse:
    """What a server process used while it was watched.

    Attributes:
        cpu_s: Processor time, user and system.
        peak_rss_bytes: Largest resident memory seen.
    """

    cpu_s: float = 0.0
    peak_rss_bytes: int = 0


class ProcessWatch:
    """Measures a process from now on; use it as an asynchronous context manager.

    Args:
        pid: The process.
    """

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._began_s = self._cpu_s()
        self._peak_bytes = 0

    def _cpu_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    async def watch(self) -> None:
        """Sample the memory until cancelled."""
        while True:
            self._peak_bytes = max(self._peak_bytes, self._process.memory_info().rss)
            await asyncio.sleep(SAMPLE_EVERY_S)

    def use(self) -> ServerUse:
        """Return what was used so far."""
        self._peak_bytes = max(self._peak_bytes, self._process.memory_info().rss)
        return ServerUse(self._cpu_s() - self._began_s, self._peak_bytes)


@asynccontextmanager
async def watched(pid: int) -> AsyncIterator[ServerUse]:
    """Fill in, on leaving, what a process used inside the block."""
    measured = ServerUse()
    watch = ProcessWatch(pid)
    sampling = asyncio.create_task(watch.watch())
    try:
        yield measured
    finally:
        sampling.cancel()
        used = watch.use()
        measured.cpu_s, measured.peak_rss_bytes = used.cpu_s, used.peak_rss_bytes


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that has said where it listens.

    Attributes:
        pid: Its process.
        url: Address of its audio streams.
    """

    pid: int
    url: str


def stream_url(line: str) -> str | None:
    """Return the address of audio streams from the line a server says when it is ready."""
    found = _PAGE_URL.search(line)
    return f"ws{found[1]}://{found[2]}/v1/stream" if found else None


@asynccontextmanager
async def serving(model: str, flags: Sequence[str] = ()) -> AsyncIterator[RunningServer]:
    """Run ``audiokv serve`` on a free loopback port; it is stopped on leaving.

    Args:
        model: Name or folder of the model.
        flags: More flags of ``audiokv serve``.

    Raises:
        SystemExit: The server ended or said nothing before it was ready.
    """
    arguments = ["-m", "audiokv", "serve", "--port", "0", "--model", model]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        "--log-level",
        "warning",
        *flags,
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
    )
    drain: asyncio.Task[None] | None = None
    try:
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                url = await _wait_until_ready(process)
        except TimeoutError:
            raise SystemExit(f"The server was not ready after {START_TIMEOUT_S:.0f} s.") from None
        drain = asyncio.create_task(_drain(process))
        yield RunningServer(process.pid, url)
    finally:
        if drain is not None:
            drain.cancel()
        await _stop(process)


async def _wait_until_ready(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async for line in process.stdout:
        url = stream_url(line.decode())
        if url is not None:
            return url
    raise SystemExit(f"The server ended with status {await process.wait()}; see above for why.")


async def _drain(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    async for _ in process.stdout:
        pass


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
