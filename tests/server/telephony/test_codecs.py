from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.telephony.codecs import (
    CODECS,
    G722,
    OPUS,
    PCMA,
    PCMU,
    STATIC_TYPES,
    Codec,
    PayloadTypes,
    opus_ticks,
)
from audiokv.streaming.errors import MessageError
from audiokv.streaming.g711 import decode_alaw, decode_mulaw
from benchmarks.telephone_line import ENCODINGS
from tests.server.telephony.fuzzing import FUZZED

RATE_HZ = 16_000


def voice_like(seconds: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return a sweep with harmonics below 3 kHz: nothing that a codec of speech would cut off."""
    at_s = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    phase = 2 * np.pi * (120 * at_s + 40 * at_s**2)
    tone = np.sum([np.sin(k * phase) / k for k in range(1, 8)], axis=0)
    return np.asarray(0.1 * tone, np.float32)


def distance_db(said: np.ndarray, heard: np.ndarray) -> float:
    """Return signal over error in dB, at the delay and the gain that fit best."""
    size = 1 << (2 * len(said)).bit_length()
    product = np.fft.irfft(np.fft.rfft(said, size).conj() * np.fft.rfft(heard, size))
    lag = int(np.argmax(product[: RATE_HZ // 50]))
    n = min(len(said), len(heard) - lag)
    a, b = said[:n].astype(float), heard[lag : lag + n].astype(float)
    error = a - (a @ b) / (b @ b) * b
    return float(10 * np.log10((a @ a) / (error @ error)))


@pytest.mark.parametrize(("name", "least_db"), [("g722", 25.0), ("opus", 15.0), ("pcmu", 30.0)])
def test_what_a_real_encoder_makes_is_decoded(name: str, least_db: float) -> None:
    codec = {"g722": G722, "opus": OPUS, "pcmu": PCMU}[name]
    said = voice_like(2)
    decoder = codec.open()
    payloads = ENCODINGS[name].encode(said)
    heard = np.concatenate([decoder.decode(payload) for payload in payloads])
    assert len(heard) == 2 * codec.sample_rate_hz
    step = codec.sample_rate_hz // 8_000
    assert distance_db(said[::2], heard[::step]) > least_db


@pytest.mark.parametrize("name", ENCODINGS)
def test_packets_of_real_encoders_last_20_ms(name: str) -> None:
    codec = next(c for c in CODECS if c.name.lower() == name)
    for payload in ENCODINGS[name].encode(voice_like(0.5)):
        assert codec.ticks_of(payload) * 1000 == 20 * codec.clock_hz


def test_g711_is_decoded_by_its_tables() -> None:
    payload = bytes(range(256))
    assert PCMU.open().decode(payload).tolist() == decode_mulaw(payload).tolist()
    assert PCMA.open().decode(payload).tolist() == decode_alaw(payload).tolist()


@pytest.mark.parametrize(
    ("first", "rest", "ticks"),
    [
        (0b00000_0_00, b"", 480),  # SILK, 10 ms
        (0b00011_0_00, b"", 2_880),  # SILK, 60 ms
        (0b00011_0_01, b"", 5_760),  # two of them: the longest packet
        (0b01101_0_10, b"", 1_920),  # hybrid, 20 ms, two of different size
        (0b10000_0_00, b"", 120),  # CELT, 2.5 ms
        (0b11111_0_11, b"\x03", 2_880),  # CELT, 20 ms, three
        (0b11111_0_11, b"\xc6", 5_760),  # six; the high bits say other things
        (0b11111_0_11, b"\x07", 0),  # seven are longer than a packet may be
        (0b11111_0_11, b"\x00", 0),
        (0b11111_0_11, b"", 0),
    ],
)
def test_the_first_byte_of_opus_tells_its_length(first: int, rest: bytes, ticks: int) -> None:
    assert opus_ticks(bytes([first]) + rest) == ticks


def test_an_empty_payload_has_no_length() -> None:
    assert [codec.ticks_of(b"") for codec in CODECS] == [0] * len(CODECS)


@FUZZED
@given(st.sampled_from(CODECS), st.lists(st.binary(min_size=1, max_size=80), max_size=5))
def test_any_payload_is_decoded_or_refused(codec: Codec, payloads: list[bytes]) -> None:
    decoder = codec.open()
    for payload in payloads:
        with suppress(MessageError):
            assert decoder.decode(payload).dtype == np.int16


def test_a_broken_payload_is_told_by_codec_and_length() -> None:
    with pytest.raises(MessageError, match="3 bytes is no libopus audio") as caught:
        OPUS.open().decode(b"\xff\x41\xff")
    assert caught.value.code == "bad_payload"


def test_static_types_are_known_and_others_learnt() -> None:
    types = PayloadTypes()
    assert {n: types.codec(n) for n in STATIC_TYPES} == {0: PCMU, 8: PCMA, 9: G722}
    assert types.codec(111) is None
    assert types.learn(111, "OPUS", 48_000)
    assert types.learn(97, "pcma", 8_000)
    assert (types.codec(111), types.codec(97), types.codec(0)) == (OPUS, PCMA, PCMU)
    assert PayloadTypes().codec(111) is None


@pytest.mark.parametrize(
    ("payload_type", "name", "clock_hz"),
    [
        (18, "G729", 8_000),
        (101, "telephone-event", 8_000),
        (111, "opus", 16_000),
        (9, "G722", 16_000),  # RFC 3551: its clock is 8,000 although its audio is not
        (13, "CN", 8_000),
        (200, "opus", 48_000),
        (-1, "PCMU", 8_000),
        (18, "", 0),
    ],
)
def test_other_codecs_are_not_taken(payload_type: int, name: str, clock_hz: int) -> None:
    types = PayloadTypes()
    before = types.codec(payload_type)
    assert not types.learn(payload_type, name, clock_hz)
    assert types.codec(payload_type) is before


def test_a_static_type_needs_no_name() -> None:
    assert all(PayloadTypes().learn(n, "", 0) for n in STATIC_TYPES)
