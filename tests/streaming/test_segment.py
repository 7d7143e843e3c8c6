from __future__ import annotations

from audiokv.streaming.captions import Word
from audiokv.streaming.segment import Segment

ONE = Word("One", 100, 300, 0.9)
TWO = Word("two", 300, 500, 0.8)


def test_a_caption_holds_committed_words_then_the_tail() -> None:
    segment = Segment(50, "Ann")
    segment.commit([ONE])
    caption = segment.caption((TWO,), seq=7, number=3, is_final=False, language="en")
    assert (caption.seq, caption.segment, caption.revision) == (7, 3, 0)
    assert caption.text == "One two"
    assert [w.is_final for w in caption.words] == [True, False]
    assert (caption.start_ms, caption.end_ms) == (100, 500)
    assert (caption.language, caption.speaker, caption.is_final) == ("en", "Ann", False)


def test_revisions_rise_and_the_segment_knows_that_it_was_shown() -> None:
    segment = Segment(50)
    shown = [segment.is_shown]
    for revision in range(3):
        caption = segment.caption((), seq=revision, number=0, is_final=False, language=None)
        assert caption.revision == revision
        assert (caption.start_ms, caption.end_ms, caption.text) == (50, 50, "")
        shown.append(segment.is_shown)
    assert shown == [False, True, True, True]


def test_only_what_a_reader_sees_counts_as_a_change() -> None:
    segment = Segment(0)
    assert not segment.changed(())
    assert segment.changed((ONE,))
    segment.caption((ONE,), seq=1, number=0, is_final=False, language=None)
    assert not segment.changed((Word("One", 120, 310, 0.5),))
    assert segment.changed((ONE, TWO))
    segment.commit([ONE])
    assert segment.changed(())


def test_words_of_a_caption_never_overlap_in_time() -> None:
    segment = Segment(0)
    segment.commit([ONE])
    tail = (Word("a", 250, 280, 0.5), Word("b", 290, 400, 0.5), Word("c", 100, 200, 0.5), TWO)
    caption = segment.caption(tail, seq=1, number=0, is_final=False, language=None)
    times = [(w.text, w.start_ms, w.end_ms) for w in caption.words]
    assert times == [
        ("One", 100, 300),
        ("a", 300, 300),
        ("b", 300, 400),
        ("c", 400, 400),
        ("two", 400, 500),
    ]
    assert caption.end_ms == 500
    assert not segment.changed(tail)
