from __future__ import annotations

import pytest

from audiokv.server.protocols.dialect import Audio, Gap, Opening, Stop
from audiokv.server.telephony.call_audio import CallAudio
from audiokv.server.telephony.raw_call import RawCallDialect
from audiokv.streaming.audio_format import Encoding
from audiokv.streaming.errors import MessageError


def test_the_time_of_a_call_that_sends_nothing_goes_on() -> None:
    dialect = RawCallDialect()
    assert dialect.miss(3_000) == []
    dialect._audio = CallAudio(Encoding.PCM_S16LE, 8_000)
    assert dialect.miss(3_000) == [Gap(3_000)]


def test_audio_needs_its_format_first() -> None:
    dialect = RawCallDialect()
    with pytest.raises(MessageError) as caught:
        dialect._take(b"ab", "connect")
    assert "2 bytes of audio came before connect" in caught.value.message
    dialect._audio = CallAudio(Encoding.PCM_S16LE, 8_000)
    assert dialect._take(b"ab", "connect") == [Audio(b"ab")]


def test_nothing_comes_after_the_end() -> None:
    dialect = RawCallDialect()
    dialect._audio = CallAudio(Encoding.PCM_S16LE, 8_000)
    assert dialect._stop() == [Stop()]
    assert dialect._take(b"ab", "connect") == []
    assert dialect.miss(3_000) == []
    assert dialect._stop() == []


def test_the_address_is_read() -> None:
    dialect = RawCallDialect()
    assert dialect.open(Opening(query={"language": ("de",)})) == []
    assert dialect._wishes.language == "de"
