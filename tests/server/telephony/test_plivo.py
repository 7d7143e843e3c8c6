from __future__ import annotations

import pytest

from audiokv.server.protocols.dialect import Opening
from audiokv.server.refusals import RefusalError
from audiokv.server.telephony.plivo import PlivoDialect
from audiokv.streaming.audio_format import AudioFormat, Encoding
from tests.server.telephony.fuzzing import audio_in, begin_in, let_in, turn_away
from tests.server.telephony.media_messages import media

START = """{"sequenceNumber": 0, "event": "start", "start": {"callId": "c1", "streamId": "s1",
"accountId": "a", "tracks": ["inbound"], "mediaFormat": {"encoding": "audio/x-l16",
"sampleRate": 16000}}, "extra_headers": "{}"}"""


def test_a_call_as_plivo_writes_it() -> None:
    dialect = PlivoDialect(let_in)
    dialect.open(Opening("/call/plivo"))
    heard = dialect.hear(START) + dialect.hear(media(0, bytes(640)))
    assert begin_in(heard).fmt == AudioFormat()
    assert begin_in(heard).metadata == {"source": "plivo", "stream": "s1", "call": "c1"}
    assert len(audio_in(heard)) == 640


def test_mulaw_is_taken_where_start_says_so() -> None:
    heard = PlivoDialect(let_in).hear(
        '{"event":"start","start":{"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000}}}'
    )
    assert begin_in(heard).fmt == AudioFormat(Encoding.MULAW, 8_000)


def test_without_a_format_it_is_linear() -> None:
    heard = PlivoDialect(let_in).hear('{"event":"start","start":{}}')
    assert begin_in(heard).fmt == AudioFormat(sample_rate_hz=8_000)


def test_who_connects_is_checked_by_the_opening() -> None:
    opening = Opening("/call/plivo")
    checked: list[Opening] = []
    assert PlivoDialect(checked.append).open(opening) == []
    assert checked == [opening]
    with pytest.raises(RefusalError):
        PlivoDialect(turn_away).open(opening)
