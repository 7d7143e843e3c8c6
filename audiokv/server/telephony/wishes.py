"""What a call's operator wished for its captions, from wherever a source lets it be written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from audiokv.server.protocols.dialect import Begin, base_language
from audiokv.server.telephony.loose_json import MAX_TEXT_CHARS, printable
from audiokv.streaming.message_types import AUTO_LANGUAGE
from audiokv.streaming.messages import MAX_PROMPT_CHARS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from audiokv.server.protocols.dialect import Opening
    from audiokv.server.telephony.loose_json import Node
    from audiokv.streaming.audio_format import AudioFormat

# What is known of a call has these names wherever it comes from; sources tell more under their own.
_CALL_NAMES = ("call", "from", "to", "caller", "direction")
PROFILE = "telephony"  # of the cache policy; measured: on mu-law no worse than the default
_ANY_LANGUAGE = frozenset({"", AUTO_LANGUAGE, "multi", "und"})


def plain_language(tag: str) -> str | None:
    """Return the ISO 639-1 code of a tag like ``en-US``, or None where any language is meant."""
    code = base_language(tag.strip())
    return None if code in _ANY_LANGUAGE else code


def query_text(opening: Opening, name: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """Return a value of the address's query, cut to a length; empty when it is missing."""
    values = opening.query.get(name, ())
    return printable(values[0])[:max_chars] if values else ""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the captions of a call shall be.

    Attributes:
        language: ISO 639-1 code, or None to detect it.
        prompt: Names and jargon.
        metadata: What is known about the call.
    """

    language: str | None = None
    prompt: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_opening(cls, opening: Opening, source: str = "") -> Wishes:
        """Return what the address's query says: ``language``, ``prompt``, and who calls.

        Args:
            opening: How the connection was opened.
            source: Name of the protocol, kept with the call.
        """
        told = {"source": source, **{name: query_text(opening, name) for name in _CALL_NAMES}}
        return cls(
            plain_language(query_text(opening, "language")),
            query_text(opening, "prompt", MAX_PROMPT_CHARS),
            {name: value for name, value in told.items() if value},
        )

    def joined(self, said: Node, metadata: Mapping[str, str]) -> Wishes:
        """Return these wishes with what a message of the source says on top.

        Args:
            said: An object that may have ``language`` and ``prompt``.
            metadata: More that is known about the call; empty values are left out.

        Raises:
            MessageError: ``language`` or ``prompt`` is no text.
        """
        known = self.joined_with(metadata)
        return replace(
            known,
            language=plain_language(said.text("language")) or self.language,
            prompt=said.text("prompt", max_chars=MAX_PROMPT_CHARS) or self.prompt,
        )

    def joined_with(self, metadata: Mapping[str, str]) -> Wishes:
        """Return these wishes with more that is known about the call; empty values are left out."""
        more = {name: value for name, value in metadata.items() if value}
        return replace(self, metadata={**self.metadata, **more})

    def begin(self, fmt: AudioFormat, channel_labels: tuple[str, ...] = ()) -> Begin:
        """Return the command that opens the stream."""
        return Begin(
            fmt,
            language=self.language,
            prompt=self.prompt,
            profile=PROFILE,
            channel_labels=channel_labels,
            metadata=dict(self.metadata),
        )
