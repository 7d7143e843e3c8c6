"""Messages that no protocol foresees, and what a dialect may do about them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from audiokv.server.protocols.dialect import Audio, Begin, Command, Dialect, Gap, Opening, Stop
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.telephony.media_timeline import MAX_GAP_MS
from audiokv.streaming.captions import Caption, Word
from audiokv.streaming.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Iterable

# Structured messages, few and shrunk where they fail; tests/server/test_parsers_fuzzed.py has the
# many. $AUDIOKV_FUZZ_EXAMPLES asks for more.
FUZZED = settings(
    max_examples=int(os.environ.get("AUDIOKV_FUZZ_EXAMPLES", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec="utf-8") | st.just("\ud800"), max_size=12)
    | st.sampled_from(["1", "8000", "16000", "96000", "AAAA", "/w==", "!", "PT1.5S", "9" * 400])
)


def messages(words: Iterable[str]) -> st.SearchStrategy[str | bytes]:
    """Return a strategy of messages that use a protocol's own words as keys and values."""
    word = st.sampled_from(sorted(words))
    leaves = _LEAVES | word
    values = st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(word | st.text(max_size=4), inner, max_size=5)
        ),
        max_leaves=12,
    )
    objects = st.dictionaries(word, values, max_size=6).map(json.dumps)
    lines = st.lists(word | st.text(max_size=6), max_size=6).map(" ".join)
    return objects | lines | st.text(max_size=20) | st.binary(max_size=40)


def survives(dialect: Dialect, heard: Iterable[str | bytes]) -> None:
    """Check that a dialect meets messages with commands in a possible order, or its one error."""
    said: list[Command] = dialect.open(Opening(path="/", query={"language": ("en",)}))
    for message in heard:
        try:
            said += dialect.hear(message)
        except MessageError:
            break
    begins = [at for at, command in enumerate(said) if isinstance(command, Begin)]
    audio = [at for at, command in enumerate(said) if isinstance(command, Audio | Gap)]
    stops = [at for at, command in enumerate(said) if isinstance(command, Stop)]
    assert len(begins) <= 1
    assert all(begins and at > begins[0] for at in audio)
    assert all(not stops or at < stops[0] for at in audio)
    assert all(0 < c.duration_ms <= MAX_GAP_MS for c in said if isinstance(c, Gap))
    for message_out in dialect.tick():
        assert message_out


def let_in(opening: Opening) -> None:
    """Let everyone in."""


def turn_away(opening: Opening) -> None:
    """Let no one in.

    Raises:
        RefusalError: Always.
    """
    raise RefusalError(CloseCode.NOT_AUTHORIZED, "bad_signature", opening.path, "Sign it.")


def begin_in(commands: Iterable[Command]) -> Begin:
    """Return the one command among others that opens a stream."""
    (begin,) = (command for command in commands if isinstance(command, Begin))
    return begin


def audio_in(commands: Iterable[Command]) -> bytes:
    """Return the audio of commands, joined."""
    return b"".join(command.data for command in commands if isinstance(command, Audio))


def gaps_in(commands: Iterable[Command]) -> list[int]:
    """Return the gaps among commands, in milliseconds."""
    return [command.duration_ms for command in commands if isinstance(command, Gap)]


def a_caption(
    text: str = "one two", *, is_final: bool = True, speaker: str | None = None
) -> Caption:
    """Return a caption of two words at 1,000 to 1,800 ms."""
    first, _, second = text.partition(" ")
    words = (Word(first, 1_000, 1_400, 0.9), Word(second, 1_400, 1_800, 0.7))
    return Caption(3, 2, 1, is_final, 1_000, 1_800, text, "en", speaker, words)
