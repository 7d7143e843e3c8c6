from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from audiokv.server.config import ServerConfig
from audiokv.server.telephony.sip import SipPort
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.g711 import decode_mulaw, encode_alaw, encode_mulaw
from benchmarks.telephone_line import ENCODINGS
from tests.server.doubles import ManualClock, captions_in, settle, undisturbed, until
from tests.server.running import running_server
from tests.server.telephony.calling import Follower
from tests.server.telephony.rtp_packets import rtp, wide
from tests.server.telephony.sip_caller import SipCaller
from tests.server.telephony.telephone import samples_of, speak, taken, telephone

if TYPE_CHECKING:
    from audiokv.streaming.captions import Caption

NARROW = AudioFormat(sample_rate_hz=8_000)


def finals(captions: list[Caption]) -> list[tuple[str, int, int]]:
    return [(c.text, c.start_ms, c.end_ms) for c in captions if c.is_final]


def expected(audio: bytes) -> list[tuple[str, int, int]]:
    return finals(captions_in(undisturbed(audio, fmt=NARROW)))


async def test_a_call_is_answered_heard_and_ended_by_bye() -> None:
    samples = samples_of(1, 100)
    packets = [rtp(n, encode_mulaw(part)) for n, part in enumerate(samples)]
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        follower = Follower(server)
        assert await caller.invite(0, 8, 101) == 200
        assert "a=recvonly" in caller.answer
        await until(lambda: bool(follower.streams))
        await speak(server, caller, packets)
        await taken(server, 1_990)
        assert await caller.hang_up() == 200
        (heard,) = await follower.all_done(1)
    audio = b"".join(decode_mulaw(encode_mulaw(part)).tobytes() for part in samples)
    assert finals(heard.captions) == expected(audio) != []
    assert heard.done is not None
    assert heard.done.received_ms == 2_000
    assert heard.metadata["call"] == "call-1"
    assert heard.metadata["from"].startswith("sip:alice@127.0.0.1")


async def test_lost_and_overtaken_packets_leave_the_time_true() -> None:
    samples = samples_of(2, 100)
    packets = [rtp(n, encode_mulaw(part)) for n, part in enumerate(samples)]
    packets[10], packets[11] = packets[11], packets[10]
    del packets[40:60]
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        follower = Follower(server)
        await caller.invite(0)
        await until(lambda: bool(follower.streams))
        await speak(server, caller, packets)
        await taken(server, 1_990)
        await caller.hang_up()
        (heard,) = await follower.all_done(1)
    coded = [decode_mulaw(encode_mulaw(part)) for part in samples]
    kept = wide(np.concatenate(coded[:40])) + bytes(20 * 640) + wide(np.concatenate(coded[60:]))
    assert finals(heard.captions) == finals(captions_in(undisturbed(kept)))


async def test_a_change_of_codec_within_the_call_is_followed() -> None:
    samples = samples_of(3, 60)
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        follower = Follower(server)
        await caller.invite(0)
        first_port = caller.audio_port
        await until(lambda: bool(follower.streams))
        await speak(server, caller, [rtp(n, encode_mulaw(samples[n])) for n in range(30)])
        await taken(server, 590)
        assert await caller.invite(8) == 200
        assert caller.audio_port == first_port
        await speak(
            server, caller, [rtp(n, encode_alaw(samples[n]), kind=8) for n in range(30, 60)]
        )
        await taken(server, 1_190)
        await caller.hang_up()
        (heard,) = await follower.all_done(1)
    assert heard.done is not None
    assert heard.done.received_ms == 1_200


async def test_a_call_on_hold_is_answered_in_kind() -> None:
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        await caller.invite(0)
        assert await caller.invite(0, direction="inactive") == 200
        assert "a=inactive" in caller.answer
        assert await caller.invite(0, direction="sendonly") == 200
        assert "a=recvonly" in caller.answer
        assert await caller.invite(18) == 488


async def test_an_invite_sent_again_opens_no_second_stream() -> None:
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        follower = Follower(server)
        offer = caller.offer(0)
        caller.send("INVITE", offer)
        await caller.response("INVITE")
        caller.send("INVITE", offer, number=1)
        assert (await caller.response("INVITE")).startswith("SIP/2.0 200")
        await settle()
        assert len(follower.streams) == 1


@pytest.mark.parametrize(
    ("codecs", "chosen"),
    [
        ((18, 3), None),
        ((18, 0), "PCMU/8000"),
        ((9, 8), "G722/8000"),
        ((8, 9), "PCMA/8000"),
        ((18, 107, 0), "opus/48000/2"),
    ],
)
async def test_the_callers_first_codec_that_is_known_is_taken(
    codecs: tuple[int, ...], chosen: str | None
) -> None:
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        status = await caller.invite(*codecs, maps=("107 opus/48000/2",))
        assert status == (488 if chosen is None else 200)
        taken_types = re.findall(r"(?m)^a=rtpmap:\d+ (\S+)", caller.answer)
        assert taken_types == ([] if chosen is None else [chosen])


async def test_a_call_in_opus_is_heard_by_the_number_the_caller_gave_it() -> None:
    encoding = ENCODINGS["opus"]
    noise = np.random.default_rng(6).standard_normal(320 * 50).astype(np.float32) * 0.1
    packets = [
        rtp(n, payload, kind=107, late=n * 800) for n, payload in enumerate(encoding.encode(noise))
    ]
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        follower = Follower(server)
        assert await caller.invite(107, maps=("107 OPUS/48000/2",)) == 200
        await until(lambda: bool(follower.streams))
        await speak(server, caller, packets)
        await taken(server, 990)
        await caller.hang_up()
        (heard,) = await follower.all_done(1)
    assert heard.done is not None
    assert heard.done.received_ms == 1_000
    assert finals(heard.captions) != []


async def test_a_call_without_an_offer_is_refused() -> None:
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        caller.send("INVITE")
        assert (await caller.response("INVITE")).startswith("SIP/2.0 488")


async def test_a_full_server_answers_no_further_call() -> None:
    async with (
        running_server(sip_port=0, max_streams=1) as server,
        telephone(server, "first") as first,
        telephone(server, "second") as second,
    ):
        assert await first.invite(0) == 200
        await until(lambda: server.registry.n_streams == 1)
        assert await second.invite(0) == 503
        await first.hang_up()
        await until(lambda: server.registry.n_streams == 0)


async def test_a_stranger_is_refused_and_may_ask_for_nothing_else() -> None:
    async with (
        running_server(sip_port=0, sip_allow=("192.0.2.0/24",)) as server,
        telephone(server) as caller,
    ):
        caller.send("OPTIONS")
        assert await caller.invite(0) == 403
        assert server.registry.n_kept == 0
        assert not caller._heard.heard.qsize()


async def test_the_end_of_the_server_hangs_up() -> None:
    async with running_server(sip_port=0) as server:
        caller = SipCaller(server.other_ports["sip_port"])
        await caller.open()
        await caller.invite(0)
        await until(lambda: server.registry.n_streams == 1)
    assert (await caller.request()).startswith("BYE ")
    caller.close()


async def test_noise_on_the_port_ends_nothing() -> None:
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        await caller.invite(0)
        await until(lambda: server.registry.n_streams == 1)
        for noise in (
            b"",
            b"\x00" * 90,
            b"INVITE",
            b"INVITE sip:x SIP/2.0\r\n\r\n",
            b"\xff\xfe" * 40,
        ):
            caller._signals.sendto(noise, caller._peer)
            caller.send_audio(noise)
        await asyncio.sleep(0)
        assert await caller.hang_up() == 200


def test_an_unknown_network_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match="neighbours"):
        ServerConfig(sip_allow=("neighbours",))


async def test_a_port_that_is_taken_is_told() -> None:
    async with running_server(sip_port=0) as server:
        taken_port = server.other_ports["sip_port"]
        with pytest.raises(ConfigError) as caught:
            async with running_server(sip_port=taken_port):
                pytest.fail("two servers at one port")
    assert caught.value.code == "port_in_use"
    assert "--sip-port" in caught.value.remedy


async def test_without_the_library_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "audiokv.server.telephony.sip", None)
    with pytest.raises(ConfigError) as caught:
        async with running_server(sip_port=0):
            pytest.fail("no library, no port")
    assert caught.value.code == "missing_extra"
    assert "audiokv[sip]" in caught.value.remedy


async def test_a_call_that_fails_inside_is_hung_up_and_ends_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def break_down(*_: object) -> None:
        raise RuntimeError("secret words")

    port = SipPort(break_down, has_room=lambda: True, allowed=["127.0.0.1"], clock=ManualClock())
    await port.listen("127.0.0.1", 0)
    for call_id in ("first", "second"):
        caller = SipCaller(port.sockets[0].getsockname()[1], call_id)
        await caller.open()
        assert await caller.invite(0) == 200
        assert (await caller.request()).startswith("BYE ")
        caller.close()
    port.close()
    await port.wait_closed()
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


async def test_without_a_socket_for_the_audio_the_call_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_server(sip_port=0) as server, telephone(server) as caller:
        monkeypatch.setattr("audiokv.server.telephony.sip._address_towards", lambda _: "192.0.2.1")
        assert await caller.invite(0) == 503
        assert server.registry.n_kept == 0
