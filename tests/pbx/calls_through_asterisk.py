"""Telephones call through a real Asterisk: every way it has to bring audio here.

Not part of the suite, because Asterisk comes from another Debian: run

    tests/pbx/install_asterisk FOLDER
    AUDIOKV_ASTERISK=FOLDER .venv/bin/pytest tests/pbx/calls_through_asterisk.py
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile
from websockets.asyncio.client import connect

from audiokv.server.app import open_server
from audiokv.server.config import ServerConfig
from audiokv.streaming.resampler import StreamResampler
from tests.pbx.asterisk import Asterisk, running_asterisk
from tests.server.doubles import NEVER_MERGE_MS, LoudnessDetector
from tests.server.telephony.calling import Follower
from tests.server.telephony.recording import RecordingRecognizer
from tests.server.telephony.sip_clients import RATE_HZ, run_baresip, run_sipp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from numpy.typing import NDArray
    from websockets.asyncio.client import ClientConnection

SECONDS = 4
EXTENSIONS = {
    "100": "AudioSocket application, 8 kHz",
    "101": "AudioSocket channel, 16 kHz",
    "102": "chan_websocket, slin16, JSON",
    "103": "chan_websocket, ulaw, plain text",
}


@pytest.fixture
def said(speech_folder: Path) -> NDArray[np.int16]:
    path = speech_folder / "librispeech" / "1089-134691-0001.flac"
    spoken, rate_hz = soundfile.read(path, dtype="float32")
    narrow = StreamResampler(rate_hz, RATE_HZ).push(spoken[: SECONDS * rate_hz])
    return (narrow * 32_767).astype(np.int16)


@asynccontextmanager
async def exchange(
    recognizer: RecordingRecognizer, max_streams: int = 8
) -> AsyncIterator[tuple[Asterisk, Follower]]:
    config = ServerConfig(
        port=0,
        audiosocket_port=0,
        token="correct-horse",  # noqa: S106  a test's
        max_streams=max_streams,
        max_lag_ms=NEVER_MERGE_MS,
    )
    async with open_server(
        config, recognizer=recognizer, open_detector=LoudnessDetector, pages={}
    ) as server:
        follower = Follower(server)
        async with asyncio.timeout(120), running_asterisk(server) as asterisk:
            yield asterisk, follower


@pytest.mark.parametrize("extension", EXTENSIONS)
async def test_sipp_and_baresip_are_heard(
    extension: str, said: NDArray[np.int16], tmp_path: Path
) -> None:
    recognizer = RecordingRecognizer()
    async with exchange(recognizer) as (asterisk, follower):
        target = f"127.0.0.1:{asterisk.sip_port}"
        assert await run_sipp(tmp_path, target, said, service=extension) == 0
        await follower.all_done(1)
        await run_baresip(tmp_path, f"sip:{extension}@{target}", said)
        streams = await follower.all_done(2)
    for number, heard in enumerate(streams):
        assert heard.done is not None
        assert abs(heard.done.received_ms - SECONDS * 1_000) < 800
        assert recognizer.likeness(number, said, RATE_HZ) > 0.85


async def test_twenty_calls_at_a_time(said: NDArray[np.int16], tmp_path: Path) -> None:
    recognizer = RecordingRecognizer()
    async with exchange(recognizer, max_streams=20) as (asterisk, follower):
        target = f"127.0.0.1:{asterisk.sip_port}"
        assert await run_sipp(tmp_path, target, said, n_calls=20, service="102") == 0
        await follower.all_done(20)
    assert min(recognizer.likeness(n, said, RATE_HZ) for n in range(20)) > 0.85


async def entered(ari: ClientConnection) -> str:
    """Return the next channel that the application may use: before, it is not there for others."""
    while True:
        event = json.loads(await ari.recv())
        if event["type"] == "StasisStart":
            return str(event["channel"]["id"])


async def test_a_call_is_snooped_on_without_being_touched(
    said: NDArray[np.int16], tmp_path: Path
) -> None:
    recognizer = RecordingRecognizer()
    async with exchange(recognizer) as (asterisk, follower):
        events = f"ws://127.0.0.1:{asterisk.http_port}/ari/events?app=captions&api_key=demo:demo"
        async with connect(events) as ari:
            target = f"127.0.0.1:{asterisk.sip_port}"
            calling = asyncio.create_task(run_sipp(tmp_path, target, said, service="110"))
            channel = await entered(ari)
            await asterisk.ask(
                f"channels/{channel}/snoop", app="captions", spy="in", snoopId="snoop1"
            )
            await asterisk.ask(
                "channels/externalMedia",
                app="captions",
                channelId="media1",
                external_host="captions",
                transport="websocket",
                encapsulation="none",
                connection_type="client",
                format="slin16",
                transport_data="f(json)v(language=en)",
            )
            assert {await entered(ari), await entered(ari)} == {"snoop1", "media1"}
            await asterisk.ask("bridges/bridge1", type="mixing")
            await asterisk.ask("bridges/bridge1/addChannel", channel="snoop1,media1")
            assert await calling == 0
    assert recognizer.likeness(0, said[RATE_HZ:], RATE_HZ) > 0.6
    assert len(follower.streams) == 1
