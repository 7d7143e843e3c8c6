"""Telephones call through a real Asterisk: every way it has to bring audio here.

Not part of the suite, because Asterisk comes from another Debian: run ``make test-pbx``, or

    tests/pbx/install_asterisk FOLDER
    AUDIOKV_ASTERISK=FOLDER .venv/bin/pytest tests/pbx/calls_through_asterisk.py
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from websockets.asyncio.client import connect

from audiokv.server.app import open_server
from audiokv.server.config import ServerConfig
from audiokv.streaming.audio_format import AudioFormat, Encoding
from tests.clients.spoken_words import (
    MORE_ERRORS,
    SPOKEN,
    TELEPHONE_HZ,
    NativeStart,
    Recording,
    load_real_recognizer,
    native_text,
    real_server,
)
from tests.pbx.asterisk import Asterisk, running_asterisk
from tests.server.doubles import NEVER_MERGE_MS, LoudnessDetector
from tests.server.telephony.calling import Follower, Heard
from tests.server.telephony.recording import RecordingRecognizer
from tests.server.telephony.sip_clients import SPARE_MS, run_baresip, run_sipp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from websockets.asyncio.client import ClientConnection

    from audiokv.models.base import Recognizer
    from audiokv.server.app import CaptionServer

TOKEN = "correct-horse"  # noqa: S105  a test's
PATIENCE_S = 240
PAUSE_MS = 1_000  # the first is longer than it takes to begin to snoop on a call
EACH_OF_TWENTY_S = 4
ENTERED, LEFT = "StasisStart", "StasisEnd"
USER_OF = {"sipp": "sipp", "baresip": "alice"}
PHONES = tuple(USER_OF)
SLIN_8, SLIN_16 = AudioFormat(sample_rate_hz=TELEPHONE_HZ), AudioFormat()
# How each way comes here: by its format, and whether the exchange says what language is spoken.
WAYS = {
    "100": (SLIN_8, False),  # AudioSocket application
    "101": (SLIN_16, False),  # AudioSocket channel
    "102": (SLIN_16, True),  # chan_websocket, slin16, control messages in JSON
    "103": (AudioFormat(Encoding.MULAW, TELEPHONE_HZ), True),  # chan_websocket, ulaw, plain text
}


@pytest.fixture(scope="module")
def recognizer() -> Recognizer:
    return load_real_recognizer()


@pytest.fixture(scope="module")
def spoken(speech_folder: Path) -> Recording:
    return Recording.of(speech_folder, SPOKEN, pause_ms=PAUSE_MS)


@asynccontextmanager
async def exchange(recognizer: Recognizer) -> AsyncIterator[tuple[Asterisk, CaptionServer]]:
    """Run an exchange in front of a server with real recognition."""
    async with (
        asyncio.timeout(PATIENCE_S),
        real_server(recognizer, audiosocket_port=0, token=TOKEN) as server,
        running_asterisk(server) as asterisk,
    ):
        yield asterisk, server


async def call(
    phone: str, folder: Path, asterisk: Asterisk, extension: str, said: Recording
) -> None:
    """Let a telephone play a recording to an extension."""
    await asyncio.to_thread(folder.mkdir)
    target = f"127.0.0.1:{asterisk.sip_port}"
    if phone == "sipp":
        assert await run_sipp(folder, target, said.at(TELEPHONE_HZ), service=extension) == 0
    else:
        await run_baresip(folder, f"sip:{extension}@{target}", said.at(TELEPHONE_HZ))


@pytest.fixture(scope="module")
def natives(recognizer: Recognizer, spoken: Recording) -> dict[bool, str]:
    """What the native protocol says of a call's audio, by whether the language is given."""

    async def hear() -> dict[bool, str]:
        told = NativeStart("mulaw", TELEPHONE_HZ)
        async with real_server(recognizer) as server:
            return {
                is_given: await native_text(server, spoken.mulaw(), start)
                for is_given, start in ((True, told), (False, replace(told, language="auto")))
            }

    return asyncio.run(hear())


def assert_words(heard: Heard, native: str, said: Recording) -> None:
    """Check that a call was heard as the native protocol hears its audio, and to its end."""
    assert said.errors(heard.text).rate <= said.errors(native).rate + MORE_ERRORS, heard.text
    assert said.has_last_word(heard.text), heard.text
    assert heard.done is not None
    assert abs(heard.done.received_ms - said.seconds * 1_000) < 1_000 + SPARE_MS


@pytest.mark.parametrize("phone", PHONES)
async def test_every_way_brings_the_words_of_a_call(
    phone: str,
    recognizer: Recognizer,
    spoken: Recording,
    natives: dict[bool, str],
    tmp_path: Path,
) -> None:
    async with exchange(recognizer) as (asterisk, server):
        follower = Follower(server)
        calls = (call(phone, tmp_path / way, asterisk, way, spoken) for way in WAYS)
        await asyncio.gather(*calls)
        streams = await follower.all_done(len(WAYS))
    for fmt, is_given in WAYS.values():
        (heard,) = (
            s for s in streams if (s.fmt, s.options.language is not None) == (fmt, is_given)
        )
        assert_words(heard, natives[is_given], spoken)
        assert heard.metadata["source"] in {"audiosocket", "asterisk"}
    (told,) = (s.metadata["from"] for s in streams if "from" in s.metadata)
    assert told == USER_OF[phone]


async def told(ari: ClientConnection, kind: str) -> str:
    """Return the channel of the next event of a kind.

    A channel that enters may be used from then on: before, it is not there for others.
    """
    while True:
        event = json.loads(await ari.recv())
        if event["type"] == kind:
            return str(event["channel"]["id"])


async def snoop(asterisk: Asterisk, ari: ClientConnection, number: int) -> None:
    """Bring what the caller of the next call says here, beside whatever else the call does."""
    channel = await told(ari, ENTERED)
    snooping, media = f"snoop{number}", f"media{number}"
    await asterisk.ask(f"channels/{channel}/snoop", app="captions", spy="in", snoopId=snooping)
    await asterisk.ask(
        "channels/externalMedia",
        app="captions",
        channelId=media,
        external_host="captions",
        transport="websocket",
        encapsulation="none",
        connection_type="client",
        format="slin16",
        transport_data="f(json)v(language=en)",
    )
    assert {await told(ari, ENTERED), await told(ari, ENTERED)} == {snooping, media}
    await asterisk.ask(f"bridges/bridge{number}", type="mixing")
    await asterisk.ask(f"bridges/bridge{number}/addChannel", channel=f"{snooping},{media}")


async def test_calls_are_snooped_on_without_being_touched(
    recognizer: Recognizer, spoken: Recording, natives: dict[bool, str], tmp_path: Path
) -> None:
    async with exchange(recognizer) as (asterisk, server):
        follower = Follower(server)
        events = f"ws://127.0.0.1:{asterisk.http_port}/ari/events?app=captions&api_key=demo:demo"
        async with connect(events) as ari, asyncio.TaskGroup() as calls:
            for number, phone in enumerate(PHONES):
                calls.create_task(call(phone, tmp_path / phone, asterisk, "110", spoken))
                await snoop(asterisk, ari, number)
            left: set[str] = set()
            while not left.issuperset(f"snoop{number}" for number in range(len(PHONES))):
                left.add(channel := await told(ari, LEFT))
                if channel.startswith("snoop"):  # nobody else ends what was bridged to it
                    media = channel.replace("snoop", "media")
                    await asterisk.ask(f"channels/{media}", method="DELETE")
        streams = await follower.all_done(len(PHONES))
    for heard in streams:
        assert_words(heard, natives[True], spoken)


@pytest.fixture
def said(speech_folder: Path) -> NDArray[np.int16]:
    whole = Recording.of(speech_folder, SPOKEN[:1], pause_ms=0)
    return whole.at(TELEPHONE_HZ)[: EACH_OF_TWENTY_S * TELEPHONE_HZ]


async def test_twenty_calls_at_a_time(said: NDArray[np.int16], tmp_path: Path) -> None:
    recognizer = RecordingRecognizer()
    config = ServerConfig(
        port=0, audiosocket_port=0, token=TOKEN, max_streams=20, max_lag_ms=NEVER_MERGE_MS
    )
    async with (
        asyncio.timeout(PATIENCE_S),
        open_server(
            config, recognizer=recognizer, open_detector=LoudnessDetector, pages={}
        ) as server,
        running_asterisk(server) as asterisk,
    ):
        follower = Follower(server)
        target = f"127.0.0.1:{asterisk.sip_port}"
        assert await run_sipp(tmp_path, target, said, n_calls=20, service="102") == 0
        await follower.all_done(20)
    assert min(recognizer.likeness(n, said, TELEPHONE_HZ) for n in range(20)) > 0.85
