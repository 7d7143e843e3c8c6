"""The command from end to end, on transformers' random Whisper and a second of speech."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest
import soundfile

from benchmarks.retention import is_gemma, main, parse_arguments
from benchmarks.retention_rows import Table
from tests.models.gemma3n.conftest import tiny_checkpoint, write_tokenizer
from tests.models.whisper.conftest import (
    ALIGNMENT_HEADS,
    SUPPRESSED,
    random_whisper,
    train_tokenizer,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    random_whisper().save_pretrained(made)
    train_tokenizer().save(str(made / "tokenizer.json"))
    generation = {
        "alignment_heads": [list(pair) for pair in ALIGNMENT_HEADS],
        "is_multilingual": True,
        "suppress_tokens": SUPPRESSED,
    }
    (made / "generation_config.json").write_text(json.dumps(generation), "utf-8")
    return made


@pytest.fixture
def manifest(tmp_path: Path, speech_folder: Path) -> Path:
    samples, rate_hz = soundfile.read(speech_folder / "librivox" / "austen-0930.wav")
    soundfile.write(tmp_path / "a.wav", samples[: int(1.2 * rate_hz)], rate_hz)
    path = tmp_path / "manifest.jsonl"
    path.write_text(json.dumps({"file": "a.wav", "language": "en", "text": "one two"}), "utf-8")
    return path


def test_a_few_policies_stream_by_default() -> None:
    args = parse_arguments([])
    assert (args.mode, args.model, args.speech) == ("S", "whisper-base", ["english"])
    assert "audiokv" in args.policies
    assert args.retention == [40, 20]


def test_lists_are_read_and_the_type_of_numbers_follows_the_mode() -> None:
    args = parse_arguments(
        ["--policies", "audiokv,fifo", "--retention", "80,5", "--speech", "english", "digits"]
    )
    assert (args.policies, args.retention) == (["audiokv", "fifo"], [80, 5])
    assert args.speech == ["english", "digits"]
    assert args.dtype == "bfloat16"
    assert parse_arguments(["--mode", "P"]).dtype == "float32"
    assert parse_arguments(["--mode", "D", "--dtype", "bfloat16"]).dtype == "bfloat16"


@pytest.mark.parametrize("mode", ["P", "D", "S"])
def test_a_run_fills_its_table_and_reports_it(
    mode: str,
    model: Path,
    manifest: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "results" / "retention"
    arguments = ["--mode", mode, "--model", str(model), "--manifest", str(manifest)]
    arguments += ["--out", str(out), "--policies", "audiokv,random", "--retention", "50"]
    assert main([*arguments, "--seeds", "2"]) == 0
    table = Table.open(mode, model.name, "english", out)
    policies = sorted((cell.policy, cell.seed) for cell in table.rows)
    assert policies == [("audiokv", 0), ("full", 0), ("random", 0), ("random", 1)]
    assert all(0 < r.held.max_bytes <= r.held.budget_bytes for r in table.rows.values())
    written = (out / f"{mode}_{model.name}_english.jsonl").read_text("utf-8")
    assert str(tmp_path) not in written  # nobody else has these folders
    figures = json.loads((out.parent / f"retention_{mode}_{model.name}.json").read_text("utf-8"))
    assert [one["policy"] for one in figures["figures"]["english"]].count("audiokv") == 1
    assert (out / f"{mode}_{model.name}_english.png").is_file()
    assert "english: 4 rows" in capsys.readouterr().out
    assert main([*arguments, "--report"]) == 0
    assert Table.open(mode, model.name, "english", out).rows == table.rows


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("gemma")
    tiny_checkpoint().save_pretrained(made)
    write_tokenizer(made)
    return made


def test_a_gemma_is_told_from_a_whisper_and_streams(
    gemma: Path, model: Path, manifest: Path, tmp_path: Path
) -> None:
    assert (is_gemma(str(gemma)), is_gemma(str(model))) == (True, False)
    out = tmp_path / "retention"
    arguments = ["--model", str(gemma), "--manifest", str(manifest), "--out", str(out)]
    assert main([*arguments, "--policies", "audiokv,fifo", "--retention", "95"]) == 0
    table = Table.open("S", gemma.name, "english", out)
    assert {cell.policy for cell in table.rows} == {"audiokv", "fifo", "full"}
    (run,) = table.runs.values()
    weights = hashlib.sha256((gemma / "model.safetensors").read_bytes()).hexdigest()
    settings = {"policies": ["audiokv", "fifo"], "retention": [95], "seeds": 3}
    assert run["settings"] == {**settings, "weights_sha256": [weights]}
    with pytest.raises(SystemExit, match="--mode S only"):
        main([*arguments, "--mode", "P"])
