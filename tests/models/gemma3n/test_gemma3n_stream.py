from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.base import StreamOptions
from audiokv.models.gemma3n.gemma3n_recognizer import Gemma3nRecognizer
from audiokv.models.gemma3n.gemma3n_stream import Gemma3nStream, WindowOptions
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.marks import Keeping
from audiokv.streaming.policy.registry import POLICY_NAMES
from tests.models.gemma3n.conftest import sound
from tests.models.gemma3n.reference import Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from audiokv.models.base import Hypothesis

    Opener = Callable[..., Gemma3nStream]


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def opener(folder: Path) -> Opener:
    recognizer = Gemma3nRecognizer(folder, "tiny")

    def opened(budget: int | None = None, policy: str = "fifo", **sizes: Any) -> Gemma3nStream:
        window = WindowOptions(cache=CacheOptions(budget, policy), **sizes)
        made = Gemma3nStream(recognizer._model, StreamOptions("en"), window)
        made.open(0)
        made.begin_segment(0)
        return made

    return opened


def texts(hypothesis: Hypothesis) -> list[str]:
    return [word.text for word in hypothesis.words]


def settled(stream: Gemma3nStream) -> list[str]:
    """What stays of the latest hypothesis; a draft that loops is cut."""
    return texts(stream.decode())


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


@pytest.mark.parametrize("n_samples", [4_000, 16_000, 23_456])
def test_a_live_stream_says_what_transformers_says_of_the_clip(
    opener: Opener, reference: Reference, n_samples: int
) -> None:
    samples = sound(n_samples, seed=n_samples)
    stream = opener()
    for part in np.split(samples, range(1600, n_samples, 1600)):
        stream.append(part)
        stream.decode()
    tokens = [int(word.text[1:]) for word in stream.decode().words]
    assert tokens
    assert tokens == reference.greedy(samples, [], len(tokens))


@given(st.lists(st.integers(1, 5_000), min_size=1, max_size=8))
@settings(max_examples=5, deadline=None)
def test_any_chunking_gives_the_same_words(opener: Opener, sizes: list[int]) -> None:
    samples = sound(sum(sizes))
    whole = opener()
    whole.append(samples)
    chunked = opener()
    for part in np.split(samples, np.cumsum(sizes)[:-1]):
        chunked.append(part)
    first, second = whole.decode(), chunked.decode()
    assert texts(first) == texts(second)
    assert [w.start_ms for w in first.words] == [w.start_ms for w in second.words]


def test_committed_words_are_gone_on_from(opener: Opener, reference: Reference) -> None:
    samples = sound(24_000)
    stream = opener()
    stream.append(samples)
    first = stream.decode()
    stream.commit(2)
    forced = [int(word.text[1:]) for word in first.words[:2]]
    then = stream.decode()
    tokens = [int(word.text[1:]) for word in then.words]
    assert tokens == reference.greedy(samples, forced, len(tokens))
    assert texts(then) == texts(first)[2 : 2 + len(tokens)]


def test_words_lie_in_order_inside_the_audio_and_after_what_is_committed(opener: Opener) -> None:
    stream = opener()
    stream.open(5_000)
    for i in range(10):
        stream.append(sound(3_200, i))
        hypothesis = stream.decode()
        edges = [e for w in hypothesis.words for e in (w.start_ms, w.end_ms)]
        assert edges == sorted(edges)
        assert all(5_000 <= e <= stream.end_ms for e in edges)
        assert all(0 <= w.confidence <= 1 for w in hypothesis.words)
        committed_ms = hypothesis.words[0].end_ms if hypothesis.words else 5_000
        stream.commit(1)
        stream.append(sound(160, i))
        assert all(w.start_ms >= committed_ms for w in stream.decode().words)


def test_nothing_heard_is_no_error(opener: Opener) -> None:
    stream = opener()
    stream.decode()
    stream.append(np.zeros(100, np.float32))
    stream.decode()
    assert stream.end_ms == 6


def test_without_a_bound_a_new_window_begins_with_the_prompt_alone(opener: Opener) -> None:
    stream = opener()
    stream.append(sound(32_000))
    stream.decode()
    stream.commit(1)
    stream.open(4_000)
    stream.append(sound(20_000, 5))
    fresh = opener()
    fresh.append(sound(20_000, 5))
    first, second = stream.decode(), fresh.decode()
    assert texts(first) == texts(second)
    assert [w.start_ms - 4_000 for w in first.words] == [w.start_ms for w in second.words]
    assert stream.n_restarts == 0
    assert stream.cache_counters() is None


def test_with_a_bound_the_segment_before_stays_with_its_committed_text(opener: Opener) -> None:
    stream = opener(200)
    stream.append(sound(32_000))
    hypothesis = stream.decode()
    stream.commit(2)
    said = [int(word.text[1:]) for word in hypothesis.words[:2]]
    held = stream._prefix.held
    stream.open(4_000)
    stream.append(sound(16_000, 5))
    stream.decode()
    # <eoa>, two words, <eos>, <boa>, and the slots that are whole
    assert stream._prefix.held == held + 4 + 1 + 16_000 // 2_560
    ledger = stream._prefix.cache.ledger
    assert ledger.keeping[0] == Keeping.PROMPT
    assert ledger.start_ms[held:][:5].tolist() == [1_920, 1_920, 1_920, 1_920, 4_000]
    assert len(said) == 2


def test_audio_that_is_heard_again_starts_afresh_and_is_counted(opener: Opener) -> None:
    stream = opener(200)
    stream.append(sound(32_000))
    stream.decode()
    stream.open(1_000)
    stream.append(sound(16_000, 5))
    stream.decode()
    assert stream.n_restarts == 1
    assert stream._prefix.held == 2 + 16_000 // 2_560
    counters = stream.cache_counters()
    assert counters is not None
    assert counters.seen_slots == 2 + 12 + counters.held_slots


@pytest.mark.parametrize("policy", [name for name in POLICY_NAMES if name != "full"])
def test_every_policy_keeps_the_budget(opener: Opener, policy: str) -> None:
    stream = opener(12, policy)
    for i in range(6):
        if i == 4:
            stream.open(stream.end_ms + 300)
        stream.append(sound(8_000, i))
        stream.commit(min(1, len(stream.decode().words)))
        counters = stream.cache_counters()
        assert counters is not None
        assert counters.held_slots <= 12
        stream.rest()
        assert counters.policy == policy
    assert counters is not None
    assert counters.seen_slots > 12


def test_a_stream_outlasts_the_models_positions(opener: Opener) -> None:
    stream = opener(40)
    stream._prefix._max_positions = 40 + 640 + 20
    for segment in range(12):
        stream.open(segment * 2_000)
        stream.append(sound(25_600, segment))
        stream.decode()
        stream.commit(3)
        assert stream._prefix.cache.seen <= 700
    assert stream.n_reanchors >= 2


def test_a_long_segment_lets_committed_audio_go(opener: Opener) -> None:
    stream = opener(trim_above_ms=3_000, keep_ms=500, max_window_ms=60_000)
    n_held = []
    for i in range(24):
        stream.append(sound(4_800, i))
        stream.commit(min(1, len(stream.decode().words)))
        n_held.append(stream._prefix.held)
    assert max(n_held) < 2 + 45
    ledger = stream._prefix.cache.ledger
    is_heard = ledger.end_ms[2:] <= stream._committed_ms
    assert ledger.is_committed[2:].tolist() == is_heard.tolist()
    assert stream._start_ms > 2_000
    assert stream._start_ms % 160 == 0
    assert stream.end_ms == 24 * 300


def test_a_segment_that_nothing_is_committed_of_is_bounded(opener: Opener) -> None:
    stream = opener(trim_above_ms=2_000, max_window_ms=3_000)
    for i in range(20):
        stream.append(sound(4_800, i))
        stream.decode()
        assert stream._prefix.held <= 2 + 3_000 // 160
    assert stream.end_ms == 6_000


def test_after_letting_go_it_says_what_a_fresh_window_says(opener: Opener) -> None:
    stream = opener(trim_above_ms=2_000, max_window_ms=2_400)
    for i in range(8):
        stream.append(sound(4_800, i))
    stream.decode()
    stream.append(sound(1_600, 9))
    after = stream.decode()
    # The same slots in a fresh cache.
    again = opener()
    again._slots, again._source = stream._slots, stream._source
    again._start_ms, again._n_samples = stream._start_ms, stream._n_samples
    assert texts(again.decode()) == texts(after)


def test_a_new_prompt_is_read_and_the_segment_again(
    opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = opener()
    stream.append(sound(20_000))
    before = texts(stream.decode())
    stream.update(StreamOptions("en", "names"))  # the plain layout has no use for it
    assert stream._has_prompt
    opening = (2, 30, 31, 32)
    layout = type(stream._model.layout)
    frame = stream._frame
    changed = type(frame)(opening, frame.before_audio, frame.after_audio, (1,), frame.stops)
    monkeypatch.setattr(layout, "frame", lambda *_: changed)
    stream.update(StreamOptions("en", "others"))
    stream.append(sound(320, 9))
    after = texts(stream.decode())
    fresh = opener()
    fresh.append(np.concatenate((sound(20_000), sound(320, 9))))
    assert after == texts(fresh.decode())
    assert before != after
    assert stream._prefix.cache.ledger.keeping[:5].tolist() == [Keeping.PROMPT] * 4 + [Keeping.SINK]


def test_speakers_and_language_reach_the_ledger(opener: Opener) -> None:
    stream = opener()
    stream.append(sound(5_120), "left")
    stream.append(sound(5_120), "right")
    stream.decode()
    ledger = stream._prefix.cache.ledger
    assert [ledger.speakers.name(n) for n in ledger.speaker[2:]] == ["left"] * 2 + ["right"] * 2
    assert {ledger.languages.name(n) for n in ledger.language[2:]} == {"en"}


def test_the_norm_can_begin_anew_at_a_pause(opener: Opener) -> None:
    outputs = []
    for resets in (0, 1):
        stream = opener(resets_norm=bool(resets))
        stream.append(sound(16_000, gain=8))
        stream.decode()
        stream.begin_segment(1_000)
        assert (stream._source._tower.convs[0].sums.count == 0) == bool(resets)
        stream.append(sound(16_000, 3, 0.05))
        stream.decode()
        outputs.append(stream._slots[-1][0].embeds)
    assert not torch.allclose(outputs[0], outputs[1], atol=1e-3)


def test_padding_to_a_number_of_slots_is_that_of_the_processor(
    folder: Path, reference: Reference, tmp_path: Path
) -> None:
    made = tmp_path / "padded"
    shutil.copytree(folder, made)
    (made / "audiokv.json").write_text('{"pad_to_slots": 20}')
    stream = Gemma3nRecognizer(made, "padded").open_stream(StreamOptions())
    samples = sound(24_000)
    stream.open(0)
    stream.append(samples)
    tokens = [int(word.text[1:]) for word in stream.decode().words]
    assert tokens[:2] == _greedy_padded(reference, samples, 10)[:2]


def _greedy_padded(reference: Reference, samples: np.ndarray, n_padding: int) -> list[int]:
    said: list[int] = []
    for _ in range(2):
        logits = reference.logits(samples, said, n_padding)[-1].clone()
        logits[[0, 2, 3, 4, 5, 55, 56, 57]] = -torch.inf
        said.append(int(logits.argmax()))
    return said


def test_a_budget_without_room_for_audio_is_refused(opener: Opener) -> None:
    with pytest.raises(ConfigError, match="prompt of 2 tokens") as caught:
        opener(9)
    assert "10 or more" in caught.value.remedy
    opener(10)
