from __future__ import annotations

import pytest

from audiokv.server.protocols.dialect import Opening
from audiokv.server.refusals import RefusalError
from audiokv.server.telephony.twilio import TwilioDialect
from audiokv.streaming.audio_format import AudioFormat, Encoding
from tests.server.telephony.fuzzing import audio_in, begin_in, let_in, turn_away
from tests.server.telephony.media_messages import media, start


def test_a_call_as_twilio_writes_it() -> None:
    dialect = TwilioDialect(let_in)
    dialect.open(Opening("/call/twilio"))
    heard = dialect.hear('{"event":"connected","protocol":"Call","version":"1.0.0"}')
    heard += dialect.hear(start())
    for n in range(3):
        heard += dialect.hear(media(n))
    assert begin_in(heard).fmt == AudioFormat(Encoding.MULAW, 8_000)
    assert len(audio_in(heard)) == 480


def test_who_connects_is_checked_by_the_opening() -> None:
    opening = Opening("/call/twilio")
    checked: list[Opening] = []
    assert TwilioDialect(checked.append).open(opening) == []
    assert checked == [opening]
    with pytest.raises(RefusalError):
        TwilioDialect(turn_away).open(opening)
