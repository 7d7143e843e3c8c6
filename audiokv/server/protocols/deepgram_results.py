"""The messages of Deepgram's live transcription."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace
from typing import TYPE_CHECKING

from audiokv.streaming.captions import join_words

if TYPE_CHECKING:
    from audiokv.server.protocols.deepgram_options import ListenOptions
    from audiokv.streaming.captions import Caption, Word


# What the profanity filter knows: a few English words, masked as Deepgram masks them.
_PROFANE = re.compile(
    r"\b(fuck|shit|cunt|bitch|asshole|bastard)(?=(s|es|ed|er|ers|ing|y)?\b)", re.IGNORECASE
)


class ResultWriter:
    """Writes what one connection is told.

    Attributes:
        options: What the client asked for.
        request_id: Public name of the stream, once it has one.

    Args:
        options: As above.
        model: Name of the recogniser.
    """

    def __init__(self, options: ListenOptions, model: str) -> None:
        self.options = options
        self.request_id = ""
        self._model = model
        self._speakers: list[str] = []

    def result(
        self,
        caption: Caption,
        *,
        channel: int = 0,
        is_speech_final: bool = False,
        from_finalize: bool = False,
    ) -> str:
        """Return a caption as ``Results``."""
        words = caption.words
        if self.options.is_masked:
            words = tuple(replace(word, text=_masked(word.text)) for word in words)
        mean = sum(word.confidence for word in words) / max(1, len(words))
        alternative: dict[str, object] = {
            "transcript": join_words(words) if self.options.is_punctuated else _plain_text(words),
            "confidence": mean,
            "words": [self._shown(word, caption) for word in words],
        }
        if self.options.is_multilingual and caption.language is not None:
            alternative["languages"] = [caption.language]
        return self._results(
            channel,
            (caption.start_ms, caption.end_ms),
            alternative,
            is_final=caption.is_final,
            speech_final=is_speech_final,
            from_finalize=from_finalize,
        )

    def empty(
        self,
        at_ms: int,
        *,
        channel: int = 0,
        is_speech_final: bool = False,
        from_finalize: bool = False,
    ) -> str:
        """Return final ``Results`` without words."""
        return self._results(
            channel,
            (at_ms, at_ms),
            {"transcript": "", "confidence": 0.0, "words": []},
            is_final=True,
            speech_final=is_speech_final,
            from_finalize=from_finalize,
        )

    def speech_started(self, at_ms: int) -> str:
        """Return ``SpeechStarted``."""
        channels = [0, self.options.n_channels]
        return packed("SpeechStarted", channel=channels, timestamp=at_ms / 1000)

    def utterance_end(self, last_word_end_ms: int) -> str:
        """Return ``UtteranceEnd``."""
        channels = [0, self.options.n_channels]
        return packed("UtteranceEnd", channel=channels, last_word_end=last_word_end_ms / 1000)

    def metadata(self, digest: str, created: str, duration_ms: int) -> str:
        """Return ``Metadata``, the last message.

        Args:
            digest: SHA-256 of all audio, as hexadecimal digits.
            created: When the connection was opened, as ISO 8601 says it.
            duration_ms: Length of the audio.
        """
        return packed(
            "Metadata",
            transaction_key="deprecated",
            request_id=self.request_id,
            sha256=digest,
            created=created,
            duration=duration_ms / 1000,
            channels=self.options.n_channels,
            models=[self._model],
            model_info={self._model: self._model_info()},
        )

    def _results(
        self, channel: int, span_ms: tuple[int, int], alternative: dict[str, object], **flags: bool
    ) -> str:
        start_ms, end_ms = span_ms
        return packed(
            "Results",
            channel_index=[channel, self.options.n_channels],
            duration=(end_ms - start_ms) / 1000,
            start=start_ms / 1000,
            **flags,
            channel={"alternatives": [alternative]},
            metadata={
                "request_id": self.request_id,
                "model_info": self._model_info(),
                "model_uuid": self._model,
            },
        )

    def _model_info(self) -> dict[str, str]:
        return {"name": self._model, "version": "1", "arch": self._model}

    def _shown(self, word: Word, caption: Caption) -> dict[str, object]:
        shown: dict[str, object] = {
            "word": _plain(word.text),
            "start": word.start_ms / 1000,
            "end": word.end_ms / 1000,
            "confidence": word.confidence,
        }
        if self.options.is_punctuated:
            shown["punctuated_word"] = word.text
        if self.options.has_speakers:
            label = caption.speaker or ""
            if label not in self._speakers:
                self._speakers.append(label)
            shown["speaker"] = self._speakers.index(label)
        return shown


def packed(kind: str, **fields: object) -> str:
    """Return a message."""
    return json.dumps({"type": kind, **fields}, ensure_ascii=False)


def _masked(text: str) -> str:
    return _PROFANE.sub(lambda found: found[0][0] + "*" * (len(found[0]) - 1), text)


def _plain(text: str) -> str:
    """Return a word as it is without punctuation: also without capitals."""
    marks = {char for char in text if unicodedata.category(char).startswith("P")} - {"*"}
    return text.strip("".join(marks)).lower() or text


def _plain_text(words: tuple[Word, ...]) -> str:
    return "".join((" " if w.space_before else "") + _plain(w.text) for w in words).strip()
