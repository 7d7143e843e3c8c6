"""The live stream under any policy: on transformers' random Whisper, and on real weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from audiokv.models.silero import SileroModel
from audiokv.models.whisper.recognizer import WhisperRecognizer
from audiokv.models.whisper.stream import WindowOptions
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.policy.registry import POLICY_NAMES
from benchmarks.measures import final_text
from benchmarks.recordings import SAMPLES_PER_MS, read_manifest
from benchmarks.retention_batch import BatchedWhisper
from benchmarks.retention_policies import ABLATIONS, variants
from benchmarks.retention_rows import Cell, Table
from benchmarks.retention_speech import Clip
from benchmarks.retention_static import StaticRunner
from benchmarks.retention_streaming import CacheBound, StreamingRunner, with_tail
from benchmarks.retention_whisper import BoundedWhisper
from benchmarks.virtual_stream import VirtualListener
from tests.models.whisper.conftest import (
    ALIGNMENT_HEADS,
    SUPPRESSED,
    random_whisper,
    train_tokenizer,
)
from tests.server.doubles import LoudnessDetector

if TYPE_CHECKING:
    from pathlib import Path

ROOMY_SLOTS = 10_000


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> BoundedWhisper:
    made = tmp_path_factory.mktemp("bounded-whisper")
    random_whisper().save_pretrained(made)
    train_tokenizer().save(str(made / "tokenizer.json"))
    generation = {
        "alignment_heads": [list(pair) for pair in ALIGNMENT_HEADS],
        "is_multilingual": True,
        "suppress_tokens": SUPPRESSED,
    }
    (made / "generation_config.json").write_text(json.dumps(generation), "utf-8")
    return BoundedWhisper(str(made), torch.float32)


@pytest.fixture
def runner(model: BoundedWhisper) -> StreamingRunner:
    model.forget_audio()
    return StreamingRunner(model, LoudnessDetector)


@pytest.fixture(scope="module")
def clip() -> Clip:
    samples = np.random.default_rng(1).standard_normal(1000 * SAMPLES_PER_MS) * 0.1
    return Clip("a", "a", "en", "en", "some words", samples.astype(np.float32))


def bound(name: str, budget_slots: int) -> CacheBound:
    return CacheBound(variants([name], 1)[0], budget_slots)


def test_a_budget_nothing_exceeds_is_no_budget(runner: StreamingRunner, clip: Clip) -> None:
    text, log = runner.hear(clip, None)
    assert log.full_slots > 40
    for name in ("full", "audiokv", "keydiff"):
        assert runner.hear(clip, bound(name, ROOMY_SLOTS)) == (text, log)


@pytest.mark.parametrize("name", [n for n in (*POLICY_NAMES, *ABLATIONS) if n != "full"])
def test_what_the_decoder_is_given_stays_within_the_budget(
    runner: StreamingRunner, model: BoundedWhisper, clip: Clip, name: str
) -> None:
    _, log = runner.hear(clip, bound(name, 25))
    held = log.held(log.full_slots, 25, model.slot_bytes)
    held.check(name)
    assert held.mean_full_bytes > 0.8 * held.budget_bytes
    assert all(step.held_bytes == step.held_slots * model.slot_bytes for step in log.steps)
    assert {min(step.present_slots, 25) >= step.held_slots for step in log.steps} == {True}


def test_windows_are_encoded_and_decoded_once(
    runner: StreamingRunner, model: BoundedWhisper, clip: Clip
) -> None:
    before = model.encoder.n_encoded
    first = runner.hear(clip, bound("full", ROOMY_SLOTS))
    n_encoded, n_decoded = model.encoder.n_encoded, model.decoded.n_decoded
    assert runner.hear(clip, bound("uniform", ROOMY_SLOTS)) == first
    assert (model.encoder.n_encoded, model.decoded.n_decoded) == (n_encoded, n_decoded)
    runner.hear(clip, bound("uniform", 10))
    assert model.encoder.n_encoded == n_encoded
    assert model.decoded.n_decoded > n_decoded
    model.forget_audio()
    assert runner.hear(clip, bound("full", ROOMY_SLOTS)) == first
    assert model.encoder.n_encoded == n_encoded + (n_encoded - before)


def test_it_measures_what_the_product_does(
    runner: StreamingRunner, model: BoundedWhisper, clip: Clip
) -> None:
    product = WhisperRecognizer(
        model.folder, "m", torch.float32, WindowOptions(cache=CacheOptions(25, "audiokv"))
    )
    run = VirtualListener(product, LoudnessDetector).listen(with_tail(clip), "en")
    text, log = runner.hear(clip, bound("audiokv", 25))
    assert text == final_text(run.arrivals)
    assert len(log.steps) == len(run.steps)


def test_policies_hold_different_slots(runner: StreamingRunner, clip: Clip) -> None:
    logs = [runner.hear(clip, bound(name, 20)) for name in ("fifo", "uniform", "streaming-llm")]
    texts = {text for text, _ in logs}
    assert len(texts) > 1


@pytest.fixture(scope="module")
def kennedy(speech_folder: Path) -> Clip:
    (recording,) = read_manifest(speech_folder / "manifest.jsonl", ["jfk"])
    return Clip("jfk", "jfk", "en", "en", recording.text, recording.samples())


@pytest.mark.weights
@pytest.mark.slow
def test_real_speech_in_a_session_with_room_is_that_without_a_budget(kennedy: Clip) -> None:
    real = BoundedWhisper("whisper-tiny.en", torch.float32)
    runner = StreamingRunner(real, SileroModel.load().open)
    text, log = runner.hear(kennedy, None)
    assert kennedy.errors(text).rate <= 0.1
    assert runner.hear(kennedy, bound("full", ROOMY_SLOTS)) == (text, log)
    few = bound("fifo", log.full_slots // 10)
    assert kennedy.errors(runner.hear(kennedy, few)[0]).rate > 0.2


@pytest.mark.weights
@pytest.mark.slow
def test_a_wrong_policy_is_visibly_worse(kennedy: Clip, tmp_path: Path) -> None:
    model = BatchedWhisper("whisper-tiny.en", torch.float32)
    table = Table.open("P", "tiny", "jfk", tmp_path)
    table.begin({"date": "now"}, {})
    chosen = variants(["uniform", "fifo", "oracle"], 1)
    rows = list(StaticRunner(model, counts_text=False).rows([kennedy], chosen, [40], table))
    wrong = {row.cell.policy: row.n_errors / row.n_reference for row in rows}
    assert wrong["full"] <= 0.1
    assert wrong["uniform"] <= 0.15
    assert wrong["oracle"] <= 0.15
    assert wrong["fifo"] >= 0.4
    assert table.rows[Cell("jfk", "fifo", 0, 40)].held.max_bytes <= model.slot_bytes * round(
        0.4 * 549
    )
