"""Calls through a running server: every sample arrives, in its own stream, to its end."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from audiokv.server.protocols.routes import PATHS
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.g711 import encode_mulaw
from audiokv.streaming.messages import Ready
from tests.server.doubles import captions_in, silence, speech, undisturbed, until
from tests.server.running import Source, running_server
from tests.server.telephony.calling import AudioSocketCaller, Follower
from tests.server.telephony.media_messages import media, start
from tests.server.telephony.test_audiohook import client, open_message

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from audiokv.server.app import CaptionServer
    from audiokv.streaming.captions import Caption

CALL = UUID("6f6c7a0e-8d0b-4b7e-9d3f-0a1b2c3d4e5f")
NARROW = AudioFormat(sample_rate_hz=8_000)
MULAW = AudioFormat(Encoding.MULAW, 8_000)


def narrow_speech(seed: int, seconds: float = 3) -> bytes:
    """Return pcm_s16le at 8 kHz that no other seed gives."""
    wide = np.frombuffer(speech(seed, seconds=2 * seconds, pause_every_s=3), "<i2")
    return (wide // 2).astype("<i2").tobytes()[: int(seconds * 16_000)]


def finals(captions: list[Caption]) -> list[tuple[str, int, int]]:
    return [(c.text, c.start_ms, c.end_ms) for c in captions if c.is_final]


def expected(audio: bytes, fmt: AudioFormat) -> list[tuple[str, int, int]]:
    return finals(captions_in(undisturbed(audio, fmt=fmt)))


def call_url(server: CaptionServer, provider: str) -> str:
    return server.page_url.replace("http", "ws", 1) + f"v1/call/{provider}"


async def dial(server: CaptionServer, provider: str) -> ClientConnection:
    return await connect(call_url(server, provider), compression=None)


async def test_an_audiosocket_call_is_heard_to_the_last_sample() -> None:
    audio = narrow_speech(1)
    async with running_server(audiosocket_port=0) as server:
        follower = Follower(server)
        caller = await AudioSocketCaller.dial(server, CALL)
        await caller.speak(audio)
        await caller.hang_up()
        (heard,) = await follower.all_done(1)
    assert heard.metadata == {"source": "audiosocket", "call": str(CALL)}
    assert finals(heard.captions) == expected(audio, NARROW) != []
    assert heard.done is not None
    assert heard.done.received_ms == 3_000


async def test_asterisk_hears_silence_every_second_while_it_says_nothing() -> None:
    async with running_server(audiosocket_port=0) as server:
        caller = await AudioSocketCaller.dial(server, CALL)
        silence_frame = b"\x10\x01\x40" + bytes(320)
        for _ in range(2):
            assert await caller._reader.readexactly(323) == silence_frame
        caller.send(0)
        assert (await caller.rest()).endswith(b"\0\0\0")


async def test_twenty_calls_at_a_time_lose_and_mix_nothing() -> None:
    calls = {str(UUID(int=n)): narrow_speech(n, seconds=2) for n in range(20)}
    async with running_server(audiosocket_port=0, max_streams=20) as server:
        follower = Follower(server)

        async def call(name: str, audio: bytes) -> None:
            caller = await AudioSocketCaller.dial(server, UUID(name))
            await caller.speak(audio)
            await caller.hang_up()

        await asyncio.gather(*(call(name, audio) for name, audio in calls.items()))
        streams = await follower.all_done(20)
    texts = {heard.metadata["call"]: finals(heard.captions) for heard in streams}
    assert texts == {name: expected(audio, NARROW) for name, audio in calls.items()}


async def test_broken_frames_end_only_their_own_call() -> None:
    audio = narrow_speech(2)
    async with running_server(audiosocket_port=0) as server:
        follower = Follower(server)
        good = await AudioSocketCaller.dial(server, CALL)
        await good.speak(audio[:16_000])
        bad = await AudioSocketCaller.dial(server, UUID(int=2))
        await bad.speak(audio[:9_600])
        await until(lambda: len(follower.streams) == 2)
        bad.send_raw(b"\x10\x00\x03abc")
        assert (await bad.rest()).endswith(b"\0\0\0")
        stranger = await AudioSocketCaller.dial(server, UUID(int=3))
        stranger.send_raw(b"\x12\x00\x01")
        assert (await stranger.rest()).endswith(b"\0\0\0")
        await good.speak(audio[16_000:])
        await good.hang_up()
        streams = await follower.all_done(2)
    texts = {heard.metadata["call"]: finals(heard.captions) for heard in streams}
    assert texts[str(CALL)] == expected(audio, NARROW)
    assert texts[str(UUID(int=2))] == expected(audio[:9_600], NARROW)


async def test_a_twilio_call_keeps_its_time_over_lost_chunks() -> None:
    samples = np.frombuffer(narrow_speech(4), "<i2")
    sent = [encode_mulaw(samples[at : at + 160]) for at in range(0, len(samples), 160)]
    lost = range(80, 120)
    async with running_server() as server:
        follower = Follower(server)
        async with await dial(server, "twilio") as call:
            await call.send('{"event":"connected","protocol":"Call","version":"1.0.0"}')
            await call.send(start(customParameters={"from": "+1"}))
            for n, audio in enumerate(sent):
                if n not in lost:
                    await call.send(media(n, audio))
            await call.send('{"event":"stop"}')
            await call.wait_closed()
            assert call.close_code == 1000
        (heard,) = await follower.all_done(1)
    as_silence = b"".join(b"\xff" * 160 if n in lost else one for n, one in enumerate(sent))
    assert finals(heard.captions) == expected(as_silence, MULAW)
    assert heard.metadata == {
        "source": "twilio",
        "stream": "MZ1",
        "call": "CA1",
        "from": "+1",
    }
    assert heard.done is not None
    assert heard.done.received_ms == 3_000


async def test_two_tracks_are_two_speakers() -> None:
    legs = [np.frombuffer(narrow_speech(n), "<i2") for n in (5, 6)]
    coded = [[encode_mulaw(leg[at : at + 160]) for at in range(0, len(leg), 160)] for leg in legs]
    async with running_server() as server:
        follower = Follower(server)
        async with await dial(server, "twilio") as call:
            await call.send(start(tracks=["inbound", "outbound"]))
            for n, (first, second) in enumerate(zip(*coded, strict=True)):
                await call.send(media(n, first, "inbound"))
                await call.send(media(n, second, "outbound"))
            await call.send('{"event":"stop"}')
            await call.wait_closed()
        (heard,) = await follower.all_done(1)
    for label, leg in zip(("inbound", "outbound"), coded, strict=True):
        own = [c for c in heard.captions if c.speaker == label]
        assert finals(own) == expected(b"".join(leg), MULAW)


async def test_viewers_are_told_who_calls_and_the_log_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    async with running_server() as server, await dial(server, "twilio") as call:
        follower = Follower(server)
        await call.send(start(customParameters={"from": "+15550100", "caller": "Zoë"}))
        await until(lambda: bool(follower.streams))
        (name,) = server.registry._by_name
        viewer = await Source.watch(server, name)
        told = (await viewer.wait_for(Ready)).metadata
        await call.send('{"event":"stop"}')
        await call.wait_closed()
    assert told == {
        "source": "twilio",
        "stream": "MZ1",
        "call": "CA1",
        "from": "+15550100",
        "caller": "Zoë",
    }
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("audiokv")]
    assert ours
    assert not any(secret in line for line in ours for secret in ("+15550100", "Zoë", "CA1"))


async def test_jambonz_gets_its_transcripts_and_the_close() -> None:
    audio = narrow_speech(7)
    async with running_server() as server, await dial(server, "jambonz-stt") as call:
        await call.send('{"type":"start","language":"en-US","encoding":"LINEAR16"}')
        for at in range(0, len(audio), 320):
            await call.send(audio[at : at + 320])
        await call.send('{"type":"stop"}')
        said = [json.loads(message) async for message in call]
        assert call.close_code == 1000
    texts = [one["alternatives"][0]["transcript"] for one in said if one["is_final"]]
    assert texts == [text for text, _, _ in expected(audio, NARROW)]


async def test_genesys_gets_the_transcripts_of_both_sides_before_the_close() -> None:
    legs = [encode_mulaw(np.frombuffer(narrow_speech(n), "<i2")) for n in (11, 12)]
    both = np.stack([np.frombuffer(leg, np.uint8) for leg in legs], axis=1).tobytes()
    async with running_server() as server, await dial(server, "audiohook") as call:
        await call.send(open_message(language="en-US"))
        assert json.loads(await call.recv())["type"] == "opened"
        for at in range(0, len(both), 3_200):
            await call.send(both[at : at + 3_200])
        await call.send(client("ping", 2))
        await call.send(client("close", 3, reason="end"))
        said = [json.loads(message) async for message in call]
    assert [message["seq"] for message in said] == list(range(2, len(said) + 2))
    assert "pong" in [message["type"] for message in said]
    assert said[-1]["type"] == "closed"
    heard = [m["parameters"]["entities"][0]["data"] for m in said if m["type"] == "event"]
    for side, leg in zip(("external", "internal"), legs, strict=True):
        texts = [
            one["alternatives"][0]["interpretations"][0]["transcript"]
            for one in heard
            if one["isFinal"] and one["channel"] == side
        ]
        assert texts == [text for text, _, _ in expected(leg, MULAW)]


async def test_asterisk_and_freeswitch_are_heard_alike() -> None:
    audio = speech(8, seconds=3)
    starts = {
        "asterisk": "MEDIA_START channel_id:1.2 format:slin16 optimal_frame_size:640 ptime:20",
        "freeswitch?rate=16000": '{"caller":"7"}',
    }
    async with running_server() as server:
        follower = Follower(server)
        for provider, first in starts.items():
            async with await dial(server, provider) as call:
                await call.send(first)
                for at in range(0, len(audio), 640):
                    await call.send(audio[at : at + 640])
        streams = await follower.all_done(2)
    for heard in streams:
        assert finals(heard.captions) == expected(audio, AudioFormat())


@pytest.mark.parametrize(
    ("provider", "subprotocol"),
    [
        ("asterisk", "media"),
        ("freeswitch", "audio.drachtio.org"),
        ("jambonz", "audio.jambonz.org"),
    ],
)
async def test_an_exchange_is_granted_the_subprotocol_it_offers(
    provider: str, subprotocol: str
) -> None:
    async with (
        running_server() as server,
        connect(call_url(server, provider), subprotocols=[Subprotocol(subprotocol)]) as call,
    ):
        assert call.subprotocol == subprotocol


async def test_an_exchange_may_present_the_token_as_a_password() -> None:
    async with running_server(token="correct-horse") as server:  # noqa: S106  a test's
        url = call_url(server, "asterisk").replace("://", "://asterisk:correct-horse@")
        async with connect(url, compression=None) as call:
            await call.send("MEDIA_START format:ulaw")
        with pytest.raises(InvalidStatus):
            await connect(call_url(server, "asterisk"))


async def test_a_wrong_signature_is_turned_away() -> None:
    async with running_server(twilio_auth_token="secret") as server:  # noqa: S106, SIM117
        async with await dial(server, "twilio") as call:
            await call.wait_closed()
            assert (call.close_code, call.close_reason) == (4401, "bad_signature")


@pytest.mark.parametrize(
    "provider", [path.rpartition("/")[2] for path in PATHS if path.startswith("/v1/call/")]
)
async def test_every_provider_has_its_path_and_its_own_error(provider: str) -> None:
    async with running_server() as server, await dial(server, provider) as call:
        await call.send("\x00 not of this world" if provider != "freeswitch" else '{"rate":1}')
        await call.send(silence(seconds=0.02))
        await call.wait_closed()
        assert call.close_code == 4400
