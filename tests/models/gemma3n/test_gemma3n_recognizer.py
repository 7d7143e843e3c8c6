from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from audiokv.models.base import StreamOptions
from audiokv.models.gemma3n.gemma3n_recognizer import Gemma3nRecognizer
from audiokv.models.gemma3n.gemma3n_stream import WindowOptions
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.audio_format import AudioFormat, Encoding
from audiokv.streaming.captions import Caption
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.session import Session
from tests.models.gemma3n.conftest import sound

if TYPE_CHECKING:
    from pathlib import Path


class Loudness:
    """A detector for which everything loud is a voice."""

    def probability(self, samples: np.ndarray) -> float:
        return 1.0 if float(np.abs(samples).max()) > 0.02 else 0.0

    def reset(self) -> None:
        pass


def with_settings(folder: Path, tmp_path: Path, **settings: Any) -> Path:
    made = tmp_path / "model"
    shutil.copytree(folder, made)
    (made / "audiokv.json").write_text(json.dumps(settings))
    return made


def test_it_states_what_it_is(folder: Path) -> None:
    window = WindowOptions(max_window_ms=20_000, context_gap_ms=1_500)
    info = Gemma3nRecognizer(folder, "tiny", window).info
    assert (info.name, info.slot_ms) == ("tiny", 160)
    assert info.languages == {"en"}
    assert info.max_window_ms == 20_000
    assert info.context_gap_ms == 1_500
    assert not info.aligns


def test_the_folders_settings_count(folder: Path, tmp_path: Path) -> None:
    made = with_settings(
        folder,
        tmp_path,
        languages=["de", "fr"],
        alignment_heads=[[3, 1]],
        dtype="bfloat16",
        prompt="plain",
    )
    recognizer = Gemma3nRecognizer(made, "tiny")
    assert recognizer.info.languages == {"de", "fr"}
    assert recognizer.info.aligns
    assert recognizer._model.speech.dtype == torch.bfloat16
    stream = recognizer.open_stream(StreamOptions())
    stream.open(0)
    stream.append(sound(16_000))
    (hypothesis,) = recognizer.decode([stream])
    assert stream._decoder.heads == ((3, 1),)
    assert hypothesis.language is None


@pytest.mark.parametrize("head", [[0, 0], [4, 1], [6, 0], [99, 0], [3, 4], [3, 99]])
def test_heads_that_the_model_has_not_are_refused(
    folder: Path, tmp_path: Path, head: list[int]
) -> None:
    made = with_settings(folder, tmp_path, alignment_heads=[[3, 1], head])
    with pytest.raises(ConfigError) as caught:
        Gemma3nRecognizer(made, "tiny")
    assert caught.value.code == "bad_model_settings"
    assert f"{made / 'audiokv.json'} " in caught.value.message
    assert f"alignment_heads has {head}" in caught.value.message
    assert "heads 0 to 3 of the full-attention layers [1, 3, 5]" in caught.value.remedy


@pytest.mark.parametrize("layer", [1, 3, 5])
def test_every_head_of_the_full_attention_layers_may_be_named(
    folder: Path, tmp_path: Path, layer: int
) -> None:
    heads = [[layer, head] for head in range(4)]
    made = with_settings(folder, tmp_path, alignment_heads=heads)
    assert Gemma3nRecognizer(made, "tiny").info.aligns


def test_a_model_of_one_language_says_which(folder: Path) -> None:
    stream = Gemma3nRecognizer(folder, "tiny").open_stream(StreamOptions())
    assert stream._language is None


def test_marks_of_the_vocabulary_are_never_said(folder: Path, tmp_path: Path) -> None:
    def said(model: Path) -> list[str]:
        recognizer = Gemma3nRecognizer(model, "tiny")
        stream = recognizer.open_stream(StreamOptions())
        stream.open(0)
        stream.append(sound(16_000))
        return [word.text for word in recognizer.decode([stream])[0].words]

    first = said(folder)[0]
    made = with_settings(folder, tmp_path)
    tokenizer = json.loads((made / "tokenizer.json").read_text())
    mark = dict(tokenizer["added_tokens"][0], id=int(first[1:]), content=first)
    tokenizer["added_tokens"].append(mark)
    (made / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert first not in said(made)


def test_streams_do_not_know_of_each_other(folder: Path) -> None:
    recognizer = Gemma3nRecognizer(folder, "tiny")

    def opened(seed: int) -> Any:
        stream = recognizer.open_stream(StreamOptions())
        stream.open(0)
        stream.append(sound(20_000, seed))
        return stream

    together = recognizer.decode([opened(1), opened(2)])
    alone = [recognizer.decode([opened(seed)])[0] for seed in (1, 2)]
    assert together == alone
    assert together[0] != together[1]


def test_another_recognisers_stream_is_refused(folder: Path) -> None:
    with pytest.raises(TypeError, match="str was not opened"):
        Gemma3nRecognizer(folder, "tiny").decode(["nothing"])  # type: ignore[list-item]


@pytest.mark.parametrize("cache", [CacheOptions(), CacheOptions(30, "audiokv")])
def test_a_session_runs_on_it(folder: Path, cache: CacheOptions) -> None:
    # Random weights go on with a text once; each segment has a window of its own.
    window = WindowOptions(cache=cache, context_gap_ms=0)
    recognizer = Gemma3nRecognizer(folder, "tiny", window)
    session = Session(
        fmt=AudioFormat(Encoding.PCM_F32LE, 16_000),
        stream=recognizer.open_stream(StreamOptions("en")),
        info=recognizer.info,
        detector=Loudness(),
    )
    silence = np.zeros(16_000, np.float32)
    audio = np.concatenate([sound(24_000, 1), silence, sound(24_000, 2), silence])
    captions: list[Caption] = []
    for part in np.split(audio, range(3_200, len(audio), 3_200)):
        session.push(part.tobytes())
        events = session.prepare()
        while session.is_step_due:
            (hypothesis,) = recognizer.decode([session.stream])
            events += session.apply(hypothesis)
            session.rest()
            events += session.prepare()
        captions += [event for event in events if isinstance(event, Caption)]
        counters = session.cache_counters
        assert (counters is None) == (cache.budget_slots is None)
        if counters is not None:
            assert counters.held_slots <= 30
    finals = [caption for caption in captions if caption.is_final]
    assert [caption.segment for caption in finals] == [0, 1]
    assert finals[0].end_ms <= 1_700
    assert finals[1].start_ms >= 2_150
    assert all(caption.text for caption in finals)
