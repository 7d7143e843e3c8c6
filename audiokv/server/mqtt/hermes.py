"""Captions of every stream on the topics of Hermes, the protocol of Rhasspy 2 and Snips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.server.mqtt.stream_topics import json_payload
from audiokv.server.mqtt.unsent import AT_MOST_ONCE, Publication

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audiokv.server.mqtt.stream_topics import Source
    from audiokv.streaming.captions import Caption, Word

TEXT_CAPTURED = "hermes/asr/textCaptured"
PARTIAL_TEXT_CAPTURED = "hermes/asr/partialTextCaptured"
PARTIAL_EXPIRY_S = 5
FINAL_EXPIRY_S = 3_600


def captured(words: Sequence[Word], text: str, *, labels: dict[str, object]) -> bytes:
    """Return the body of ``textCaptured``.

    Args:
        words: The words; their mean confidence is the likelihood.
        text: The text.
        labels: ``siteId``, ``sessionId`` and ``lang``.
    """
    n_words = len(words)
    likelihood = sum(word.confidence for word in words) / n_words if n_words else 0.0
    tokens = [
        {
            "value": word.text,
            "confidence": word.confidence,
            "rangeStart": n,
            "rangeEnd": n + 1,
            "time": {"start": word.start_ms / 1_000, "end": word.end_ms / 1_000},
        }
        for n, word in enumerate(words)
    ]
    seconds = (words[-1].end_ms - words[0].start_ms) / 1_000 if n_words else 0.0
    return json_payload(
        {
            "text": text,
            "likelihood": likelihood,
            "seconds": seconds,
            **labels,
            "wakewordId": None,
            "asrTokens": [tokens],
        }
    )


class HermesMirror:
    """Captions of every stream as Hermes texts; sessions that Hermes began answer for themselves.

    Args:
        instance: Site of streams whose source names none.
    """

    def __init__(self, instance: str) -> None:
        self._instance = instance

    def caption(self, source: Source, caption: Caption, packed: bytes) -> list[Publication]:
        """Return the messages of a caption."""
        del packed
        known = source.metadata
        labels: dict[str, object] = {
            "siteId": known.get("siteId") or known.get("device") or self._instance,
            "sessionId": known.get("sessionId") or source.stream,
            "lang": caption.language,
        }
        if caption.is_final and "siteId" in known:
            return []
        body = captured(caption.words, caption.text, labels=labels)
        if caption.is_final:
            return [Publication(TEXT_CAPTURED, body, source.stream, expiry_s=FINAL_EXPIRY_S)]
        return [
            Publication(
                PARTIAL_TEXT_CAPTURED,
                body,
                source.stream,
                qos=AT_MOST_ONCE,
                expiry_s=PARTIAL_EXPIRY_S,
            )
        ]
