from __future__ import annotations

from audiokv.server.telephony.exotel import ExotelDialect
from audiokv.streaming.audio_format import AudioFormat
from tests.server.telephony.fuzzing import audio_in, begin_in, gaps_in
from tests.server.telephony.media_messages import media

START = """{"event": "start", "sequence_number": "1", "stream_sid": "MZ1", "start":
{"stream_sid": "MZ1", "call_sid": "CA1", "account_sid": "AC1", "from": "+919", "to": "+918",
"custom_parameters": {"key1": "value1"},
"media_format": {"encoding": "audio/x-raw", "sample_rate": "8000", "bit_rate": "16"}}}"""


def test_a_call_as_exotel_writes_it() -> None:
    dialect = ExotelDialect()
    heard = dialect.hear('{"event":"connected"}') + dialect.hear(START)
    for n in (0, 1, 3):
        heard += dialect.hear(media(n, bytes(1_600), ms=100))
    begin = begin_in(heard)
    assert begin.fmt == AudioFormat(sample_rate_hz=8_000)
    assert begin.metadata == {
        "key1": "value1",
        "stream": "MZ1",
        "call": "CA1",
        "from": "+919",
        "to": "+918",
    }
    assert len(audio_in(heard)) == 4_800
    assert gaps_in(heard) == [100]


def test_without_a_format_it_is_linear() -> None:
    heard = ExotelDialect().hear('{"event":"start","start":{}}')
    assert begin_in(heard).fmt == AudioFormat(sample_rate_hz=8_000)
