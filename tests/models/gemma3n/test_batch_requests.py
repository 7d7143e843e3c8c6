from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from audiokv.models.gemma3n.batch_requests import Encode, Finish, Read, ReadTail, run_alone
from audiokv.models.gemma3n.tail_decoding import TailDecoder
from tests.models.gemma3n.batching import History, lived, slots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from audiokv.models.gemma3n.batch_requests import Work
    from audiokv.models.gemma3n.speech_model import SpeechModel


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def test_encoding_is_the_towers(speech: SpeechModel) -> None:
    mel = torch.randn((1, 50, 128), generator=torch.Generator().manual_seed(1))
    start = speech.tower.start()

    def work() -> Work[tuple[torch.Tensor, torch.Tensor]]:
        encode = Encode(speech.tower, start, mel)
        yield encode
        finish = Finish(speech.tower, encode.after)
        yield finish
        return encode.slots, finish.slots

    slots_now, last = run_alone(work())
    expected, after = speech.tower.advance(start, mel)
    assert torch.equal(slots_now, expected)
    assert torch.equal(last, speech.tower.finish(after))


def test_what_is_read_joins_the_prefix(speech: SpeechModel) -> None:
    prefix = lived(speech, History(3, None, "fifo", 1))

    def work() -> Work[str]:
        yield Read(prefix, slots(speech, 4, 2))
        return "read"

    assert run_alone(work()) == "read"
    assert prefix.held == 2 + 3 + 4


def test_a_tail_gives_what_was_asked_for(speech: SpeechModel) -> None:
    prefix = lived(speech, History(3, None, "fifo", 1))
    decoder = TailDecoder(speech, frozenset({1}), frozenset({9}), ((1, 2), (5, 0)))
    part, columns = slots(speech, 4, 2), np.array([2, 4, 6])
    with prefix.tail():
        hidden = prefix.run_in_tail(part)
        weights = prefix.probe.take_step(decoder.heads, 2)
    read = ReadTail(prefix, part, decoder, is_first=True, n_judged=3, n_rows=2, columns=columns)

    def work() -> Work[None]:
        with prefix.tail():
            yield read

    run_alone(work())
    assert torch.equal(read.hidden, hidden[-3:])
    np.testing.assert_array_equal(read.weights, weights[:, :, columns])
    assert read.weights.shape == (2, 2, 3)
    assert (read.tokens, read.log_probabilities) == decoder.choose(hidden[-3:])
    assert prefix.held == 5


def test_an_error_of_the_work_is_raised() -> None:
    def work() -> Work[None]:
        yield from ()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_alone(work())
