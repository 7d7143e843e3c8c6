from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import torch
from transformers import Gemma3nAudioFeatureExtractor

from audiokv.models.gemma3n.mel import MelFrontEnd
from benchmarks import budget_models
from benchmarks.budget_layers import StepShape
from benchmarks.budget_models import (
    GEMMA_PARTS,
    WHISPER_PARTS,
    Around,
    digits_budget,
    final_slots_note,
    served_latency,
    size_budget,
    whisper_budget,
)
from benchmarks.budget_parts import Known, Part
from benchmarks.digit_streams import DIGITS_MODEL, bank_of_test_takes
from benchmarks.recordings import read_manifest
from tests.benchmarks.test_bench_gemma3n_sizes import small_config

if TYPE_CHECKING:
    from pathlib import Path

AROUND = Around(
    (Part("frame", 5.0, 10.0, Known.RULE),),
    (Part("message", 1.0, 2.0, Known.MEASURED),),
    (Part("screen", 8.0, 16.0, Known.ASSUMED),),
)


def captions_file(folder: Path, p50: float) -> Path:
    path = folder / "captions.json"
    column = {budget_models.CAPTIONS_COLUMN: {"shown_latency_ms": {"p50": p50}}}
    path.write_text(json.dumps({"columns": column}), "utf-8")
    return path


def test_a_measured_latency_is_read_where_there_is_one(tmp_path: Path) -> None:
    assert served_latency(tmp_path / "captions.json", "any") is None
    path = captions_file(tmp_path, 377.6)
    assert served_latency(path, budget_models.CAPTIONS_COLUMN) == 377.6
    assert served_latency(path, "another") is None


@pytest.mark.parametrize("parts", [WHISPER_PARTS, GEMMA_PARTS])
def test_what_is_timed_exists(parts: tuple[tuple[type, str, str], ...]) -> None:
    for owner, method, _ in parts:
        assert callable(owner.__dict__[method])


def test_a_published_size_is_added_up_from_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_models, "real_config", lambda _: small_config())
    found = size_budget(
        "E2B",
        torch.device("cpu"),
        torch.float32,
        StepShape(prefix_slots=20),
        AROUND,
        repeats=1,
        is_whole=False,
    )
    names = [part.name for part in found.parts]
    assert names[0] == "frame"
    assert names[-2:] == ["message", "screen"]
    assert names.index("audio the model must have") < names.index("audio tower")
    assert found.device == "CPU, float32"
    assert sum(part.known is Known.SCALED for part in found.parts) == 4
    assert found.typical_ms == pytest.approx(
        sum(part.typical_ms for part in found.parts if part.name != "eviction")
    )


def test_a_device_that_is_too_slow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_models, "real_config", lambda _: small_config())
    cpu, shape = torch.device("cpu"), StepShape(prefix_slots=20, word_tokens=1e6)
    found = size_budget("E2B", cpu, torch.float32, shape, AROUND, repeats=1, is_whole=False)
    assert "cannot keep up" in found.notes[-1]


def test_waiting_for_final_slots_would_take_longer() -> None:
    front_end = MelFrontEnd(Gemma3nAudioFeatureExtractor())
    early_ms = budget_models._slot_waits(front_end, is_aligned=False).audio_ms
    figures = [int(one) for one in re.findall(r"\d+", final_slots_note(front_end))]
    assert figures == [92, 85, 160]
    assert early_ms.mean() < 50


@pytest.mark.weights
def test_whispers_sum_is_near_what_was_measured_of_it(tmp_path: Path, speech_folder: Path) -> None:
    recordings = read_manifest(speech_folder / "manifest.jsonl", ["1089-134691-0001"])
    found = whisper_budget(recordings, "whisper-base", AROUND, captions_file(tmp_path, 1e6))
    virtual, served = found.checks
    assert abs(virtual.is_over_percent) < 25
    assert served.is_over_percent < -99
    names = {part.name for part in found.parts}
    assert {"encoder", "decoder: draft and new tokens", "mel"} <= names


@pytest.mark.weights
def test_digits_are_timed_part_by_part(repository: Path, speech_folder: Path) -> None:
    bank = bank_of_test_takes(speech_folder / "digits")
    found = digits_budget(repository / DIGITS_MODEL, bank, 12.0, AROUND)
    names = [part.name for part in found.parts]
    assert {"mel", "audio tower", "word known before it is heard whole"} <= set(names)
    assert found.parts[-1].name == "eviction"
    assert not found.parts[-1].is_on_the_way
    assert len(found.checks) == 1
