from __future__ import annotations

from dataclasses import replace

from audiokv.client.sequence import CaptionSequence
from audiokv.client.timeline import Timeline
from audiokv.streaming.captions import Caption, Word, join_words


def caption_of(seq: int, segment: int, *words: Word, is_final: bool = False) -> Caption:
    return Caption(
        seq=seq,
        segment=segment,
        revision=0,
        is_final=is_final,
        start_ms=words[0].start_ms,
        end_ms=words[-1].end_ms,
        text=join_words(words),
        language="en",
        speaker=None,
        words=words,
    )


COMMITTED = Word("yes", 100, 200, 0.9, is_final=True)
TENTATIVE = Word("maybe", 250, 400, 0.5)


def test_a_caption_passes_once() -> None:
    sequence = CaptionSequence(Timeline(16_000))
    caption = caption_of(1, 0, COMMITTED)
    assert sequence.accept(caption) == caption
    assert sequence.accept(caption) is None
    assert sequence.last_seq == 1


def test_what_is_committed_is_known() -> None:
    sequence = CaptionSequence(Timeline(16_000))
    sequence.accept(caption_of(1, 0, TENTATIVE))
    assert sequence.committed_ms == 0
    sequence.accept(caption_of(2, 0, COMMITTED, TENTATIVE))
    assert sequence.committed_ms == 200
    sequence.accept(caption_of(3, 0, COMMITTED, replace(TENTATIVE, is_final=True), is_final=True))
    assert sequence.committed_ms == 400
    assert sequence.n_segments == 1


def test_numbers_and_times_go_on_in_a_new_stream() -> None:
    timeline = Timeline(16_000)
    sequence = CaptionSequence(timeline)
    sequence.accept(caption_of(1, 0, COMMITTED, is_final=True))
    assert sequence.restart() == []
    timeline.restart(3_200)
    placed = sequence.accept(caption_of(1, 0, COMMITTED, is_final=True))
    assert placed is not None
    assert (placed.seq, placed.segment, placed.start_ms, placed.end_ms) == (2, 1, 300, 400)
    assert (placed.words[0].start_ms, placed.words[0].end_ms) == (300, 400)
    assert sequence.last_seq == 1


def test_the_open_segment_is_closed_with_its_committed_words() -> None:
    sequence = CaptionSequence(Timeline(16_000))
    sequence.accept(caption_of(1, 0, COMMITTED, TENTATIVE))
    (closing,) = sequence.restart()
    assert closing.is_final
    assert (closing.seq, closing.segment, closing.revision) == (2, 0, 1)
    assert (closing.text, closing.words, closing.end_ms) == ("yes", (COMMITTED,), 200)
    placed = sequence.accept(caption_of(1, 0, COMMITTED))
    assert placed is not None
    assert (placed.seq, placed.segment) == (3, 1)


def test_tentative_words_alone_are_taken_back() -> None:
    sequence = CaptionSequence(Timeline(16_000))
    sequence.accept(caption_of(1, 0, TENTATIVE))
    (closing,) = sequence.restart()
    assert (closing.text, closing.words, closing.is_final) == ("", (), True)
    assert closing.start_ms == closing.end_ms == 250


def test_a_word_that_ends_at_a_jump_is_not_turned_round() -> None:
    timeline = Timeline(16_000)
    timeline.jump(3_200, 32_000)
    sequence = CaptionSequence(timeline)
    placed = sequence.accept(caption_of(1, 0, Word("x", 200, 200, 0.9)))
    assert placed is not None
    assert placed.words[0].start_ms <= placed.words[0].end_ms
    assert placed.start_ms <= placed.end_ms


def test_two_channels_have_an_open_segment_each() -> None:
    sequence = CaptionSequence(Timeline(16_000))
    other = (Word("no", 150, 180, 0.9, is_final=True), Word("way", 200, 290, 0.5))
    sequence.accept(caption_of(1, 0, COMMITTED, TENTATIVE))
    sequence.accept(caption_of(2, 1, *other))
    assert sequence.committed_ms == 200  # never back
    late = Word("late", 600, 900, 0.9, is_final=True)
    sequence.accept(caption_of(3, 0, COMMITTED, late, is_final=True))
    assert sequence.committed_ms == 200  # the other channel would lose what follows 180 ms
    sequence.accept(caption_of(4, 2, Word("so", 950, 990, 0.5)))
    closing = sequence.restart()
    assert [(c.seq, c.segment, c.text) for c in closing] == [(5, 1, "no"), (6, 2, "")]
    placed = sequence.accept(caption_of(1, 0, COMMITTED))
    assert placed is not None
    assert (placed.seq, placed.segment) == (7, 3)


def test_what_both_channels_have_committed_is_committed() -> None:
    sequence = CaptionSequence(Timeline(16_000))
    sequence.accept(caption_of(1, 0, TENTATIVE))
    sequence.accept(caption_of(2, 1, COMMITTED, Word("x", 500, 600, 0.9, is_final=True)))
    assert sequence.committed_ms == 0
    sequence.accept(caption_of(3, 0, replace(TENTATIVE, is_final=True), is_final=True))
    assert sequence.committed_ms == 400
    sequence.accept(caption_of(4, 1, Word("x", 500, 600, 0.9, is_final=True), is_final=True))
    assert sequence.committed_ms == 600
