from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.captions import Word
from audiokv.streaming.stabilizer import (
    AlignedCommit,
    CommitOptions,
    LocalAgreement,
    ShowOptions,
    TailView,
    bare,
    n_agreeing,
)


def words(text: str, *, confidence: float = 0.99, each_ms: int = 300) -> list[Word]:
    return [Word(t, i * each_ms, (i + 1) * each_ms, confidence) for i, t in enumerate(text.split())]


def texts(shown: tuple[Word, ...]) -> str:
    return " ".join(w.text for w in shown)


def test_bare_words_ignore_case_and_punctuation_but_never_become_empty() -> None:
    assert bare("Mr.") == bare("mr")
    assert bare("don't") == "dont"
    assert bare("...") == "..."
    assert bare("ÉTÉ,") == bare("été")


def test_agreement_stops_at_the_first_difference() -> None:
    assert n_agreeing(words("He hoped there"), words("he hoped, their")) == 2
    assert n_agreeing(words("a b"), words("a b c")) == 2
    assert n_agreeing([], words("a")) == 0


def test_local_agreement_commits_the_common_beginning_of_two_hypotheses() -> None:
    rule = LocalAgreement()
    assert rule.observe(words("he hoped their"), 900) == 0
    assert rule.observe(words("he hoped there would"), 1200) == 2
    # What is left of the second hypothesis is what the third must agree with.
    assert rule.observe(words("there would be"), 1500) == 2
    rule.restart()
    assert rule.observe(words("be"), 1800) == 0


def test_a_word_waits_for_audio_behind_it() -> None:
    rule = AlignedCommit(CommitOptions(guard_ms=450, n_agreeing=1))
    assert rule.observe(words("one two"), 749) == 0
    assert rule.observe(words("one two"), 750) == 1


def test_the_last_word_waits_for_its_follower() -> None:
    rule = AlignedCommit(CommitOptions(guard_ms=0, n_agreeing=1, max_age_ms=10_000))
    assert rule.observe(words("one"), 5_000) == 0
    assert rule.observe(words("one two"), 5_000) == 1


def test_a_word_must_come_back() -> None:
    rule = AlignedCommit(CommitOptions(guard_ms=0, n_agreeing=3))
    assert rule.observe(words("one two three"), 900) == 0
    assert rule.observe(words("one two three"), 1_000) == 0
    assert rule.observe(words("one two three"), 1_100) == 2


def test_a_changed_word_starts_counting_anew_and_so_do_those_behind_it() -> None:
    rule = AlignedCommit(CommitOptions(guard_ms=0, n_agreeing=2))
    rule.observe(words("one two three four"), 1_200)
    assert rule.observe(words("one too three four"), 1_300) == 1
    assert rule.observe(words("too three four"), 1_400) == 2


def test_unsure_words_must_come_back_more_often() -> None:
    options = CommitOptions(guard_ms=0, n_agreeing=1, sure=0.8, fair=0.5)
    for confidence, needed in ((0.8, 1), (0.79, 2), (0.5, 2), (0.49, 3)):
        rule = AlignedCommit(options)
        hypothesis = words("one two", confidence=confidence)
        times = 1
        while not rule.observe(hypothesis, 1_000):
            times += 1
        assert times == needed


def test_an_old_word_is_committed_whatever_hypotheses_say() -> None:
    rule = AlignedCommit(CommitOptions(guard_ms=0, n_agreeing=9, max_age_ms=2_000))
    assert rule.observe(words("one two three"), 2_299) == 0
    assert rule.observe(words("won two three"), 2_300) == 1


def test_the_last_word_is_committed_once_it_is_old() -> None:
    rule = AlignedCommit(CommitOptions(guard_ms=0, n_agreeing=1, max_age_ms=2_000))
    assert rule.observe(words("one"), 2_299) == 0
    assert rule.observe(words("one"), 2_300) == 1


def test_restart_forgets_what_was_seen() -> None:
    rule = AlignedCommit(CommitOptions(guard_ms=0, n_agreeing=2))
    rule.observe(words("one two"), 600)
    rule.restart()
    assert rule.observe(words("one two"), 700) == 0


@given(
    st.lists(st.lists(st.sampled_from("abc"), max_size=6), max_size=12),
    st.integers(1, 3),
)
def test_committed_is_a_prefix_of_every_hypothesis_it_was_taken_from(
    hypotheses: list[list[str]], n_needed: int
) -> None:
    rule = AlignedCommit(CommitOptions(guard_ms=0, n_agreeing=n_needed))
    for i, hypothesis in enumerate(hypotheses):
        n = rule.observe(words(" ".join(hypothesis)), 1_000 * (i + 1))
        assert 0 <= n <= len(hypothesis)
        if n:
            assert n < len(hypothesis) or 1_000 * (i + 1) - 300 * n >= 5_000


def test_a_word_is_shown_once_it_was_heard_whole() -> None:
    view = TailView(ShowOptions(guard_ms=250))
    assert texts(view.observe(words("one two"), 549)) == ""
    assert texts(view.observe(words("one two"), 550)) == "one two"  # came back


def test_guard_counts_from_the_end_of_the_word() -> None:
    view = TailView(ShowOptions(guard_ms=250))
    assert texts(view.observe(words("one two"), 550)) == "one"


def test_a_shown_word_changes_when_two_hypotheses_want_it_or_one_is_sure() -> None:
    view = TailView(ShowOptions(guard_ms=0, sure=0.6))
    assert texts(view.observe(words("ask but you"), 900)) == "ask but you"
    doubtful = words("ask what you can", confidence=0.59)
    assert texts(view.observe(doubtful[:3], 1_000)) == "ask but you"
    assert texts(view.observe(doubtful, 1_200)) == "ask what you can"
    sure = words("ask why you can", confidence=0.6)
    assert texts(view.observe(sure, 1_300)) == "ask why you can"


def test_a_hypothesis_cut_short_once_hides_nothing() -> None:
    view = TailView(ShowOptions(guard_ms=0))
    view.observe(words("de gran"), 600)
    assert texts(view.observe(words("de"), 700)) == "de gran"
    assert texts(view.observe(words("de"), 800)) == "de"


def test_case_and_punctuation_of_a_shown_word_stand() -> None:
    view = TailView(ShowOptions(guard_ms=0))
    view.observe(words("And so"), 600)
    assert texts(view.observe(words("and so, my"), 900)) == "And so my"


def test_times_of_a_shown_word_follow_the_latest_hypothesis() -> None:
    view = TailView(ShowOptions(guard_ms=0))
    view.observe(words("one"), 300)
    later = [replace(words("one")[0], end_ms=280)]
    assert view.observe(later, 400)[0].end_ms == 280


def test_committed_words_leave_the_view() -> None:
    view = TailView(ShowOptions(guard_ms=0))
    view.observe(words("one two three"), 900)
    view.advance(words("one"))
    assert texts(view.observe(words("two three"), 1_000)) == "two three"


def test_a_commitment_that_differs_from_what_was_shown_clears_the_view() -> None:
    view = TailView(ShowOptions(guard_ms=1_000))
    view.observe(words("asked not"), 1_600)
    view.advance(words("ask"))
    assert texts(view.observe(words("now"), 1_000)) == ""
