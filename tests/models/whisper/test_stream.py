from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.base import Hypothesis, StreamOptions
from audiokv.models.whisper.decoding import Decoded, DraftDecoder
from audiokv.models.whisper.stream import WhisperModel, WhisperStream, WindowOptions
from audiokv.models.whisper.text import WhisperText

if TYPE_CHECKING:
    from audiokv.models.whisper.network import CrossCache
    from tests.models.whisper.conftest import Tiny

WINDOW = WindowOptions(padding_ms=400, trim_above_ms=1200, keep_ms=300)
ENGLISH = StreamOptions("en")
DETECTED = StreamOptions()
LIMIT_MS = 150 * 20 - 400  # 150 positions of 20 ms, less the padding


def noise(duration_ms: int, seed: int = 0) -> np.ndarray:
    """Noise under a moving envelope, loud enough for features that differ."""
    generator = np.random.default_rng(seed)
    samples = generator.standard_normal(duration_ms * 16)
    envelope = np.abs(np.sin(np.arange(samples.size) / 900.0)) ** 3
    loud: np.ndarray = (samples * envelope * 0.3).astype(np.float32)
    return loud


def stream(
    tiny: Tiny,
    *,
    options: StreamOptions = ENGLISH,
    window: WindowOptions = WINDOW,
    audio: np.ndarray | None = None,
    at_ms: int = 0,
) -> WhisperStream:
    opened = WhisperStream(tiny.model, options, window)
    opened.open(at_ms)
    if audio is not None:
        opened.append(audio)
    return opened


class Recorded:
    """What the decoder was asked, and what it answered."""

    def __init__(self) -> None:
        self.contexts: list[list[int]] = []
        self.forced: list[list[int]] = []
        self.drafts: list[list[int]] = []
        self.results: list[Decoded] = []
        self.language_slots: list[int] = []
        self.scripted: Decoded | None = None


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    record = Recorded()
    decode, language_logits = DraftDecoder.decode, DraftDecoder.language_logits

    def recording_decode(
        self: DraftDecoder, context: list[int], n_forced: int, draft: list[int], cross: CrossCache
    ) -> Decoded:
        record.contexts.append(context)
        record.forced.append(context[len(context) - n_forced :])
        record.drafts.append(draft)
        result = record.scripted or decode(self, context, n_forced, draft, cross)
        record.results.append(result)
        return result

    def recording_logits(self: DraftDecoder, cross: CrossCache, ids: list[int]) -> np.ndarray:
        record.language_slots.append(cross.n_audio_slots)
        return language_logits(self, cross, ids)

    monkeypatch.setattr(DraftDecoder, "decode", recording_decode)
    monkeypatch.setattr(DraftDecoder, "language_logits", recording_logits)
    return record


def said(tokens: list[int], slots: list[int], *, n_slots: int, **changes: object) -> Decoded:
    """A scripted result whose tokens look at the given slots, and whose end looks at the last."""
    attention = np.full((2, len(slots) + 1, n_slots), 1e-4, dtype=np.float32)
    for row, slot in enumerate([*slots, n_slots - 1]):
        attention[:, row, slot : slot + 4] = 1.0
    values: dict[str, object] = {
        "tokens": tokens,
        "log_probabilities": [-0.1] * len(tokens),
        "attention": attention,
        "no_speech_probability": 0.1,
        "is_complete": True,
        "n_forwards": 1,
    }
    return Decoded(**(values | changes))  # type: ignore[arg-type]


def texts(hypothesis: Hypothesis) -> list[str]:
    return [word.text for word in hypothesis.words]


@pytest.fixture(scope="module")
def worded(tiny: Tiny) -> np.ndarray:
    """A second of audio in which the random model finds some words."""
    for seed in range(100):
        audio = noise(1000, seed)
        if len(stream(tiny, audio=audio).decode().words) >= 3:
            return audio
    raise AssertionError("the random model finds no words")


def test_words_lie_in_the_window_in_order(tiny: Tiny, worded: np.ndarray) -> None:
    hypothesis = stream(tiny, audio=worded, at_ms=7000).decode()
    times = [t for word in hypothesis.words for t in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    assert times[0] >= 7000
    assert times[-1] <= 8000
    assert all(0 <= word.confidence <= 1 for word in hypothesis.words)
    assert not any(word.is_final for word in hypothesis.words)
    assert hypothesis.language == "en"
    assert hypothesis.is_settled


def test_times_move_with_the_window(tiny: Tiny, worded: np.ndarray) -> None:
    at_start = stream(tiny, audio=worded).decode()
    later = stream(tiny, audio=worded, at_ms=5000).decode()
    assert texts(later) == texts(at_start)
    for word, moved in zip(at_start.words, later.words, strict=True):
        assert (moved.start_ms, moved.end_ms) == (word.start_ms + 5000, word.end_ms + 5000)


@settings(deadline=None, max_examples=8)
@given(cuts=st.lists(st.integers(0, 16_000), max_size=6))
def test_any_chunking_gives_the_same_hypothesis(tiny: Tiny, cuts: list[int]) -> None:
    audio = noise(1000, seed=3)
    in_pieces = stream(tiny)
    for piece in np.split(audio, sorted(cuts)):
        in_pieces.append(piece)
    assert in_pieces.end_ms == 1000
    assert in_pieces.decode() == stream(tiny, audio=audio).decode()


def test_a_window_without_audio_can_be_decoded(tiny: Tiny) -> None:
    hypothesis = stream(tiny).decode()
    assert all(word.end_ms <= 20 for word in hypothesis.words)


def test_decoding_again_costs_one_pass(tiny: Tiny, worded: np.ndarray, recorded: Recorded) -> None:
    opened = stream(tiny, audio=worded)
    first, second = opened.decode(), opened.decode()
    assert first == second
    assert recorded.drafts[0] == []
    assert recorded.drafts[1] == recorded.results[0].tokens
    assert recorded.results[1].n_forwards == 1 or not recorded.results[0].is_complete


def test_committed_words_are_forced_and_the_rest_stands(
    tiny: Tiny, worded: np.ndarray, recorded: Recorded
) -> None:
    opened = stream(tiny, audio=worded)
    before = opened.decode()
    tokens = [t for word, _ in opened._latest[:2] for t in word.tokens]
    opened.commit(2)
    after = opened.decode()
    assert recorded.forced[1] == tokens
    assert recorded.drafts[1] == recorded.results[0].tokens[len(tokens) :]
    assert recorded.results[0].tokens == [*tokens, *recorded.results[1].tokens]
    assert texts(after)[: len(texts(before)) - 2] == texts(before)[2:]


def test_committing_nothing_changes_nothing(
    tiny: Tiny, worded: np.ndarray, recorded: Recorded
) -> None:
    opened = stream(tiny, audio=worded)
    before = opened.decode()
    opened.commit(0)
    assert opened.decode() == before
    assert recorded.forced == [[], []]


STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "commit", "segment", "open"]), st.integers(0, 700)),
    min_size=4,
    max_size=8,
)


@settings(deadline=None, max_examples=8)
@given(steps=STEPS, seed=st.integers(0, 50))
def test_words_never_begin_before_what_is_committed(
    tiny: Tiny, steps: list[tuple[str, int]], seed: int
) -> None:
    opened = stream(tiny)
    heard_ms = committed_ms = 0
    for i, (kind, number) in enumerate(steps):
        hypothesis = opened.decode()
        edges = [t for word in hypothesis.words for t in (word.start_ms, word.end_ms)]
        assert edges == sorted(edges)
        assert not edges or (edges[0] >= committed_ms and edges[-1] <= max(heard_ms, committed_ms))
        if kind == "append":
            opened.append(noise(number, seed + i))
            heard_ms += number
        elif kind == "commit":
            n = min(number % 4, len(hypothesis.words))
            opened.commit(n)
            committed_ms = hypothesis.words[n - 1].end_ms if n else committed_ms
        elif kind == "segment":
            opened.begin_segment(max(0, heard_ms - number))
        else:
            opened.open(max(0, heard_ms - number))
            heard_ms = max(0, heard_ms - number)
        assert opened.end_ms == heard_ms
        assert heard_ms - opened._start_ms <= LIMIT_MS


def test_a_long_window_lets_committed_audio_go(tiny: Tiny, recorded: Recorded) -> None:
    opened = stream(tiny, audio=noise(1000))
    tokens = tiny.text.encode(" one two three")
    n_one, n_two = len(tiny.text.encode(" one")), len(tiny.text.encode(" two"))
    slots = [2] * n_one + [15] * n_two + [35] * (len(tokens) - n_one - n_two)
    recorded.scripted = said(tokens, slots, n_slots=50)
    assert texts(opened.decode()) == ["one", "two", "three"]
    ends_ms = [timed.end_ms for _, timed in opened._latest]
    opened.commit(2)
    assert (opened._start_ms, opened.end_ms) == (0, 1000)  # not yet long
    recorded.scripted = None
    opened.append(noise(300, seed=1))
    opened.decode()
    opened.commit(0)
    # "one" ended well before the last committed word: its audio goes, up to its end.
    assert ends_ms[1] - ends_ms[0] >= WINDOW.keep_ms
    assert opened._start_ms == ends_ms[0]
    assert opened.end_ms == 1300
    assert opened._mel.n_samples == (1300 - ends_ms[0]) * 16
    opened.decode()
    assert recorded.forced[-1] == tiny.text.encode(" two")


def test_without_commits_a_window_goes_on_hearing_what_is_new(tiny: Tiny) -> None:
    opened = stream(tiny)
    for i in range(40):
        opened.append(noise(200, seed=i))
    hypothesis = opened.decode()
    assert opened.end_ms == 8000
    assert 8000 - opened._start_ms <= LIMIT_MS
    fresh = stream(tiny, at_ms=opened._start_ms)
    for i in range(40):
        fresh.append(noise(200, seed=i)[max(0, opened._start_ms - 200 * i) * 16 :])
    # Not the same to the last bit: the trimmed window knows what came just before it.
    difference = opened._mel.features(250) - fresh._mel.features(250)
    assert difference[:, 2:].abs().max() < 1e-4
    assert all(word.start_ms >= opened._start_ms for word in hypothesis.words)


def test_a_flood_of_audio_keeps_the_newest(tiny: Tiny) -> None:
    opened = stream(tiny, audio=noise(9000))
    assert opened.end_ms == 9000
    assert opened._start_ms >= 9000 - LIMIT_MS
    opened.decode()


def test_a_fresh_window_forgets_the_audio_and_the_words(
    tiny: Tiny, worded: np.ndarray, recorded: Recorded
) -> None:
    opened = stream(tiny, audio=worded)
    opened.decode()
    opened.commit(1)
    opened.open(4000)
    opened.append(noise(500, seed=2))
    assert opened.end_ms == 4500
    hypothesis = opened.decode()
    assert recorded.forced[-1] == recorded.drafts[-1] == []
    assert recorded.contexts[-1] == tiny.text.start_tokens("en")
    assert hypothesis == stream(tiny, audio=noise(500, seed=2), at_ms=4000).decode()


def test_text_before_the_window_is_context_where_wanted(
    tiny: Tiny, worded: np.ndarray, recorded: Recorded
) -> None:
    window = WindowOptions(padding_ms=400, max_previous_tokens=2)
    opened = stream(tiny, audio=worded, window=window)
    opened.decode()
    tokens = [t for word, _ in opened._latest[:3] for t in word.tokens]
    opened.commit(3)
    opened.open(4000)
    opened.append(noise(500))
    opened.decode()
    assert recorded.contexts[-1] == [
        tiny.text.start_of_previous,
        *tokens[-2:],
        *tiny.text.start_tokens("en"),
    ]


def test_a_prompt_comes_first_and_can_be_changed(tiny: Tiny, recorded: Recorded) -> None:
    opened = stream(tiny, options=StreamOptions("en", "  quick fox "), audio=noise(500))
    opened.decode()
    start = tiny.text.start_tokens("en")
    previous = tiny.text.start_of_previous
    assert recorded.contexts[-1] == [previous, *tiny.text.encode(" quick fox"), *start]
    opened.update(StreamOptions("de", "Fuchs"))
    opened.decode()
    start = tiny.text.start_tokens("de")
    assert recorded.contexts[-1] == [previous, *tiny.text.encode(" Fuchs"), *start]
    opened.update(StreamOptions("de", "   "))
    assert opened.decode().language == "de"
    assert recorded.contexts[-1] == start


def test_a_long_prompt_is_cut(tiny: Tiny, recorded: Recorded) -> None:
    window = WindowOptions(padding_ms=400, max_prompt_tokens=5)
    options = StreamOptions("en", "the other fox " * 50)
    stream(tiny, options=options, window=window, audio=noise(300)).decode()
    prompt = recorded.contexts[-1][1 : -len(tiny.text.start_tokens("en"))]
    assert prompt == tiny.text.encode(" the other fox the other fox")[:5]


@pytest.mark.parametrize("spelled", ["<|endoftext|>", "<|startoftranscript|>", "<|de|>"])
def test_special_tokens_in_a_prompt_are_not_obeyed(
    tiny: Tiny, recorded: Recorded, spelled: str
) -> None:
    stream(tiny, options=StreamOptions("en", f"a {spelled} b"), audio=noise(300)).decode()
    context = recorded.contexts[-1]
    assert context.count(tiny.text.start) == 1
    assert tiny.text.end_of_text not in context


def test_the_language_is_detected_from_the_open_segment(tiny: Tiny, recorded: Recorded) -> None:
    opened = stream(tiny, options=DETECTED, audio=noise(1000), at_ms=2000)
    hypothesis = opened.decode()
    assert hypothesis.language in tiny.text.language_ids
    assert hypothesis.language_confidence < 1
    assert not hypothesis.is_settled
    opened.begin_segment(2600)
    opened.append(noise(200))
    opened.decode()
    opened.begin_segment(1000)  # never before the window
    opened.decode()
    opened.begin_segment(9000)  # nor behind it
    opened.decode()
    assert recorded.language_slots == [50, 30, 60, 1]


def test_commits_settle_the_detected_language(tiny: Tiny, worded: np.ndarray) -> None:
    opened = stream(tiny, options=DETECTED, audio=worded)
    language = opened.decode().language
    opened.commit(1)
    hypothesis = opened.decode()
    assert hypothesis.is_settled
    assert hypothesis.language == language
    assert hypothesis.language_confidence == 1.0


def test_another_language_starts_afresh(
    tiny: Tiny, worded: np.ndarray, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = iter([[0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    monkeypatch.setattr(
        DraftDecoder, "language_logits", lambda *_: np.array(next(heard), dtype=np.float32)
    )
    opened = stream(tiny, options=DETECTED, audio=worded)
    assert [opened.decode().language for _ in range(3)] == ["de", "de", "zh"]
    assert recorded.drafts[1] == recorded.results[0].tokens != []
    assert recorded.drafts[2] == []
    assert tiny.text.language_ids["zh"] in recorded.contexts[2]


def test_an_english_only_model_uses_no_language_tokens(tiny: Tiny, recorded: Recorded) -> None:
    text = WhisperText(tiny.folder / "tokenizer.json")
    text.language_ids = {}
    model = WhisperModel(tiny.network, text, tiny.model.mel_filters, [])
    for language in (None, "de"):
        opened = WhisperStream(model, StreamOptions(language), WINDOW)
        opened.open(0)
        opened.append(noise(500))
        hypothesis = opened.decode()
        assert hypothesis.language == "en"
        assert hypothesis.is_settled
        assert recorded.contexts[-1] == [text.start, text.no_timestamps]
    assert recorded.language_slots == []


def test_a_loop_is_cut(tiny: Tiny, recorded: Recorded) -> None:
    (the,) = tiny.text.encode(" the")
    opened = stream(tiny, audio=noise(1000))
    recorded.scripted = said([the] * 9, [40] * 9, n_slots=50)
    assert texts(opened.decode()) == ["the"]
    assert opened._draft == [the]


def test_a_jump_back_is_cut(tiny: Tiny, recorded: Recorded) -> None:
    opened = stream(tiny, audio=noise(1000))
    tokens = [50, 51, 52, 53]
    recorded.scripted = said(tokens, [2, 45, 3, 5], n_slots=50)
    opened.decode()
    assert opened._draft == tokens[:2]


def test_improbable_text_on_silence_is_dropped(tiny: Tiny, recorded: Recorded) -> None:
    opened = stream(tiny, audio=noise(1000))
    scripted = {"no_speech_probability": 0.9, "log_probabilities": [-3.0, -3.0]}
    recorded.scripted = said([50, 51], [2, 30], n_slots=50, **scripted)
    assert opened.decode().words == ()
    assert opened._draft == []


def test_punctuation_of_a_committed_word_is_hidden(tiny: Tiny, recorded: Recorded) -> None:
    opened = stream(tiny, audio=noise(1000))
    (the,), (other,), (dot,) = (tiny.text.encode(t) for t in (" the", " other", "."))
    recorded.scripted = said([the, other], [2, 30], n_slots=50)
    opened.decode()
    opened.commit(1)
    recorded.scripted = said([dot, other], [2, 10, 30], n_slots=50)
    hypothesis = opened.decode()
    assert texts(hypothesis) == ["other"]
    opened.commit(1)
    recorded.scripted = None
    opened.decode()
    assert recorded.forced[-1] == [the, dot, other]


def test_confidence_is_that_of_all_tokens_of_a_word(tiny: Tiny, recorded: Recorded) -> None:
    tokens = tiny.text.encode(" zz the")
    assert len(tokens) == 4
    scores = [-0.2, -0.4, -0.6, -0.05]
    recorded.scripted = said(tokens, [2, 5, 8, 30], n_slots=50, log_probabilities=scores)
    words = stream(tiny, audio=noise(1000)).decode().words
    assert words[0].confidence == pytest.approx(np.exp(-0.4), abs=1e-3)
    assert words[1].confidence == pytest.approx(np.exp(-0.05), abs=1e-3)
