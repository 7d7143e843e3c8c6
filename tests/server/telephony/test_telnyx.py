from __future__ import annotations

import pytest

from audiokv.server.telephony.telnyx import REORDER_MS, TelnyxDialect
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.errors import MessageError
from tests.server.telephony.fuzzing import audio_in, begin_in, gaps_in
from tests.server.telephony.media_messages import media

START = """{"event": "start", "sequence_number": "1", "stream_id": "s1", "start":
{"user_id": "u", "call_control_id": "v2:c1", "from": "+13122010094", "to": "+13122123456",
"media_format": {"encoding": "%s", "sample_rate": 8000, "channels": 1},
"custom_parameters": {"language": "en-GB"}}}"""


@pytest.mark.parametrize(("codec", "encoding"), [("PCMU", "mulaw"), ("PCMA", "alaw")])
def test_a_call_as_telnyx_writes_it(codec: str, encoding: str) -> None:
    dialect = TelnyxDialect()
    begin = begin_in(dialect.hear(START % codec))
    assert begin.fmt == AudioFormat(Encoding(encoding), 8_000)
    assert begin.language == "en"
    assert begin.metadata == {
        "language": "en-GB",
        "call": "v2:c1",
        "from": "+13122010094",
        "to": "+13122123456",
        "stream": "s1",
    }


def test_chunks_out_of_order_are_put_in_order() -> None:
    dialect = TelnyxDialect()
    heard = dialect.hear(START % "PCMU")
    for n in (0, 3, 1, 2, 5, 4):
        heard += dialect.hear(media(n))
    assert audio_in(heard) == b"".join(bytes([n]) * 160 for n in range(6))
    assert gaps_in(heard) == []


def test_a_lost_chunk_holds_the_rest_up_for_a_tenth_of_a_second() -> None:
    dialect = TelnyxDialect()
    dialect.hear(START % "PCMU")
    dialect.hear(media(0))
    waits = [not dialect.hear(media(n)) for n in range(2, 8)]
    assert waits == [True] * 5 + [False]
    assert REORDER_MS == 100


def test_a_codec_that_is_not_g711_is_refused() -> None:
    with pytest.raises(MessageError):
        TelnyxDialect().hear(START % "AMR-WB")
