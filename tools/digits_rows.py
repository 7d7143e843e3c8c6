"""Training rows for the text model: segments of slots and words, with gaps as in a live cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tools.digits_model import AUDIO_TOKEN, BOA, BOS, DIGIT_0, EOA, EOS, N_DIGITS, PAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

IGNORED = -100
N_COUNTS = 64
_SLOT_MS = 160.0
_STRADDLE_MS = 60.0
_SHORTEST_SLOTS = 8
_MAX_GAP_BETWEEN = 256


@dataclass(frozen=True)
class HeardString:
    """One string as the tower hears it.

    Attributes:
        digits: What was said.
        spelled_at: The slot in which the tower spells each digit.
        start_ms: Where each digit starts.
        n_slots: Length.
    """

    digits: tuple[int, ...]
    spelled_at: tuple[int, ...]
    start_ms: tuple[float, ...]
    n_slots: int


@dataclass(frozen=True)
class RowPlan:
    """How rows are put together.

    Attributes:
        n_slots: Slots of all segments of a row together.
        segment_shares: Probability of 1, 2, 3, … segments.
        from_start_share: Share of segments that begin where their string begins.
        evicted_share: Share of rows whose history, and of segments whose slots, are thinned.
        max_gap: Largest jump of positions after the first token, at least 2.
    """

    n_slots: int = 188
    segment_shares: tuple[float, ...] = (0.3, 0.2, 0.15, 0.15, 0.1, 0.1)
    from_start_share: float = 0.5
    evicted_share: float = 0.3
    max_gap: int = 4096


@dataclass
class Row:
    """One row, all arrays of shape (tokens,); `sees` is (tokens, tokens).

    Attributes:
        ids: Token ids; the placeholder's at slots.
        slots: Row of the slot in the pool of slots, -1 where there is none.
        positions: For the rotary embedding; they jump.
        targets: The next token where it is to be learnt.
        counts: Digits so far, at slots and words.
        latest: The digit spelled last, at slots.
        points: Where in the row the slot is that spells the next token, or -1.
        sees: Which key each query may attend to.
    """

    ids: Ints
    slots: Ints
    positions: Ints
    targets: Ints
    counts: Ints
    latest: Ints
    points: Ints
    sees: Bools


@dataclass(frozen=True)
class _Token:
    """One position of a row before it is finished."""

    id: int
    segment: int
    slot: int = -1
    target: int = IGNORED
    count: int = IGNORED
    latest: int = IGNORED
    points: int = -1
    jump: int = 0


@dataclass(frozen=True)
class _Eviction:
    """Slots that had left the cache when the words from ``begin`` to ``end`` were read."""

    begin: int
    end: int
    gone: list[int]


class _RowWriter:
    """Writes one row, segment by segment."""

    def __init__(
        self, rng: np.random.Generator, pool: Sequence[HeardString], plan: RowPlan
    ) -> None:
        self._rng = rng
        self._pool = pool
        self._plan = plan
        self._tokens = [_Token(BOS, 0)]
        self._evictions: list[_Eviction] = []

    def jump(self, largest: int) -> int:
        """Return 0 half the time, else a gap whose order of magnitude is drawn evenly."""
        if self._rng.random() < 0.5:  # noqa: PLR2004
            return 0
        return int(np.exp(self._rng.uniform(0.0, np.log(largest))))

    def start(self, string: HeardString, latest: int) -> int:
        """Return where a segment begins: its string's own start, or a slot between two digits."""
        if self._rng.random() < self._plan.from_start_share:
            return 0
        slots = np.arange(latest + 1)
        is_straddled = np.zeros(latest + 1, bool)
        for start_ms, spelled_at in zip(string.start_ms, string.spelled_at, strict=True):
            is_straddled |= (slots * _SLOT_MS > start_ms + _STRADDLE_MS) & (slots <= spelled_at)
        free = slots[~is_straddled]
        return int(free[self._rng.integers(len(free))]) if len(free) else 0

    def add_segment(self, segment: int, n_slots: int, jump: int) -> None:
        """Add ``<boa> slots <eoa> words <eos>`` of a string of the pool."""
        at = int(self._rng.integers(len(self._pool)))
        string = self._pool[at]
        first = self.start(string, string.n_slots - n_slots)
        said = [
            (digit, slot - first)
            for digit, slot in zip(string.digits, string.spelled_at, strict=True)
            if first <= slot < first + n_slots
        ]
        self._tokens.append(_Token(BOA, segment, jump=jump))
        begin = len(self._tokens)
        n_heard, latest = 0, N_DIGITS
        for slot in range(n_slots):
            while n_heard < len(said) and said[n_heard][1] <= slot:
                latest = said[n_heard][0]
                n_heard += 1
            row = at * string.n_slots + first + slot
            self._tokens.append(
                _Token(AUDIO_TOKEN, segment, slot=row, count=n_heard, latest=latest)
            )
        self._add_words(segment, said, begin)

    def _add_words(self, segment: int, said: list[tuple[int, int]], first_slot: int) -> None:
        """Add the words; some may be given, and then their slots may be gone."""
        words = [DIGIT_0 + digit for digit, _ in said]
        points = [*(first_slot + slot for _, slot in said), -1]
        n_given = 0
        if self._rng.random() < self._plan.evicted_share:
            n_given = int(self._rng.integers(len(words) + 1))
        begin = len(self._tokens)
        share = self._rng.random()
        gone = [
            place
            for place in range(first_slot, begin)
            if self._tokens[place].count < n_given and self._rng.random() < share
        ]
        tail = zip([EOA, *words], [*words, EOS], points, strict=True)
        for count, (token, following, point) in enumerate(tail):
            known = {"target": following, "points": point} if count >= n_given else {}
            self._tokens.append(_Token(token, segment, count=count, **known))
        self._tokens.append(_Token(EOS, segment))
        self._evictions.append(_Eviction(begin, len(self._tokens), gone))

    def finished(self) -> Row:
        """Return the row, with part of its history hidden if so drawn."""
        tokens = self._tokens
        slots = np.array([one.slot for one in tokens])
        counts = np.array([one.count for one in tokens])
        sees = np.tril(np.ones((len(tokens), len(tokens)), bool))
        if self._rng.random() < self._plan.evicted_share:
            sees &= self._seen_history(slots)
        for one in self._evictions:
            sees[one.begin : one.end, one.gone] = False
        return Row(
            ids=np.array([one.id for one in tokens]),
            slots=slots,
            positions=np.cumsum([0] + [1 + one.jump for one in tokens[1:]]),
            targets=np.array([one.target for one in tokens]),
            counts=np.minimum(counts, N_COUNTS - 1),
            latest=np.array([one.latest for one in tokens]),
            points=np.array([one.points for one in tokens]),
            sees=sees,
        )

    def _seen_history(self, slots: Ints) -> Bools:
        """Return a mask that hides random tokens, or slots only, from later segments."""
        segments = np.array([one.segment for one in self._tokens])
        is_gone = (self._rng.random(len(slots)) < self._rng.random()) & (segments > 0)
        if self._rng.random() < 0.5:  # noqa: PLR2004  half of the time the words stay
            is_gone &= slots >= 0
        seen: Bools = ~is_gone | (segments[:, None] == segments[None, :])
        return seen


def compose_row(rng: np.random.Generator, pool: Sequence[HeardString], plan: RowPlan) -> Row:
    """Return one row: ``<bos>`` and then segments ``<boa> slots <eoa> words <eos>``.

    Args:
        rng: Decides everything that is drawn.
        pool: Strings to cut segments from, each of at least ``plan.n_slots`` slots.
        plan: Shares and lengths.
    """
    writer = _RowWriter(rng, pool, plan)
    n_segments = 1 + int(rng.choice(len(plan.segment_shares), p=plan.segment_shares))
    borders = np.arange(1, plan.n_slots // _SHORTEST_SLOTS)
    edges = np.sort(rng.choice(borders, n_segments - 1, replace=False)) * _SHORTEST_SLOTS
    lengths = np.diff([0, *edges, plan.n_slots])
    for segment, n_slots in enumerate(lengths, start=1):
        jump = writer.jump(plan.max_gap if segment == 1 else _MAX_GAP_BETWEEN)
        writer.add_segment(segment, int(n_slots), jump)
    return writer.finished()


def stack_rows(rows: Sequence[Row]) -> Row:
    """Return rows as one with a batch dimension in front, padded at the end."""
    longest = max(len(one.ids) for one in rows)

    def padded(arrays: list[Ints], fill: int) -> Ints:
        return np.stack(
            [np.pad(one, (0, longest - len(one)), constant_values=fill) for one in arrays]
        )

    sees = np.zeros((len(rows), longest, longest), bool)
    sees |= np.eye(longest, dtype=bool)
    for at, row in enumerate(rows):
        sees[at, : len(row.ids), : len(row.ids)] = row.sees
    return Row(
        ids=padded([one.ids for one in rows], PAD),
        slots=padded([one.slots for one in rows], -1),
        positions=padded([one.positions for one in rows], 0),
        targets=padded([one.targets for one in rows], IGNORED),
        counts=padded([one.counts for one in rows], IGNORED),
        latest=padded([one.latest for one in rows], IGNORED),
        points=padded([one.points for one in rows], -1),
        sees=sees,
    )
