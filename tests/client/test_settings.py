from __future__ import annotations

import pytest

from audiokv.client.failures import LinkError
from audiokv.client.settings import LinkSettings
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.messages import Start


def test_the_first_message_says_what_was_set() -> None:
    settings = LinkSettings(
        audio_format=AudioFormat(Encoding.MULAW, 8_000, 2),
        language="de",
        profile="telephony",
        prompt="Leichenhalle",
        channel_labels=("agent", "caller"),
    )
    assert settings.start() == Start(
        encoding="mulaw",
        sample_rate=8_000,
        channels=2,
        language="de",
        profile="telephony",
        prompt="Leichenhalle",
        channel_labels=("agent", "caller"),
    )


@pytest.mark.parametrize("token", ["two words", "new\nline", "schlüssel"])
def test_a_token_that_would_break_the_request_is_refused(token: str) -> None:
    with pytest.raises(LinkError, match="token") as failure:
        LinkSettings(token=token)
    assert token not in str(failure.value)


def test_the_token_is_not_printed() -> None:
    assert "s3cret" not in repr(LinkSettings(token="s3cret"))  # noqa: S106  a made-up token
