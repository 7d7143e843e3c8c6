"""What calls cost the server, and whether twenty at a time lose or mix up a single packet.

Twenty callers send packets of 20 ms in real time, from a process of their own, to a server in this
one: once over AudioSocket, once as Twilio does over WebSockets. The recogniser is scripted: each
quarter of a second is a word named after every sample in it, so that a packet lost, doubled or
taken from another call changes the text. Writes ``calls.json`` into the results; the exit status is
1 where a text differs from that of the same audio undisturbed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np
from websockets.asyncio.client import connect

from audiokv.server.app import open_server
from audiokv.server.config import ServerConfig
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.g711 import encode_mulaw
from benchmarks.results_file import REPOSITORY, RESULTS, provenance, write_results
from tests.server.doubles import (
    NEVER_MERGE_MS,
    LoudnessDetector,
    ScriptedRecognizer,
    captions_in,
    undisturbed,
)
from tests.server.telephony.calling import Follower

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from audiokv.streaming.captions import Caption

PACKET_S = 0.02
RATE_HZ = 8_000
PACKET_SAMPLES = int(RATE_HZ * PACKET_S)
MAX_PEAK = 8_000
WATCH_EVERY_S = 0.01
PROTOCOLS = {
    "audiosocket": AudioFormat(sample_rate_hz=RATE_HZ),
    "twilio": AudioFormat(Encoding.MULAW, RATE_HZ),
}


def parse_arguments(arguments: Sequence[str] | None = None) -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20, help="at a time (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="default: %(default)s")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, metavar="DIR", help="default: %(default)s"
    )
    parser.add_argument("--caller", nargs=2, metavar=("PROTOCOL", "PORT"), help="be the callers")
    return parser.parse_args(arguments)


def packets_of(call: int, seconds: float, fmt: AudioFormat) -> list[bytes]:
    """Return the packets of a call; no other call has the same.

    Args:
        call: Number of the call.
        seconds: Length.
        fmt: Encoding; the rate is 8 kHz.
    """
    n_packets = round(seconds / PACKET_S)
    rng = np.random.default_rng(call)
    samples = rng.integers(-MAX_PEAK, MAX_PEAK, n_packets * PACKET_SAMPLES).astype("<i2")
    parts = samples.reshape(n_packets, PACKET_SAMPLES)
    if fmt.encoding is Encoding.MULAW:
        return [encode_mulaw(part) for part in parts]
    return [part.tobytes() for part in parts]


async def call_by_audiosocket(port: int, call: int, packets: Sequence[bytes]) -> None:
    """Make one call as Asterisk does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x01\x00\x10" + UUID(int=call).bytes)

    async def send(packet: bytes) -> None:
        writer.write(b"\x10" + len(packet).to_bytes(2, "big") + packet)
        await writer.drain()

    await in_real_time(packets, send)
    writer.write(b"\x00\x00\x00")
    writer.write_eof()
    await reader.read()
    writer.close()


async def call_by_twilio(port: int, call: int, packets: Sequence[bytes]) -> None:
    """Make one call as Twilio does."""
    url = f"ws://127.0.0.1:{port}/v1/call/twilio"
    async with connect(url, compression=None) as socket:
        start = {"callSid": str(UUID(int=call)), "tracks": ["inbound"]}
        await socket.send(json.dumps({"event": "start", "start": start}))
        n_sent = 0

        async def send(packet: bytes) -> None:
            nonlocal n_sent
            n_sent += 1
            media = {
                "track": "inbound",
                "chunk": str(n_sent),
                "timestamp": str(n_sent * 20),
                "payload": base64.b64encode(packet).decode(),
            }
            await socket.send(json.dumps({"event": "media", "media": media}))

        await in_real_time(packets, send)
        await socket.send('{"event":"stop"}')
        await socket.wait_closed()


async def in_real_time(packets: Sequence[bytes], send: Callable[[bytes], Awaitable[None]]) -> None:
    """Send a packet every 20 ms."""
    began_s = time.monotonic()
    for n, packet in enumerate(packets):
        await asyncio.sleep(began_s + n * PACKET_S - time.monotonic())
        await send(packet)


async def be_callers(protocol: str, port: int, n_calls: int, seconds: float) -> None:
    """Make all calls at a time."""
    make = call_by_audiosocket if protocol == "audiosocket" else call_by_twilio
    fmt = PROTOCOLS[protocol]
    await asyncio.gather(
        *(make(port, call, packets_of(call, seconds, fmt)) for call in range(n_calls))
    )


async def measure(protocol: str, n_calls: int, seconds: float) -> dict[str, object]:
    """Serve calls of one protocol; return what they cost and how many were heard right."""
    config = ServerConfig(
        port=0, audiosocket_port=0, max_streams=n_calls, max_lag_ms=NEVER_MERGE_MS
    )
    async with open_server(
        config, recognizer=ScriptedRecognizer(), open_detector=LoudnessDetector, pages={}
    ) as server:
        follower = Follower(server)
        is_own_port = protocol == "audiosocket"
        port = server.other_ports["audiosocket_port"] if is_own_port else server.port
        delays_s: list[float] = []
        watching = asyncio.create_task(watch_loop(delays_s))
        cpu_s, loop_s = time.process_time(), time.thread_time()
        callers = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks.calls",
            f"--calls={n_calls}",
            f"--seconds={seconds}",
            "--caller",
            protocol,
            str(port),
            cwd=REPOSITORY,
        )
        status = await callers.wait()
        streams = await follower.all_done(n_calls) if status == 0 else []
        cpu_s, loop_s = time.process_time() - cpu_s, time.thread_time() - loop_s
        watching.cancel()
    n_packets = n_calls * round(seconds / PACKET_S)
    heard = {s.metadata["call"]: said(s.captions) for s in streams}
    n_right = sum(
        heard.get(str(UUID(int=call))) == expected(call, seconds, PROTOCOLS[protocol])
        for call in range(n_calls)
    )
    return {
        "protocol": protocol,
        "n_calls": n_calls,
        "n_calls_heard_right": n_right,
        "n_packets": n_packets,
        "event_loop_us_per_packet": round(loop_s / n_packets * 1e6, 1),
        "process_us_per_packet": round(cpu_s / n_packets * 1e6, 1),
        "event_loop_delay_ms": {
            "p50": round(float(np.percentile(delays_s, 50)) * 1000, 2),
            "p99": round(float(np.percentile(delays_s, 99)) * 1000, 2),
        },
    }


async def watch_loop(delays_s: list[float]) -> None:
    """Note again and again how much later than asked the event loop goes on."""
    while True:
        due_s = time.monotonic() + WATCH_EVERY_S
        await asyncio.sleep(WATCH_EVERY_S)
        delays_s.append(max(0.0, time.monotonic() - due_s))


def said(captions: Sequence[Caption]) -> list[tuple[str, int, int]]:
    """Return the final texts with their times."""
    return [(c.text, c.start_ms, c.end_ms) for c in captions if c.is_final]


def expected(call: int, seconds: float, fmt: AudioFormat) -> list[tuple[str, int, int]]:
    """Return what a call says when nothing disturbs it."""
    return said(captions_in(undisturbed(b"".join(packets_of(call, seconds, fmt)), fmt=fmt)))


def main() -> None:
    """Measure, and write what was found."""
    chosen = parse_arguments()
    if chosen.caller:
        protocol, port = chosen.caller
        asyncio.run(be_callers(protocol, int(port), chosen.calls, chosen.seconds))
        return
    origin = provenance(("audiokv", "numpy", "websockets", "samplerate"))
    rows = [asyncio.run(measure(protocol, chosen.calls, chosen.seconds)) for protocol in PROTOCOLS]
    for row in rows:
        print(json.dumps(row))
    path = write_results("calls", {"seconds": chosen.seconds, "rows": rows}, origin, chosen.out)
    print(f"Written: {path}")
    if any(row["n_calls_heard_right"] != row["n_calls"] for row in rows):
        sys.exit("Some calls were not heard as they were sent.")


if __name__ == "__main__":
    main()
