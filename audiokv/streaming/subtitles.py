"""Subtitle and transcript formats: SubRip, WebVTT, plain text, JSON lines.

Each format turns captions into text bit by bit, so that a file is complete up to the last
sentence at any time, and hours of captions take constant memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from audiokv.streaming.cues import Cue, CueMaker, speaker_label
from audiokv.streaming.line_breaking import clean_text
from audiokv.streaming.messages import encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from audiokv.streaming.captions import Caption


class CaptionFormat(Protocol):
    """One kind of file made from captions; used for one stream, in order."""

    def add(self, caption: Caption) -> str:
        """Return the text to append for the next caption; partials add nothing."""

    def finish(self) -> str:
        """Return the text that ends the file."""


def _clock(time_ms: int, decimal_mark: str) -> str:
    seconds, ms = divmod(time_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{decimal_mark}{ms:03}"


def _labelled(cue: Cue) -> str:
    label = speaker_label(cue.speaker) if cue.is_new_speaker else ""
    return label + "\n".join(cue.lines)


class SubRip:
    """SubRip (.srt): numbered cues, times from 00:00:00,000, UTF-8 without a byte-order mark."""

    def __init__(self) -> None:
        self._cues = CueMaker()
        self._n_written = 0

    def add(self, caption: Caption) -> str:
        """Return the cues the caption settles."""
        return self._write(self._cues.add(caption))

    def finish(self) -> str:
        """Return the last cues."""
        return self._write(self._cues.finish())

    def _write(self, cues: list[Cue]) -> str:
        text = ""
        for cue in cues:
            self._n_written += 1
            times = f"{_clock(cue.start_ms, ',')} --> {_clock(cue.end_ms, ',')}"
            text += f"{self._n_written}\n{times}\n{_labelled(cue)}\n\n"
        return text


_VTT_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class WebVtt:
    """WebVTT (.vtt), with voice tags for speakers and language tags where the language changes.

    Args:
        language: ISO 639-1 code of the file, or None for that of its first cue.
    """

    def __init__(self, language: str | None = None) -> None:
        self._cues = CueMaker()
        self._language = language
        self._has_header = False

    def add(self, caption: Caption) -> str:
        """Return the cues the caption settles."""
        return self._write(self._cues.add(caption))

    def finish(self) -> str:
        """Return the last cues; a stream without words is a file with a header only."""
        text = self._write(self._cues.finish())
        return text if self._has_header else text + self._header()

    def _header(self) -> str:
        self._has_header = True
        note = f" Language: {clean_text(self._language)}" if self._language else ""
        return f"WEBVTT{note.replace('-->', '')}\n\n"

    def _write(self, cues: list[Cue]) -> str:
        text = ""
        for cue in cues:
            if not self._has_header:
                self._language = self._language or cue.language
                text += self._header()
            times = f"{_clock(cue.start_ms, '.')} --> {_clock(cue.end_ms, '.')}"
            text += f"{times}\n{self._payload(cue)}\n\n"
        return text

    def _payload(self, cue: Cue) -> str:
        text = "\n".join(line.translate(_VTT_ESCAPES) for line in cue.lines)
        if cue.language and cue.language != self._language:
            text = f"<lang {cue.language.translate(_VTT_ESCAPES)}>{text}</lang>"
        name = clean_text(cue.speaker or "").translate(_VTT_ESCAPES)
        return f"<v {name}>{text}" if name else text


class PlainText:
    """Plain text (.txt): one line a segment, the speaker's name where it changes."""

    def __init__(self) -> None:
        self._speaker: str | None = None

    def add(self, caption: Caption) -> str:
        """Return the line of a final caption."""
        text = clean_text(caption.text)
        if not caption.is_final or not text:
            return ""
        label = ""
        if caption.speaker and caption.speaker != self._speaker:
            label = f"{clean_text(caption.speaker)}: "
        self._speaker = caption.speaker
        return f"{label}{text}\n"

    def finish(self) -> str:
        """Return nothing: every line is complete."""
        return ""


class JsonLines:
    """JSON lines (.jsonl): every final caption with its words, fields as on the wire."""

    def add(self, caption: Caption) -> str:
        """Return the line of a final caption with words."""
        if not caption.is_final or not caption.words:
            return ""
        return encode(caption) + "\n"

    def finish(self) -> str:
        """Return nothing: every line is complete."""
        return ""


def render(captions: Iterable[Caption], into: CaptionFormat) -> str:
    """Return the whole file for captions that are all there."""
    return "".join(into.add(caption) for caption in captions) + into.finish()
