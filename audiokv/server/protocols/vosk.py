"""The protocol of vosk-server: one reply to each audio message, as its clients wait for it.

The texts are the recogniser's own, with its punctuation and capitals. Source: the server
``websocket/asr_server.py`` of the vosk-server project, and the clients beside it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from audiokv.server.protocols.dialect import (
    Audio,
    Begin,
    Farewell,
    Finalize,
    Finalized,
    PlainDialect,
    Stop,
    Taken,
)
from audiokv.server.protocols.options import Options
from audiokv.streaming.audio_format import (
    MAX_SAMPLE_RATE_HZ,
    MIN_SAMPLE_RATE_HZ,
    AudioFormat,
    Encoding,
)
from audiokv.streaming.captions import Caption, join_words
from audiokv.streaming.errors import MessageError
from audiokv.streaming.message_fields import parse_object, shown

if TYPE_CHECKING:
    from audiokv.server.protocols.dialect import Command, Event, Opening
    from audiokv.server.refusals import RefusalError
    from audiokv.streaming.captions import Word

DEFAULT_RATE_HZ = 8_000
# A client that waits for each reply gets it when its audio was recognised, give or take this much,
# unless it sends in real time: then at once.
MAX_AHEAD_MS = 1_000


class VoskDialect(PlainDialect):
    """One connection of a vosk client."""

    def __init__(self) -> None:
        self._rate_hz = DEFAULT_RATE_HZ
        self._has_words = True
        self._has_partial_words = False
        self._max_alternatives = 0
        self._is_begun = False
        self._said: list[Word] = []  # final, and not yet in a reply
        self._partial: tuple[Word, ...] = ()
        self._n_owed = 0  # audio messages without their reply
        self._n_resets = 0  # likewise; audio that came after one waits for it

    def open(self, opening: Opening) -> list[Command]:
        """Wait for the first message: the address says nothing."""
        del opening
        return []

    def hear(self, message: str | bytes) -> list[Command]:
        """Take audio, ``config``, ``eof`` or ``reset``.

        Raises:
            MessageError: The text is none of these, or asks for what is not supported.
        """
        if isinstance(message, bytes):
            begin = self._begin()
            self._n_owed += 1
            return [*begin, Audio(message, MAX_AHEAD_MS)]
        values = parse_object(message)
        match list(values):
            case ["eof"]:
                return [Stop()]
            case ["reset"]:
                self._n_resets += 1
                return [*self._begin(), Finalize()]
            case ["config"]:
                self._configure(Options("the message", values).nested("config"))
                return []
        raise MessageError(
            "unknown_message",
            f"A text message with {shown(min(values, default=''))} came.",
            'Send {"config": …}, {"eof" : 1}, {"reset" : 1} or audio.',
        )

    def _begin(self) -> list[Command]:
        if self._is_begun:
            return []
        self._is_begun = True
        return [Begin(AudioFormat(Encoding.PCM_S16LE, self._rate_hz))]

    def _configure(self, config: Options) -> None:
        rate_hz = config.whole(
            "sample_rate", default=self._rate_hz, low=MIN_SAMPLE_RATE_HZ, high=MAX_SAMPLE_RATE_HZ
        )
        if self._is_begun and rate_hz != self._rate_hz:
            raise MessageError(
                "late_config",
                f"The sample rate {rate_hz} Hz came after audio of {self._rate_hz} Hz.",
                "Send config before the audio.",
            )
        self._rate_hz = rate_hz
        self._has_words = config.flag("words", default=self._has_words)
        self._has_partial_words = config.flag("partial_words", default=self._has_partial_words)
        self._max_alternatives = config.whole("max_alternatives", default=self._max_alternatives)
        if config.has("phrase_list"):
            raise MessageError(
                "unsupported_option",
                "A phrase_list came; speech here is not restricted to given phrases.",
                "Leave it out, and look for your phrases in the text.",
            )
        config.finish()

    def say(self, event: Event) -> list[str | bytes]:
        """Keep what was said for the next reply, or give the replies that are due."""
        match event:
            case Caption(is_final=True):
                self._said += event.words
                self._partial = ()
            case Caption():
                self._partial = event.words
            case Finalized():
                self._n_resets -= 1
                return [self._result(), *self._due()]
            case Taken():
                return self._due()
            case _:
                pass
        return []

    def _due(self) -> list[str | bytes]:
        """Return a reply to each audio message taken, unless an earlier reset has none yet."""
        if self._n_resets:
            return []
        n_due, self._n_owed = self._n_owed, 0
        return [self._result() if self._said else self._partial_result() for _ in range(n_due)]

    def refuse(self, refusal: RefusalError) -> Farewell:
        """Say why, as an object that a client's JSON reader takes."""
        text = f"{refusal.message} {refusal.remedy}"
        return Farewell(
            [json.dumps({"error": text}, ensure_ascii=False)],
            refusal.close_code,
            refusal.close_reason,
        )

    def done(self) -> Farewell:
        """Give the one reply to ``eof``: all that no reply has said yet."""
        return Farewell([*self._due(), self._result()], reason="done")

    def _partial_result(self) -> str:
        reply: dict[str, object] = {"partial": join_words(self._partial)}
        if self._has_partial_words and self._partial:
            reply["partial_result"] = [_shown_word(word) for word in self._partial]
        return json.dumps(reply, ensure_ascii=False)

    def _result(self) -> str:
        words, self._said = self._said, []
        result: dict[str, object] = {"text": join_words(words)}
        if self._has_words and words:
            result = {"result": [_shown_word(word) for word in words], **result}
        if self._max_alternatives:
            mean = sum(word.confidence for word in words) / max(1, len(words))
            result = {"alternatives": [{"confidence": mean, **result}]}
        return json.dumps(result, ensure_ascii=False)


def _shown_word(word: Word) -> dict[str, object]:
    return {
        "conf": word.confidence,
        "end": word.end_ms / 1000,
        "start": word.start_ms / 1000,
        "word": word.text,
    }
