"""Captions in a terminal: two steady lines while one speaks, the finished text above them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn
from rich.text import Text

from audiokv.streaming.line_breaking import Token, clean_text, fill_line, split_to_fit

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from audiokv.client.cache_line import CacheLine
    from audiokv.streaming.audio_cache import CacheCounters
    from audiokv.streaming.captions import Caption, Notice, Word

N_LINES = 2
MAX_LINE_COLUMNS = 84
MAX_CACHE_COLUMNS = 1_000  # of a line that is written once, and may be wrapped
TENTATIVE_STYLE = "dim italic"
CACHE_STYLE = "dim"

_REFRESH_S = 0.1  # more than ten changes a second tire the eye


class View(Protocol):
    """Where a client shows what comes."""

    def caption(self, caption: Caption) -> None:
        """Show a caption."""

    def notice(self, notice: Notice) -> None:
        """Show what the user should know."""

    def begin(self, name: str, duration_ms: int | None) -> None:
        """Begin a recording of a length, if known."""

    def progress(self, processed_ms: int) -> None:
        """Show how far the current recording is recognised."""

    def cache(self, counters: CacheCounters | None) -> None:
        """Show what the server's audio cache holds, where the user asked for it."""

    def close(self) -> None:
        """Leave the screen tidy."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the live view: what stays, then what may still change."""

    committed: str
    tentative: str


def roll_up(words: tuple[Word, ...], columns: int) -> list[Line]:
    """Return the words on as many lines as they take, filled from the left.

    Lines are filled greedily, so a line that is full never changes its breaks as words are added.

    Args:
        words: Committed words first, then tentative ones.
        columns: Columns of a line.
    """
    pieces: list[tuple[Token, bool]] = []
    for word in words:
        token = Token(clean_text(word.text), word.start_ms, word.end_ms, word.space_before)
        if token.text:
            pieces += [(piece, word.is_final) for piece in split_to_fit(token, columns)]
    lines = []
    while pieces:
        n_fit = fill_line([token for token, _ in pieces], columns)
        lines.append(_line(pieces[:n_fit]))
        del pieces[:n_fit]
    return lines


def _line(pieces: list[tuple[Token, bool]]) -> Line:
    committed = tentative = ""
    for i, (token, is_final) in enumerate(pieces):
        text = (" " if token.space_before and i else "") + token.text
        if is_final:
            committed += text
        else:
            tentative += text
    return Line(committed, tentative)


def _said(caption: Caption) -> str:
    name = clean_text(caption.speaker or "")
    return (f"{name}: " if name else "") + clean_text(caption.text)


class _Bar:
    """A progress bar for recordings."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[clock]}", markup=False),
            console=console,
            auto_refresh=False,
        )
        self._task: TaskID | None = None
        self._duration_ms: int | None = None

    def begin(self, name: str, duration_ms: int | None) -> None:
        if self._task is not None:
            self.progress.remove_task(self._task)
        self._duration_ms = duration_ms
        self._task = self.progress.add_task(clean_text(name), total=duration_ms, clock="")
        self.advance(0)

    def advance(self, processed_ms: int) -> None:
        if self._task is None:
            return
        total = f" / {_minutes(self._duration_ms)}" if self._duration_ms is not None else ""
        clock = _minutes(processed_ms) + total
        self.progress.update(self._task, completed=processed_ms, clock=clock)


def _minutes(ms: int) -> str:
    return f"{ms // 60_000}:{ms // 1000 % 60:02}"


class LiveView:
    """Two lines that are redrawn in place; their height never changes.

    Args:
        console: The terminal.
        now_s: A clock in seconds, to redraw at most ten times a second.
        cache_line: A third line about the audio cache, or None.
    """

    def __init__(
        self,
        console: Console,
        now_s: Callable[[], float] = time.monotonic,
        cache_line: CacheLine | None = None,
    ) -> None:
        self._console = console
        self._cache_line = cache_line
        self._now_s = now_s
        self._drawn_at_s = float("-inf")
        self._lines: list[Line] = []
        self._bar: _Bar | None = None
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()
        self._draw()

    @property
    def _columns(self) -> int:
        return max(2, min(self._console.width - 1, MAX_LINE_COLUMNS))

    def caption(self, caption: Caption) -> None:
        """Redraw the open segment; a finished one moves up into the terminal's history."""
        if not caption.is_final:
            self._lines = roll_up(caption.words, self._columns)[-N_LINES:]
            self._draw_soon()
            return
        self._lines = []
        with self._console:  # one write: the text is at no moment seen twice or not at all
            self._draw()
            if caption.words:
                self._console.print(Text(_said(caption)))

    def notice(self, notice: Notice) -> None:
        """Print a notice above the two lines."""
        self._console.print(Text(_told(notice), style="yellow"))
        self._draw()

    def begin(self, name: str, duration_ms: int | None) -> None:
        """Show a progress bar for a recording."""
        if self._bar is None:
            self._bar = _Bar(self._console)
        self._bar.begin(name, duration_ms)
        self._draw()

    def progress(self, processed_ms: int) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.advance(processed_ms)
        self._draw_soon()

    def cache(self, counters: CacheCounters | None) -> None:
        """Redraw the line about the cache."""
        if self._cache_line is not None:
            self._cache_line.hear(counters)
            self._draw_soon()

    def close(self) -> None:
        """Take the two lines away; text that was still tentative is not left behind."""
        self._live.stop()

    def _draw_soon(self) -> None:
        if self._now_s() - self._drawn_at_s >= _REFRESH_S:
            self._draw()

    def _draw(self) -> None:
        self._drawn_at_s = self._now_s()
        self._live.update(self._picture(), refresh=True)

    def _picture(self) -> RenderableType:
        lines = [*self._lines, *[Line("", "")] * (N_LINES - len(self._lines))]
        rows: list[RenderableType] = [
            Text.assemble(
                line.committed, (line.tentative, TENTATIVE_STYLE), no_wrap=True, overflow="crop"
            )
            for line in lines
        ]
        if self._cache_line is not None:
            text = self._cache_line.text(self._console.width - 1)
            rows.append(Text(text, style=CACHE_STYLE, no_wrap=True, overflow="crop"))
        return Group(*rows, self._bar.progress) if self._bar else Group(*rows)


class PlainView:
    """For pipes and files: one line for every finished segment, notices on the error output.

    Args:
        out: Where the text goes.
        errors: Where notices go, and a progress bar when that is a terminal.
        cache_line: What to say about the audio cache once a stream has ended, or None.
    """

    def __init__(self, out: TextIO, errors: Console, cache_line: CacheLine | None = None) -> None:
        self._out = out
        self._errors = errors
        self._cache_line = cache_line
        self._bar: _Bar | None = None

    def caption(self, caption: Caption) -> None:
        """Print a finished segment."""
        if caption.is_final and caption.words:
            self._out.write(_said(caption) + "\n")
            self._out.flush()

    def notice(self, notice: Notice) -> None:
        """Print a notice."""
        self._errors.print(Text(_told(notice)), soft_wrap=True)

    def begin(self, name: str, duration_ms: int | None) -> None:
        """Show a progress bar for a recording, where there is a terminal to show it."""
        self._tell_cache()
        if not self._errors.is_terminal:
            return
        if self._bar is None:
            self._bar = _Bar(self._errors)
            self._bar.progress.start()
        self._bar.begin(name, duration_ms)

    def progress(self, processed_ms: int) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.advance(processed_ms)
            self._bar.progress.refresh()

    def cache(self, counters: CacheCounters | None) -> None:
        """Keep it until the stream has ended: a line a second would bury the notices."""
        if self._cache_line is not None:
            self._cache_line.hear(counters)

    def close(self) -> None:
        """End the bar."""
        self._tell_cache()
        if self._bar is not None:
            self._bar.progress.stop()

    def _tell_cache(self) -> None:
        if self._cache_line is None:
            return
        text = self._cache_line.text(MAX_CACHE_COLUMNS)
        self._cache_line.clear()
        if text:
            self._errors.print(Text(text), soft_wrap=True)


def _told(notice: Notice) -> str:
    return clean_text(f"{notice.message} {notice.remedy}")


def open_view(out: TextIO, errors: TextIO, cache_line: CacheLine | None = None) -> View:
    """Return a live view when the output is a terminal, else a plain one.

    Args:
        out: Where the text goes.
        errors: Where notices go when the output is no terminal.
        cache_line: Says what the audio cache holds, or None.
    """
    if out.isatty():
        return LiveView(Console(file=out, highlight=False), cache_line=cache_line)
    return PlainView(out, Console(file=errors, highlight=False), cache_line)
