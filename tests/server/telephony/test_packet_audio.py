from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.server.telephony.codecs import CODECS, G722, OPUS, PCMA, PCMU, Codec
from audiokv.server.telephony.packet_audio import PacketAudio
from audiokv.streaming.errors import MessageError
from audiokv.streaming.g711 import decode_mulaw
from audiokv.streaming.resampler import StreamResampler
from benchmarks.telephone_line import ENCODINGS

PACKET_BYTES = 640  # 20 ms of what comes out


def payloads(codec: Codec, n_packets: int) -> list[bytes]:
    noise = np.random.default_rng(5).standard_normal(320 * n_packets) * 0.1
    return ENCODINGS[codec.name.lower()].encode(noise.astype(np.float32))


@pytest.mark.parametrize("codec", CODECS)
def test_as_much_comes_out_as_went_in(codec: Codec) -> None:
    audio = PacketAudio()
    heard = [audio.push(codec, payload) for payload in payloads(codec, 10)]
    assert sum(map(len, heard)) > 9 * PACKET_BYTES
    assert sum(map(len, heard)) + len(audio.flush()) == 10 * PACKET_BYTES
    assert audio.flush() == b""


def test_the_samples_are_those_of_one_resampler() -> None:
    audio = PacketAudio()
    spoken = payloads(PCMU, 10)
    heard = b"".join([*(audio.push(PCMU, payload) for payload in spoken), audio.flush()])
    resampler = StreamResampler(8_000)
    narrow = decode_mulaw(b"".join(spoken)).astype(np.float32)
    wide = np.concatenate([resampler.push(narrow), resampler.flush()])
    assert np.frombuffer(heard, "<i2").tolist() == np.rint(wide).astype(int).tolist()


def test_peaks_between_samples_are_clipped() -> None:
    square = (b"\x80" * 4 + b"\x00" * 4) * 20  # full scale, in turns
    audio = PacketAudio()
    heard = np.frombuffer(audio.push(PCMU, square) + audio.flush(), "<i2")
    assert heard.max() == 32_767
    assert heard.min() == -32_768


@settings(deadline=None)
@given(st.lists(st.sampled_from(CODECS), min_size=1, max_size=12))
def test_codecs_may_change_at_every_packet(codecs: list[Codec]) -> None:
    spoken = {codec.name: payloads(codec, len(codecs)) for codec in CODECS}
    audio = PacketAudio()
    heard = b"".join(audio.push(c, spoken[c.name][n]) for n, c in enumerate(codecs))
    assert len(heard + audio.flush()) == len(codecs) * PACKET_BYTES


def test_a_broken_payload_changes_nothing() -> None:
    audio, undisturbed = PacketAudio(), PacketAudio()
    first, second = payloads(PCMA, 2)
    expected = undisturbed.push(PCMA, first) + undisturbed.push(PCMA, second)
    heard = audio.push(PCMA, first)
    for broken in (b"\xff\x00\x00", b"\xff\x41\xff"):
        with pytest.raises(MessageError) as caught:
            audio.push(OPUS, broken)
        assert caught.value.code == "bad_payload"
    assert heard + audio.push(PCMA, second) == expected


def test_behind_a_flush_nothing_is_known_of_what_was_before() -> None:
    spoken = payloads(G722, 4)
    audio, fresh = PacketAudio(), PacketAudio()
    for payload in spoken[:2]:
        audio.push(G722, payload)
    audio.flush()
    assert audio.push(G722, spoken[3]) == fresh.push(G722, spoken[3])
