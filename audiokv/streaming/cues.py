"""Turns final captions into subtitle cues, as they come and in bounded memory.

The figures are those of broadcast and streaming style guides: at most two lines, a cue stays
5/6 s to 7 s, two frames between cues, about 17 characters a second, breaks that follow the sense.
No word is lost, doubled or moved; where speech is faster than the guides allow, the text wins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from audiokv.streaming.line_breaking import (
    CLAUSE_BREAK,
    SENTENCE_BREAK,
    Token,
    break_cost,
    break_lines,
    clean_text,
    columns_of_language,
    continues,
    cut_to_columns,
    display_columns,
    fits_two_lines,
    split_to_fit,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from audiokv.streaming.captions import Caption

MIN_CUE_MS = 833
MAX_CUE_MS = 7_000
CUE_GAP_MS = 83
"""Two frames at 24 frames a second."""

_CHAIN_MS = 500  # a shorter blank between two cues is seen as a flicker, so it is closed
_MAX_DELAY_MS = 500  # a cue may wait this long for the one before it to be readable
_MIN_STEP_MS = 40  # one frame: apart at least this much, however crowded the times are
_READING_COLUMNS_PER_S = 17
_JOIN_GAP_MS = 400  # captions closer than this are one run of speech
_PAUSE_MS = 300  # a pause one hears: a good place to break
_LONG_PAUSE_MS = 1_500
_CUE_COST = 2.0
_SHORT_COST = 8.0
_HURRY_COST = 3.0
_PAUSE_COST = 10.0
_ORPHAN_COST = 6.0  # a few words of a sentence alone
_ORPHAN_COLUMNS = 24
_MIXED_COST = 3.0  # the end of one sentence with the beginning of another
_MAX_CUE_TOKENS = 100
_MAX_RUN_TOKENS = 400
_MAX_LABEL_COLUMNS = 12


@dataclass(frozen=True, slots=True)
class Cue:
    """One subtitle.

    Attributes:
        start_ms: When it appears.
        end_ms: When it goes; after ``start_ms`` and never after the next cue's start.
        lines: One or two lines of text.
        language: ISO 639-1 code, or None.
        speaker: Label of the speaker, or None.
        is_new_speaker: Whether the speaker differs from the cue before.
    """

    start_ms: int
    end_ms: int
    lines: tuple[str, ...]
    language: str | None = None
    speaker: str | None = None
    is_new_speaker: bool = False


def speaker_label(speaker: str | None) -> str:
    """Return the name as it is set before the text, cut to a sensible width, or nothing."""
    name = clean_text(speaker or "")
    return f"{cut_to_columns(name, _MAX_LABEL_COLUMNS - 2)}: " if name else ""


def caption_tokens(caption: Caption) -> list[Token]:
    """Return a caption's words as tokens, spaces inside a word made breakable."""
    found: list[Token] = []
    for word in caption.words:
        for i, text in enumerate(clean_text(word.text).split(" ")):
            if not text:
                continue
            is_spaced = word.space_before or i > 0
            token = Token(text, word.start_ms, max(word.start_ms, word.end_ms), is_spaced)
            if found and not is_spaced and continues(found[-1].text, text):
                found[-1] = replace(
                    found[-1],
                    text=found[-1].text + text,
                    end_ms=max(found[-1].end_ms, token.end_ms),
                )
            else:
                found.append(token)
    return found


@dataclass(slots=True)
class _Run:
    """Speech of one speaker in one language without a pause between its captions."""

    language: str | None
    speaker: str | None
    is_new_speaker: bool
    tokens: list[Token]

    @property
    def end_ms(self) -> int:
        return max(token.end_ms for token in self.tokens)

    @property
    def indent(self) -> int:
        return display_columns(speaker_label(self.speaker)) if self.is_new_speaker else 0


class CueMaker:
    """Makes cues from final captions.

    Feed it every caption with ``add`` and call ``finish`` once. Cues come out in order, each
    as soon as what follows can no longer change it.
    """

    def __init__(self) -> None:
        self._run: _Run | None = None
        self._waiting: Cue | None = None  # its end is that of its last word so far
        self._speaker: str | None = None

    def add(self, caption: Caption) -> list[Cue]:
        """Take the next caption; return the cues that are settled. Partials are passed over."""
        tokens = caption_tokens(caption) if caption.is_final else []
        if not tokens:
            return []
        settled: list[Cue] = []
        run = self._run
        if run is not None and not self._goes_on(run, caption, tokens):
            settled = self._set(run, keep_last=False)
            run = None
        if run is None:
            is_new_speaker = bool(caption.speaker) and caption.speaker != self._speaker
            self._speaker = caption.speaker
            run = self._run = _Run(caption.language, caption.speaker, is_new_speaker, [])
        columns = columns_of_language(run.language) - run.indent
        for token in tokens:
            run.tokens.extend(split_to_fit(token, columns))
        if len(run.tokens) > _MAX_RUN_TOKENS:
            settled += self._set(run, keep_last=True)
        return settled

    def finish(self) -> list[Cue]:
        """Return the last cues."""
        settled = self._set(self._run, keep_last=False) if self._run else []
        if self._waiting is not None:
            settled.append(_settle(self._waiting, None))
        self._run = self._waiting = None
        return settled

    @staticmethod
    def _goes_on(run: _Run, caption: Caption, tokens: list[Token]) -> bool:
        return (
            caption.language == run.language
            and caption.speaker == run.speaker
            and tokens[0].start_ms - run.end_ms < _JOIN_GAP_MS
        )

    def _set(self, run: _Run, *, keep_last: bool) -> list[Cue]:
        """Set a run as cues; with ``keep_last`` its last cue stays open for what follows."""
        groups = divide(run.tokens, run.language, run.indent)
        if keep_last:
            kept = groups.pop()
        settled = []
        for tokens in groups:
            draft = self._draft(run, tokens)
            if self._waiting is not None:
                settled.append(_settle(self._waiting, draft.start_ms))
            self._waiting = draft
            run.is_new_speaker = False
        if keep_last:
            run.tokens = kept
        return settled

    def _draft(self, run: _Run, tokens: list[Token]) -> Cue:
        columns = columns_of_language(run.language)
        lines = break_lines(tokens, columns, run.language, run.indent)
        start_ms = max(0, tokens[0].start_ms)
        if self._waiting is not None:
            before_ms = self._waiting.start_ms
            readable_ms = before_ms + MIN_CUE_MS + CUE_GAP_MS
            wanted_ms = max(start_ms, min(readable_ms, start_ms + _MAX_DELAY_MS))
            start_ms = max(before_ms + _MIN_STEP_MS, wanted_ms)
        end_ms = max(token.end_ms for token in tokens)
        return Cue(start_ms, end_ms, lines, run.language, run.speaker, run.is_new_speaker)


def _settle(draft: Cue, next_start_ms: int | None) -> Cue:
    """Return the cue with its end: long enough to read, gone before the next one comes."""
    columns = sum(display_columns(line) for line in draft.lines)
    readable_ms = max(MIN_CUE_MS, columns * 1000 // _READING_COLUMNS_PER_S)
    end_ms = min(max(draft.end_ms, draft.start_ms + readable_ms), draft.start_ms + MAX_CUE_MS)
    if next_start_ms is not None:
        room_ms = next_start_ms - draft.start_ms
        latest_ms = next_start_ms - min(CUE_GAP_MS, room_ms // 2)
        if end_ms > latest_ms - _CHAIN_MS:
            end_ms = min(latest_ms, draft.start_ms + MAX_CUE_MS)
    return replace(draft, end_ms=end_ms)


def divide(tokens: list[Token], language: str | None, indent: int = 0) -> list[list[Token]]:
    """Divide a run of speech into the tokens of its cues, at the least total cost.

    Dynamic programming over the possible last breaks: a cue costs a fixed amount, more when it
    ends amid the sense, leaves too little time to read, or spans a long pause.

    Args:
        tokens: At least one token, each fitting on a line.
        language: ISO 639-1 code, or None.
        indent: Columns of the first line taken by the speaker's name.
    """
    n = len(tokens)
    columns = columns_of_language(language)
    breaks = [_break_cost(tokens[i], tokens[i + 1], language) for i in range(n - 1)] + [0.0]
    starts = list(accumulate((token.start_ms for token in tokens), max))
    ends = list(accumulate((token.end_ms for token in tokens), max))
    pauses = list(
        accumulate((starts[i] - ends[i - 1] > _LONG_PAUSE_MS for i in range(1, n)), initial=0)
    )
    sentences = list(accumulate((cost == SENTENCE_BREAK for cost in breaks), initial=0))
    widths = list(accumulate((token.columns + 1 for token in tokens), initial=0))
    best = [0.0] + [float("inf")] * n
    came_from = [0] * (n + 1)
    for last in range(n):
        for first in range(last, max(-1, last - _MAX_CUE_TOKENS), -1):
            is_one = first == last
            if not is_one and ends[last] - starts[first] > MAX_CUE_MS:
                break
            cue_indent = indent if first == 0 else 0
            if not is_one and not fits_two_lines(tokens[first : last + 1], columns, cue_indent):
                break
            until_ms = starts[last + 1] - CUE_GAP_MS if last + 1 < n else ends[last] + MIN_CUE_MS
            is_torn = max(breaks[first - 1] if first else 0.0, breaks[last]) > CLAUSE_BREAK
            is_mixed = is_torn and sentences[last] > sentences[first]
            n_columns = widths[last + 1] - widths[first]
            orphaned = max(0.0, 1 - n_columns / _ORPHAN_COLUMNS) if is_torn else 0.0
            cost = (
                best[first]
                + _CUE_COST
                + breaks[last]
                + _PAUSE_COST * (pauses[last] - pauses[first])
                + _MIXED_COST * is_mixed
                + _ORPHAN_COST * orphaned
                + _time_cost(until_ms - starts[first], n_columns)
            )
            if cost < best[last + 1]:
                best[last + 1], came_from[last + 1] = cost, first
    return list(_groups(tokens, came_from))[::-1]


def _break_cost(before: Token, after: Token, language: str | None) -> float:
    """Return the cost of ending a cue between two tokens; a pause makes it a good place."""
    cost = break_cost(before, after, language)
    return min(cost, CLAUSE_BREAK) if after.start_ms - before.end_ms >= _PAUSE_MS else cost


def _time_cost(time_ms: int, columns: int) -> float:
    """Return the cost of showing so many columns for so long."""
    short = max(0.0, 1 - time_ms / MIN_CUE_MS) * _SHORT_COST
    needed_ms = columns * 1000 / _READING_COLUMNS_PER_S
    hurry = min(max(0.0, needed_ms / max(time_ms, 1) - 1), 1.0) * _HURRY_COST
    return short + hurry


def _groups(tokens: list[Token], came_from: list[int]) -> Iterator[list[Token]]:
    end = len(tokens)
    while end:
        yield tokens[came_from[end] : end]
        end = came_from[end]


def make_cues(captions: Iterable[Caption]) -> list[Cue]:
    """Return the cues of captions that are all there."""
    maker = CueMaker()
    cues = [cue for caption in captions for cue in maker.add(caption)]
    return cues + maker.finish()
