"""Moving the positions of a live stream back, with the trained digit model on real speech."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from audiokv.models.base import StreamOptions
from audiokv.models.cache.rotary import rotation_for_layer
from audiokv.models.gemma3n.gemma3n_recognizer import Gemma3nRecognizer
from audiokv.models.gemma3n.gemma3n_stream import WindowOptions
from audiokv.models.silero import SileroModel
from audiokv.streaming.audio_cache import CacheOptions
from benchmarks.digit_hour import Observed
from benchmarks.digit_streams import (
    DIGITS_MODEL,
    StreamPlan,
    bank_of_test_takes,
    digit_stream,
)
from benchmarks.virtual_stream import VirtualListener

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from audiokv.models.gemma3n.gemma3n_stream import Gemma3nStream
    from benchmarks.digit_streams import DigitStream

pytestmark = pytest.mark.weights

BUDGET_SLOTS = 48
FEW_POSITIONS = BUDGET_SLOTS + 640 + 10  # budget, the longest tail, and little more
MANY_POSITIONS = 32_768
# Angles are computed in float32, so that equal rotations round differently.
TOLERANCE = 5e-4
TAIL = [24, 7, 9, 4, 13]  # the end of the audio and four digits


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def stream(speech_folder: Path) -> DigitStream:
    plan = StreamPlan(n_digits=(3, 6), gaps_ms=(2100, 2500))
    return digit_stream(bank_of_test_takes(speech_folder / "digits"), 15_000, 3, plan)


def with_positions(repository: Path, folder: Path, max_positions: int) -> Gemma3nRecognizer:
    made = folder / f"of-{max_positions}"
    shutil.copytree(repository / DIGITS_MODEL, made)
    settings = json.loads((made / "audiokv.json").read_text("utf-8"))
    settings["max_positions"] = max_positions
    (made / "audiokv.json").write_text(json.dumps(settings), "utf-8")
    window = WindowOptions(cache=CacheOptions(BUDGET_SLOTS, "audiokv"))
    return Gemma3nRecognizer(made, "digits", window)


def hear(opened: Gemma3nStream, stream: DigitStream) -> Iterator[None]:
    """Let a stream hear string after string, each a segment, and pause after each."""
    for string in stream.strings:
        opened.open(round(string.start_ms))
        opened.begin_segment(round(string.start_ms))
        first, last = round(string.start_ms * 16), round(string.end_ms * 16)
        opened.append(stream.samples[first:last])
        opened.commit(len(opened.decode().words))
        opened.rest()
        yield


def logits(opened: Gemma3nStream) -> torch.Tensor:
    speech, prefix = opened._model.speech, opened._prefix
    with prefix.tail():
        return speech.logits(prefix.run_in_tail(speech.tokens(TAIL)))


def test_no_logit_changes_however_often_a_stream_moves(
    repository: Path, tmp_path: Path, stream: DigitStream
) -> None:
    recognizer = with_positions(repository, tmp_path, MANY_POSITIONS)
    opened = recognizer.open_stream(StreamOptions("en"))
    n_moves = 0
    for _ in hear(opened, stream):
        cache = opened._prefix.cache
        before = logits(opened)
        moved = cache.reanchor()
        if not moved:
            continue
        n_moves += 1
        assert np.diff(cache.positions).max() > 1  # slots are missing between those held
        torch.testing.assert_close(logits(opened), before, atol=TOLERANCE, rtol=0)
        assert before.std() > 100 * TOLERANCE  # so that the tolerance is small
    assert n_moves >= 2


@pytest.mark.parametrize("wrong", ["full_attention", "sliding_attention"])
def test_a_rotation_in_the_wrong_base_would_be_noticed(
    repository: Path, tmp_path: Path, stream: DigitStream, wrong: str
) -> None:
    recognizer = with_positions(repository, tmp_path, MANY_POSITIONS)
    opened = recognizer.open_stream(StreamOptions("en"))
    for _ in hear(opened, stream):
        pass
    config = recognizer._model.speech.text_config
    other = next(i for i, kind in enumerate(config.layer_types) if kind != wrong)
    rotation = rotation_for_layer(config, other)
    cache = opened._prefix.cache
    before = logits(opened)
    moved = cache.seen - cache.held
    assert moved > 0
    for producer in cache.producers:
        for store in producer.stores:
            right = producer.rotation
            store.shift(-moved, rotation if wrong == "full_attention" else right)
        producer.seen -= moved
    for layer in cache._sliding:
        if wrong == "sliding_attention":
            layer._rotation = lambda: rotation
        layer.shift(-moved)
    assert (logits(opened) - before).abs().max() > 10 * TOLERANCE


def test_a_stream_that_moves_says_what_one_with_positions_to_spare_says(
    repository: Path, tmp_path: Path, stream: DigitStream
) -> None:
    said = {}
    n_moves = {}
    for max_positions in (FEW_POSITIONS, MANY_POSITIONS):
        observed = Observed(with_positions(repository, tmp_path, max_positions))
        run = VirtualListener(observed, SileroModel.load().open).listen(stream.samples, "en")
        said[max_positions] = [
            [(word.text, word.start_ms, word.end_ms, word.is_final) for word in one.caption.words]
            for one in run.arrivals
        ]
        assert observed.stream is not None
        n_moves[max_positions] = observed.stream.n_reanchors
    assert n_moves[FEW_POSITIONS] >= 2
    assert n_moves[MANY_POSITIONS] == 0
    assert said[FEW_POSITIONS] == said[MANY_POSITIONS]
    assert sum(len(words) for words in said[FEW_POSITIONS]) > 10
