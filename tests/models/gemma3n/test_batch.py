from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.models.gemma3n.batch import BatchRunner
from audiokv.models.gemma3n.batch_requests import Encode, Finish, Read, ReadTail, run_alone
from audiokv.models.gemma3n.batch_shapes import ExactShapes, FixedShapes
from audiokv.models.gemma3n.tail_decoding import TailDecoder, TailRequest
from audiokv.streaming.errors import ConfigError
from tests.models.gemma3n.batching import (
    BOA,
    BOS,
    EOA,
    History,
    histories,
    layers_of,
    lived,
    marks,
    slots,
    tail_logits,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from audiokv.models.gemma3n.batch_requests import Work
    from audiokv.models.gemma3n.batch_shapes import Shapes
    from audiokv.models.gemma3n.prefix import Prefix
    from audiokv.models.gemma3n.speech_model import Inputs, SpeechModel

TOLERANCE = 1e-4
UNSPOKEN = frozenset({0, BOS, BOA, 4, 5, 55, EOA, 57})
SHAPES: list[Shapes] = [ExactShapes(), FixedShapes()]


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def pairs(speech: SpeechModel, lives: Sequence[History]) -> tuple[list[Prefix], list[Prefix]]:
    return [lived(speech, life) for life in lives], [lived(speech, life) for life in lives]


def assert_equal_state(alone: Prefix, together: Prefix) -> None:
    assert together.cache.positions.tolist() == alone.cache.positions.tolist()
    assert together.cache.seen == alone.cache.seen
    for a, b in zip(layers_of(alone), layers_of(together), strict=True):
        torch.testing.assert_close(b, a, atol=TOLERANCE, rtol=0)
    first, second = alone.cache.ledger.attention, together.cache.ledger.attention
    np.testing.assert_allclose(second.importance, first.importance, atol=TOLERANCE)
    np.testing.assert_allclose(second.accumulated, first.accumulated, atol=10 * TOLERANCE)
    assert second.n_observed.tolist() == first.n_observed.tolist()


texts = st.lists(st.integers(6, 47), max_size=9)
tails = st.tuples(histories, st.lists(st.integers(1, 11), min_size=1, max_size=4), st.booleans())


@given(st.lists(tails, min_size=1, max_size=3), st.sampled_from(SHAPES))
@settings(max_examples=8, deadline=None)
def test_the_logits_of_a_batch_are_those_of_each_alone_and_no_prefix_changes(
    speech: SpeechModel, streams: list[tuple[History, list[int], bool]], shapes: Shapes
) -> None:
    alone, together = pairs(speech, [life for life, _, _ in streams])
    before = [layers_of(prefix) for prefix in together]

    def works(prefixes: list[Prefix]) -> list[Work[list[torch.Tensor]]]:
        return [
            tail_logits(
                speech,
                prefix,
                [slots(speech, n, 7 * i + n) for i, n in enumerate(lengths)],
                again=again,
            )
            for prefix, (_, lengths, again) in zip(prefixes, streams, strict=True)
        ]

    expected = [run_alone(work) for work in works(alone)]
    got = BatchRunner(speech, shapes).run(works(together))
    for a, b in zip(expected, got, strict=True):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            torch.testing.assert_close(y, x, atol=TOLERANCE, rtol=0)
    for prefix, layers, other in zip(together, before, alone, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(layers, layers_of(prefix), strict=True))
        assert_equal_state(other, prefix)


decodes = st.tuples(histories, st.integers(0, 3), texts, texts, st.integers(1, 9))


@given(st.lists(decodes, min_size=2, max_size=4), st.sampled_from(SHAPES), st.booleans())
@settings(max_examples=8, deadline=None)
def test_a_batch_says_what_each_stream_says_alone(
    speech: SpeechModel,
    streams: list[tuple[History, int, list[int], list[int], int]],
    shapes: Shapes,
    has_heads: bool,  # noqa: FBT001
) -> None:
    heads = ((1, 3), (5, 0)) if has_heads else ()
    decoder = TailDecoder(speech, frozenset({1}), UNSPOKEN, heads)
    alone, together = pairs(speech, [stream[0] for stream in streams])

    def works(prefixes: list[Prefix]) -> list[Work[Any]]:
        made = []
        for prefix, (_, n_own, forced, draft, n_tokens) in zip(prefixes, streams, strict=True):
            own = slots(speech, n_own, n_own) if n_own else None
            request = TailRequest(own, n_own, (EOA,), forced, draft, n_tokens, 99)
            made.append(decoder.decoding(prefix, request, prefix.audio_rows(0)))
        return made

    expected = [run_alone(work) for work in works(alone)]
    got = BatchRunner(speech, shapes).run(works(together))
    for a, b in zip(expected, got, strict=True):
        assert b.tokens == a.tokens
        assert (b.n_passes, b.is_complete) == (a.n_passes, a.is_complete)
        np.testing.assert_allclose(b.log_probabilities, a.log_probabilities, atol=TOLERANCE)
        np.testing.assert_allclose(b.attention, a.attention, atol=TOLERANCE)
    for first, second in zip(alone, together, strict=True):
        assert_equal_state(first, second)


@given(
    st.lists(histories, min_size=3, max_size=4),
    st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=2, max_size=4),
    st.sampled_from(SHAPES),
)
@settings(max_examples=6, deadline=None)
def test_streams_join_and_leave_and_each_reads_on_as_if_alone(
    speech: SpeechModel, lives: list[History], rounds: list[set[int]], shapes: Shapes
) -> None:
    alone, together = pairs(speech, lives)
    runner = BatchRunner(speech, shapes)
    for number, present in enumerate(rounds):
        chosen = [i for i in sorted(present) if i < len(lives)]

        def works(
            prefixes: list[Prefix], chosen: list[int] = chosen, number: int = number
        ) -> list[Work[None]]:
            made = []
            for i in chosen:
                n = 1 + (3 * i + number) % 4
                part = slots(speech, n, 10 * number + i)
                made.append(prefixes[i].appending(part, marks(n, 30 + 4 * number)))
            return made

        for work in works(alone):
            run_alone(work)
        runner.run(works(together))
        for prefix in together:
            prefix.rest()
        for prefix in alone:
            prefix.rest()
    for first, second in zip(alone, together, strict=True):
        assert_equal_state(first, second)
    for prefix, life in zip(together, lives, strict=True):
        assert life.budget is None or prefix.held <= life.budget


def test_streams_share_passes(speech: SpeechModel, monkeypatch: pytest.MonkeyPatch) -> None:
    prefixes = [lived(speech, History(n, 17, "fifo", n)) for n in (3, 9, 20)]
    runner = BatchRunner(speech)
    n_lanes: list[int] = []
    forward: Any = runner._forward

    def counted(inputs: Any, *rest: Any) -> Any:
        n_lanes.append(len(inputs.embeds))
        return forward(inputs, *rest)

    monkeypatch.setattr(runner, "_forward", counted)
    decoder = TailDecoder(speech, frozenset(), UNSPOKEN)
    requests = [TailRequest(None, 0, (EOA,), [], [], n, 99) for n in (3, 5, 5)]
    runner.run(
        [
            decoder.decoding(prefix, request, prefix.audio_rows(0))
            for prefix, request in zip(prefixes, requests, strict=True)
        ]
    )
    assert n_lanes == [3, 3, 3, 3, 3]  # one stream is done after three: not yet worth moving
    n_lanes.clear()
    requests = [TailRequest(None, 0, (EOA,), [], [], n, 99) for n in (1, 2, 4)]
    runner.run(
        [
            decoder.decoding(prefix, request, prefix.audio_rows(0))
            for prefix, request in zip(prefixes, requests, strict=True)
        ]
    )
    assert n_lanes == [3, 3, 1, 1]


def one_tail(speech: SpeechModel, prefix: Prefix) -> ReadTail:
    decoder = TailDecoder(speech, frozenset({1}), UNSPOKEN)
    return ReadTail(
        prefix,
        slots(speech, 2, 4),
        decoder,
        is_first=True,
        n_judged=1,
        n_rows=1,
        columns=np.arange(prefix.held),
    )


def kinds_in_turn(speech: SpeechModel, seen: list[str], early: int) -> Work[str]:
    tower = speech.tower
    state = tower.start()
    mel = torch.zeros((1, 40, 128))
    for _ in range(early):
        encode = Encode(tower, state, mel)
        yield encode
        state = encode.after
        seen.append("encode")
    prefix = lived(speech, History(2, None, "fifo", 1))
    yield Read(prefix, slots(speech, 1, 3))
    seen.append("read")
    yield Finish(tower, state)
    seen.append("finish")
    with prefix.tail():
        yield one_tail(speech, prefix)
    seen.append("tail")
    return f"done {early}"


def test_streams_wait_until_all_are_at_their_tails(speech: SpeechModel) -> None:
    seen: list[str] = []
    works = [kinds_in_turn(speech, seen, early) for early in (1, 3)]
    assert BatchRunner(speech).run(works) == ["done 1", "done 3"]
    assert seen == ["encode"] * 4 + ["read"] * 2 + ["finish"] * 2 + ["tail"] * 2


def broken(speech: SpeechModel, prefix: Prefix) -> Work[list[torch.Tensor]]:
    with prefix.tail():
        yield one_tail(speech, prefix)
        raise ZeroDivisionError


def test_an_error_of_one_stream_comes_when_the_others_are_done(speech: SpeechModel) -> None:
    prefixes = [lived(speech, History(4, 17, "fifo", n)) for n in (1, 2)]
    parts: list[Inputs] = [slots(speech, 1, n) for n in range(5)]
    ended: list[bool] = []

    def whole() -> Work[list[torch.Tensor]]:
        logits = yield from tail_logits(speech, prefixes[1], parts, again=False)
        ended.append(True)
        return logits

    runner = BatchRunner(speech)
    with pytest.raises(ZeroDivisionError):
        runner.run([broken(speech, prefixes[0]), whole()])
    assert ended == [True]
    for prefix in prefixes:  # no tail was left open
        with prefix.tail():
            pass
    runner.run([tail_logits(speech, prefixes[0], parts, again=False)])


def test_a_pass_that_fails_leaves_every_stream_as_it_was(
    speech: SpeechModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefixes = [lived(speech, History(9, 17, "fifo", n)) for n in (1, 2)]
    before = [layers_of(prefix) for prefix in prefixes]
    runner = BatchRunner(speech)

    def fail(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(runner, "_forward", fail)
    works: Callable[[], list[Work[Any]]] = lambda: [  # noqa: E731  made twice
        tail_logits(speech, prefix, [slots(speech, 2, 1)], again=False) for prefix in prefixes
    ]
    with pytest.raises(MemoryError):
        runner.run(works())
    for prefix, layers in zip(prefixes, before, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(layers, layers_of(prefix), strict=True))
    monkeypatch.undo()
    assert len(runner.run(works())) == 2


def test_a_tail_beyond_its_room_is_an_error_as_it_is_alone(speech: SpeechModel) -> None:
    prefix = lived(speech, History(9, 12, "fifo", 1))
    parts = [slots(speech, 30, n) for n in range(3)]
    with pytest.raises(ConfigError, match="tail") as alone:
        run_alone(tail_logits(speech, prefix, parts, again=False))
    with pytest.raises(ConfigError) as together:
        BatchRunner(speech).run([tail_logits(speech, prefix, parts, again=False)])
    assert str(together.value) == str(alone.value)
