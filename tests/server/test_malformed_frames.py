"""A malformed frame ends the stream it came in, and no other, whatever the transport."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np
import pytest
from websockets.asyncio.client import connect

from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.g711 import decode_mulaw, encode_mulaw
from tests.server.doubles import captions_in, speech, undisturbed, until
from tests.server.protocols.test_native_faults import START
from tests.server.running import Source, complete, running_server
from tests.server.telephony.calling import AudioSocketCaller, Follower, Heard
from tests.server.telephony.media_messages import media, start
from tests.server.telephony.rtp_packets import rtp
from tests.server.telephony.sip_caller import SipCaller

if TYPE_CHECKING:
    from audiokv.server.app import CaptionServer
    from audiokv.streaming.captions import Caption

NARROW = AudioFormat(sample_rate_hz=8_000)
GOOD, BAD = UUID(int=1), UUID(int=2)
PACKET_SAMPLES = 160
HELD_BACK_MS = 10  # by the resampler of a call, until its end


def narrow_speech(seed: int, seconds: float = 2) -> bytes:
    """Return pcm_s16le at 8 kHz that no other seed gives."""
    wide = np.frombuffer(speech(seed, seconds=2 * seconds, pause_every_s=60), "<i2")
    return (wide // 2).astype("<i2").tobytes()[: int(seconds * 16_000)]


def finals(captions: list[Caption]) -> list[str]:
    return [c.text for c in captions if c.is_final]


def expected(audio: bytes, fmt: AudioFormat = NARROW) -> list[str]:
    return finals(captions_in(undisturbed(audio, fmt=fmt)))


def lengths_of(server: CaptionServer) -> list[int]:
    return [entry.stream.received_ms for entry in server.registry._by_name.values()]


def of_call(streams: list[Heard], call: object) -> Heard:
    (heard,) = (s for s in streams if s.metadata["call"] == str(call))
    return heard


@pytest.mark.parametrize("malformed", ["{", START, '{"type":"caption"}', '{"type":"stop","now":1}'])
async def test_a_websocket_of_the_native_protocol(malformed: str) -> None:
    audio = speech(1, seconds=2)
    async with running_server() as server:
        good, bad = await Source.open(server), await Source.open(server)
        await good.start()
        await good.send_audio(audio[:30_000])
        await bad.start()
        await bad.send_audio(audio[:3_000])
        await bad.connection.send(malformed)
        _, close_code = await bad.error()
        assert close_code == 4400
        await complete(good, audio[30_000:])
    assert good.captions == captions_in(undisturbed(audio))


@pytest.mark.parametrize(
    "malformed", ["{", '{"event":[]}', b"\0", media(3, b"?").replace("Pw", "?")]
)
async def test_a_websocket_of_a_call(malformed: str | bytes) -> None:
    samples = np.frombuffer(narrow_speech(2), "<i2")
    chunks = [
        encode_mulaw(samples[at : at + PACKET_SAMPLES])
        for at in range(0, len(samples), PACKET_SAMPLES)
    ]
    coded = np.concatenate([decode_mulaw(chunk) for chunk in chunks]).tobytes()
    async with running_server() as server:
        follower = Follower(server)
        url = server.page_url.replace("http", "ws", 1) + "v1/call/twilio"
        async with connect(url) as good, connect(url) as bad:
            await good.send(start(callSid=str(GOOD)))
            await bad.send(start(callSid=str(BAD)))
            for n, chunk in enumerate(chunks):
                await good.send(media(n, chunk))
                if n == len(chunks) // 2:
                    await bad.send(media(0, chunk))
                    await bad.send(malformed)
                    await bad.wait_closed()
                    assert bad.close_code == 4400
            await good.send('{"event":"stop"}')
            await good.wait_closed()
            assert good.close_code == 1000
        streams = await follower.all_done(2)
    assert finals(of_call(streams, GOOD).captions) == expected(coded) != []


@pytest.mark.parametrize("malformed", [b"\x10\x00\x03abc", b"\x12\x00\x02ab"])
async def test_tcp(malformed: bytes) -> None:
    audio = narrow_speech(3)
    async with running_server(audiosocket_port=0) as server:
        follower = Follower(server)
        good = await AudioSocketCaller.dial(server, GOOD)
        bad = await AudioSocketCaller.dial(server, BAD)
        await good.speak(audio[:16_000])
        await bad.speak(audio[:3_200])
        await until(lambda: len(follower.streams) == 2)
        bad.send_raw(malformed)
        assert (await bad.rest()).endswith(b"\0\0\0")
        await good.speak(audio[16_000:])
        await good.hang_up()
        streams = await follower.all_done(2)
    assert finals(of_call(streams, GOOD).captions) == expected(audio) != []


@pytest.mark.parametrize("malformed", [b"?", b"\xff" * 40, rtp(0)[:11], rtp(0, b""), bytes(1_400)])
async def test_udp(malformed: bytes) -> None:
    """No datagram is a reason to end a call: whoever knows its port can send one."""
    n_packets = 60
    async with running_server(sip_port=0) as server:
        follower = Follower(server)
        good, bad = (SipCaller(server.other_ports["sip_port"], name) for name in ("good", "bad"))
        for caller in (good, bad):
            await caller.open()
            assert await caller.invite(0) == 200
        await until(lambda: len(follower.streams) == 2)
        for n in range(n_packets):
            for caller in (good, bad):
                caller.send_audio(rtp(n))
            bad.send_audio(malformed)
        await until(lambda: min(lengths_of(server)) >= 20 * n_packets - HELD_BACK_MS)
        for caller in (good, bad):
            assert await caller.hang_up() == 200
            caller.close()
        streams = await follower.all_done(2)
    lengths_ms = {s.metadata["call"]: s.done.received_ms for s in streams if s.done is not None}
    assert lengths_ms["good"] == lengths_ms["bad"] == 20 * n_packets
