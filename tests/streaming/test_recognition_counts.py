from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.models.base import Hypothesis
from audiokv.streaming.errors import MessageError
from audiokv.streaming.messages import Progress, decode_server, encode
from audiokv.streaming.recognition_counts import RecognitionCounts, total
from audiokv.streaming.session_options import SessionOptions
from tests.streaming.session_script import LOUD, Script, audio, drain, session_of

if TYPE_CHECKING:
    from collections.abc import Sequence

small = st.integers(0, 9)
some_counts = st.builds(RecognitionCounts, small, small, small)


def test_a_step_that_was_decoded_again_or_dropped_counts() -> None:
    counts = RecognitionCounts()
    counts.observe(Hypothesis(()))
    assert counts == RecognitionCounts()
    counts.observe(Hypothesis((), is_decoded_again=True))
    counts.observe(Hypothesis((), is_decoded_again=True, is_dropped=True))
    assert counts == RecognitionCounts(n_decoded_again=2, n_dropped=1)


@given(st.lists(some_counts, max_size=4))
def test_channels_add_up_and_nothing_is_none(counts: Sequence[RecognitionCounts]) -> None:
    expected = RecognitionCounts(
        sum(one.n_restarts for one in counts),
        sum(one.n_decoded_again for one in counts),
        sum(one.n_dropped for one in counts),
    )
    assert total(counts) == (None if expected == RecognitionCounts() else expected)


def test_a_session_counts_restarts_and_steps() -> None:
    class Doubtful(Script):
        def decode(self) -> Hypothesis:
            super().decode()
            return Hypothesis((), is_decoded_again=True, is_dropped=True)

    script = Doubtful([])
    session = session_of(script, SessionOptions(blank_ms=2_000))
    assert session.counts == RecognitionCounts()
    session.push(audio((LOUD, 5_000), (0, 1_000)))
    session.stop()
    drain(session, script)
    assert session.counts.n_restarts == len(script.opened) - 1 >= 1
    assert session.counts.n_decoded_again == session.counts.n_dropped == len(script.heard) > 10


@given(some_counts)
def test_they_travel_with_progress(counts: RecognitionCounts) -> None:
    sent = Progress(1, 2, 3, 4, recognition=counts)
    assert decode_server(encode(sent)) == sent
    assert "recognition" not in encode(Progress(1, 2, 3, 4))


@pytest.mark.parametrize(
    "wrong",
    [
        '{"n_restarts":1,"n_decoded_again":0}',
        '{"n_restarts":1,"n_decoded_again":0,"n_dropped":0,"n_more":1}',
        '{"n_restarts":-1,"n_decoded_again":0,"n_dropped":0}',
    ],
)
def test_counts_that_are_missing_unknown_or_negative_are_refused(wrong: str) -> None:
    text = encode(Progress(1, 2, 3, 4, recognition=RecognitionCounts(1)))
    start = text.index('{"n_restarts"')
    with pytest.raises(MessageError):
        decode_server(f"{text[:start]}{wrong}}}")
