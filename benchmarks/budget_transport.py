"""What lies around the recogniser: frames, the wire, the threads of the server and the page."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

from audiokv.server.wire import pack
from audiokv.streaming.audio_format import FRAME_MS, FRAME_SAMPLES, AudioFormat
from audiokv.streaming.captions import Caption, Word
from audiokv.streaming.framer import Framer
from audiokv.streaming.voice_activity import VoiceActivity
from benchmarks.budget_parts import Known, Part, measured_part

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

    from audiokv.streaming.voice_activity import VoiceDetector

N_FRAMES = 400
N_CAPTIONS = 200
DISPLAY_HZ = 60.0
_N_WORDS = 30  # a caption of about ten seconds
_WARM_UP = 20


def frame_part() -> Part:
    """Return the wait until the 10 ms frame that holds the word's end is full."""
    return Part("frame of 10 ms", FRAME_MS / 2, float(FRAME_MS), Known.RULE, "full before it goes")


def display_part() -> Part:
    """Return the wait for the screen; the page changes its text in the same turn."""
    return Part(
        "next picture on the screen",
        500.0 / DISPLAY_HZ,
        1000.0 / DISPLAY_HZ,
        Known.ASSUMED,
        f"{DISPLAY_HZ:.0f} pictures a second; drawing itself is not measured",
    )


def listening_part(detector: VoiceDetector, pcm: bytes) -> Part:
    """Measure framing and voice activity of one frame.

    Args:
        detector: With fresh state.
        pcm: At least one frame of 16 kHz mono 16-bit audio.
    """
    fmt = AudioFormat()
    framer, voice = Framer(fmt), VoiceActivity(detector)
    n_bytes = FRAME_SAMPLES * fmt.frame_bytes
    took_ms = []
    for first in range(0, len(pcm) - n_bytes + 1, n_bytes):
        began_s = time.thread_time()
        for frame in framer.push(pcm[first : first + n_bytes]).reshape(-1, FRAME_SAMPLES):
            voice.push(frame)
        took_ms.append((time.thread_time() - began_s) * 1e3)
    return measured_part("framing and voice activity", took_ms, "of one frame")


def packing_part() -> Part:
    """Measure what it takes to turn a caption into its message."""
    caption = long_caption()
    took_ms = []
    for _ in range(N_CAPTIONS):
        began_s = time.thread_time()
        pack(caption)
        took_ms.append((time.thread_time() - began_s) * 1e3)
    return measured_part("caption to its message", took_ms)


def long_caption() -> Caption:
    """Return a caption as long as ten seconds of speech make it."""
    words = tuple(
        Word(f"word{i}", 350 * i, 350 * (i + 1), 0.9, is_final=i < _N_WORDS - 3)
        for i in range(_N_WORDS)
    )
    text = " ".join(word.text for word in words)
    return Caption(1, 0, 0, False, 0, words[-1].end_ms, text, "en", None, words)  # noqa: FBT003  a record's field


def wire_parts() -> tuple[Part, Part]:
    """Measure a frame and a caption over a WebSocket on the loopback interface, one way each."""
    return asyncio.run(_wire_parts())


async def _wire_parts() -> tuple[Part, Part]:
    async with serve(_echo, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}") as connection:
            found = []
            for message, number in ((bytes(2 * FRAME_SAMPLES), N_FRAMES), (_message(), N_CAPTIONS)):
                took_ms = []
                for _ in range(_WARM_UP + number):
                    began_s = time.perf_counter()
                    await connection.send(message)
                    await connection.recv()
                    took_ms.append((time.perf_counter() - began_s) * 1e3 / 2)
                found.append(took_ms[_WARM_UP:])
    note = "half a round trip on this machine; a network adds its own"
    return (
        measured_part("frame to the server", found[0], note),
        measured_part("message to the client", found[1], note),
    )


def _message() -> str:
    return pack(long_caption()).decode()


async def _echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


def handover_part() -> Part:
    """Measure the way from the event loop to the inference thread and back."""
    return measured_part(
        "to the inference thread and back", asyncio.run(_handovers_ms()), "two wake-ups"
    )


async def _handovers_ms() -> list[float]:
    loop = asyncio.get_running_loop()
    wake = threading.Condition()
    waiting: list[asyncio.Event | None] = []

    def work() -> None:
        while True:
            with wake:
                while not waiting:
                    wake.wait()
                done = waiting.pop()
            if done is None:
                return
            loop.call_soon_threadsafe(done.set)

    def submit(done: asyncio.Event | None) -> None:
        with wake:
            waiting.append(done)
            wake.notify()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    took_ms = []
    for _ in range(_WARM_UP + N_CAPTIONS):
        done = asyncio.Event()
        began_s = time.perf_counter()
        submit(done)
        await done.wait()
        took_ms.append((time.perf_counter() - began_s) * 1e3)
    submit(None)
    thread.join()
    return took_ms[_WARM_UP:]
