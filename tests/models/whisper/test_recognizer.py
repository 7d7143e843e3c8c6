from __future__ import annotations

import json
import shutil
import unicodedata
from typing import TYPE_CHECKING, Any

import jiwer
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

from audiokv.models.base import Hypothesis, StreamOptions
from audiokv.models.weights import resolve_model
from audiokv.models.whisper.recognizer import WhisperRecognizer
from audiokv.models.whisper.stream import WhisperStream, WindowOptions
from audiokv.streaming.captions import join_words
from audiokv.streaming.stabilizer import AlignedCommit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from audiokv.models.base import RecognizerStream
    from tests.models.whisper.conftest import Tiny

    Read = Callable[[str], np.ndarray]

WINDOW = WindowOptions(padding_ms=400, trim_above_ms=1200, keep_ms=300)


def recognizer(folder: Path) -> WhisperRecognizer:
    return WhisperRecognizer(folder, "tiny", dtype=torch.float32, window=WINDOW)


def noise(n_samples: int, seed: int = 0) -> np.ndarray:
    samples = np.random.default_rng(seed).standard_normal(n_samples) * 0.1
    loud: np.ndarray = samples.astype(np.float32)
    return loud


def opened(
    model: WhisperRecognizer, audio: np.ndarray, language: str | None = "en"
) -> WhisperStream:
    stream = model.open_stream(StreamOptions(language))
    stream.open(0)
    stream.append(audio)
    return stream


def bare(text: str) -> list[str]:
    kept = (c for c in text.casefold() if not unicodedata.category(c).startswith("P"))
    return "".join(kept).split()


def text_of(hypothesis: Hypothesis) -> str:
    return join_words(hypothesis.words)


@pytest.fixture
def folder(tiny: Tiny, tmp_path: Path) -> Path:
    """A copy of the tiny model's folder that a test may change."""
    return shutil.copytree(tiny.folder, tmp_path / "model")


def change(file: Path, **values: Any) -> None:
    settings = json.loads(file.read_text()) | values
    file.write_text(json.dumps({k: v for k, v in settings.items() if v is not None}))


def test_the_model_states_what_it_can_do(tiny: Tiny) -> None:
    info = recognizer(tiny.folder).info
    assert info.name == "tiny"
    assert info.slot_ms == 20
    assert info.languages == {"en", "de", "zh", "yue"}
    assert info.aligns
    assert info.max_window_ms == 150 * 20 - 400


def test_the_weights_and_settings_of_the_folder_are_used(tiny: Tiny) -> None:
    model = recognizer(tiny.folder)
    stream = opened(model, noise(16_000))
    (hypothesis,) = model.decode([stream])
    assert hypothesis.words
    theirs = model.open_stream(StreamOptions("en"))
    theirs._network = tiny.network
    theirs._decoder._model = stream._decoder._model
    assert torch.equal(theirs._network._embedding, stream._network._embedding)
    assert stream._decoder._model.penalty[[3, 17, 299]].tolist() == [-torch.inf] * 3
    mel = torch.randn(80, 60)
    assert torch.equal(tiny.network.encode(mel), stream._network.encode(mel))


def test_streams_are_decoded_in_order_and_apart(tiny: Tiny) -> None:
    model = recognizer(tiny.folder)
    audio = [noise(16_000, seed) for seed in range(3)]
    alone = [model.decode([opened(model, samples)])[0] for samples in audio]
    assert len({text_of(hypothesis) for hypothesis in alone}) == 3
    assert model.decode([opened(model, samples) for samples in audio]) == alone
    assert model.decode([]) == []


def test_a_stream_of_another_recogniser_is_refused(tiny: Tiny) -> None:
    class Foreign:
        def open(self, at_ms: int) -> None: ...
        def begin_segment(self, at_ms: int) -> None: ...
        def append(self, samples: np.ndarray, speaker: str | None = None) -> None: ...
        def commit(self, n_words: int) -> None: ...
        def update(self, options: StreamOptions) -> None: ...
        def rest(self) -> None: ...
        def cache_counters(self) -> None: ...

    foreign: RecognizerStream = Foreign()
    with pytest.raises(TypeError, match="Foreign"):
        recognizer(tiny.folder).decode([foreign])


def test_nothing_is_recorded_for_gradients(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[bool] = []

    def decode(_: WhisperStream) -> Hypothesis:
        modes.append(torch.is_inference_mode_enabled())
        return Hypothesis(())

    monkeypatch.setattr(WhisperStream, "decode", decode)
    model = recognizer(tiny.folder)
    assert model.decode([opened(model, noise(8_000))]) == [Hypothesis(())]
    assert modes == [True]


def test_weights_in_parts_are_read(tiny: Tiny, folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for part, part_names in halves.items():
        save_file({name: tensors[name] for name in part_names}, folder / part)
    weight_map = {name: part for part, part_names in halves.items() for name in part_names}
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    split, whole = recognizer(folder), recognizer(tiny.folder)
    audio = noise(16_000)
    assert split.decode([opened(split, audio)]) == whole.decode([opened(whole, audio)])


def test_an_old_model_without_generation_settings_works(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    change(folder / "config.json", suppress_tokens=[5])
    model = recognizer(folder)
    # A vocabulary of this size is that of an English-only model.
    assert model.info.languages == {"en"}
    assert model._model.suppressed == [5]
    stream = opened(model, noise(8_000))
    model.decode([stream])
    # Without named heads all those of the later layers follow time: layers 1 and 2 of 3.
    assert model._model.network._aligned == {1: [0, 1, 2, 3], 2: [0, 1, 2, 3]}


def test_heads_that_a_distilled_model_lacks_are_left_out(folder: Path) -> None:
    file = folder / "generation_config.json"
    change(file, alignment_heads=[[2, 1], [7, 0], [1, 9]])
    assert recognizer(folder)._model.network._aligned == {2: [1]}
    change(file, alignment_heads=[[7, 0]])
    model = recognizer(folder)
    assert set(model._model.network._aligned) == {1, 2}
    model.decode([opened(model, noise(8_000))])


def test_an_english_only_model_says_so(folder: Path) -> None:
    change(folder / "generation_config.json", is_multilingual=False)
    model = recognizer(folder)
    assert model.info.languages == {"en"}
    (hypothesis,) = model.decode([opened(model, noise(8_000), language=None)])
    assert hypothesis.language == "en"
    assert hypothesis.is_settled


def test_suppressed_tokens_beyond_the_vocabulary_are_left_out(folder: Path) -> None:
    change(folder / "generation_config.json", suppress_tokens=[-1, 7, 50_000])
    assert recognizer(folder)._model.suppressed == [7]


@pytest.mark.parametrize(
    ("file", "key", "error"),
    [("config.json", "d_model", KeyError), ("config.json", "encoder_layers", KeyError)],
)
def test_a_missing_size_is_named(folder: Path, file: str, key: str, error: type[Exception]) -> None:
    change(folder / file, **{key: None})
    with pytest.raises(error, match=key):
        recognizer(folder)


def test_the_type_is_measured_where_none_is_given(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audiokv.models.whisper.recognizer.fastest_dtype", lambda: torch.bfloat16)
    model = WhisperRecognizer(tiny.folder, "tiny")
    assert model._model.network.dtype is torch.bfloat16
    assert model.info.max_window_ms == 150 * 20 // 2  # the padding would leave less


# From here on with real weights and real speech.


@pytest.fixture(scope="module")
def base() -> WhisperRecognizer:
    return WhisperRecognizer(resolve_model("whisper-base").folder, "base", torch.float32)


@pytest.fixture(scope="module")
def tiny_en() -> WhisperRecognizer:
    """With the whole context of 30 s, as transformers has it."""
    folder = resolve_model("whisper-tiny.en").folder
    window = WindowOptions(padding_ms=30_000)
    return WhisperRecognizer(folder, "tiny.en", torch.float32, window)


def greedy_text(name: str, model: WhisperRecognizer, audio: np.ndarray, **options: str) -> str:
    """transformers' own greedy transcript of the whole 30 s context."""
    folder = resolve_model(name).folder
    reference = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    features = extractor(audio, sampling_rate=16_000, return_tensors="pt").input_features
    with torch.no_grad():
        tokens = reference.generate(features, num_beams=1, do_sample=False, **options)[0].tolist()
    text = model._model.text
    kept = [token for token in tokens if token < text.n_text_tokens]
    return str(text._tokenizer.decode(kept))


@pytest.mark.weights
@pytest.mark.slow
def test_speech_is_transcribed_as_transformers_does(
    base: WhisperRecognizer, read_speech: Read
) -> None:
    audio = read_speech("jfk.flac")
    stream = opened(base, audio, language=None)
    (hypothesis,) = base.decode([stream])
    expected = greedy_text("whisper-base", base, audio, language="en", task="transcribe")
    assert bare(text_of(hypothesis)) == bare(expected)
    assert bare(expected)[:6] == ["and", "so", "my", "fellow", "americans", "ask"]
    (again,) = base.decode([stream])
    assert again.words == hypothesis.words
    assert again.language == hypothesis.language == "en"
    assert again.language_confidence > 0.9


@pytest.mark.weights
@pytest.mark.slow
def test_an_english_only_model_transcribes_as_transformers_does(
    tiny_en: WhisperRecognizer, read_speech: Read
) -> None:
    assert tiny_en.info.languages == {"en"}
    for name in ("jfk.flac", "librivox/austen-0890.wav"):
        audio = read_speech(name)
        (hypothesis,) = tiny_en.decode([opened(tiny_en, audio, language=None)])
        assert bare(text_of(hypothesis)) == bare(greedy_text("whisper-tiny.en", tiny_en, audio))
        assert hypothesis.language == "en"


@pytest.mark.weights
@pytest.mark.parametrize("language", ["en", "de", "fr", "es", "ja"])
def test_languages_are_heard(base: WhisperRecognizer, read_speech: Read, language: str) -> None:
    audio = read_speech(f"multilingual/{language}.wav")[: 5 * 16_000]
    stream = opened(base, audio, language=None)
    hypotheses = [base.decode([stream])[0] for _ in range(3)]
    assert [h.language for h in hypotheses] == [language] * 3
    assert [h.is_settled for h in hypotheses] == [False, False, True]
    if language == "ja":
        assert not any(word.space_before for word in hypotheses[0].words)


@pytest.mark.weights
@pytest.mark.parametrize(("language", "n_least"), [("en", 15), ("de", 7), ("fr", 9), ("es", 8)])
def test_words_stand_where_they_were_spoken(
    base: WhisperRecognizer,
    read_speech: Read,
    speech_folder: Path,
    language: str,
    n_least: int,
) -> None:
    name = f"multilingual/{language}.wav"
    lines = (speech_folder / "manifest.jsonl").read_text("utf-8").splitlines()
    (entry,) = (e for e in map(json.loads, lines) if e["file"] == name)
    (hypothesis,) = base.decode([opened(base, read_speech(name), language)])
    truth = [bare(word["word"])[0] for word in entry["words"]]
    found = [bare(word.text)[0] for word in hypothesis.words]
    aligned = jiwer.process_words(" ".join(truth), " ".join(found)).alignments[0]
    starts_ms, ends_ms = [], []
    for chunk in aligned:
        if chunk.type == "equal":
            for i in range(chunk.ref_end_idx - chunk.ref_start_idx):
                word = hypothesis.words[chunk.hyp_start_idx + i]
                spoken = entry["words"][chunk.ref_start_idx + i]
                starts_ms.append(abs(word.start_ms - 1000 * spoken["start_s"]))
                ends_ms.append(abs(word.end_ms - 1000 * spoken["end_s"]))
    assert len(starts_ms) >= n_least
    assert np.median(ends_ms) <= 150
    if language == "en":  # elsewhere there are pauses, and the word after one takes it in
        assert np.median(starts_ms) <= 150


@pytest.mark.weights
@pytest.mark.slow
def test_a_growing_window_ends_in_the_same_words(
    base: WhisperRecognizer, read_speech: Read
) -> None:
    audio = read_speech("jfk.flac")
    stream = base.open_stream(StreamOptions())
    stream.open(0)
    stream.begin_segment(0)
    policy = AlignedCommit()
    committed: list[str] = []
    ends_ms = [0]
    for start in range(0, len(audio), 16_000):
        stream.append(audio[start : start + 16_000])
        (hypothesis,) = base.decode([stream])
        assert all(word.start_ms >= ends_ms[-1] for word in hypothesis.words)
        if hypothesis.is_settled:
            n = policy.observe(hypothesis.words, stream.end_ms)
            committed += [word.text for word in hypothesis.words[:n]]
            ends_ms += [word.end_ms for word in hypothesis.words[:n]]
            stream.commit(n)
    assert len(committed) > 5
    whole = bare(" ".join([*committed, *(w.text for w in base.decode([stream])[0].words)]))
    (at_once,) = base.decode([opened(base, audio, "en")])
    assert whole == bare(text_of(at_once))


@pytest.mark.weights
def test_silence_and_noise_make_no_words(base: WhisperRecognizer) -> None:
    for audio in (np.zeros(48_000, dtype=np.float32), noise(48_000) * 0.05):
        (hypothesis,) = base.decode([opened(base, audio)])
        assert hypothesis.words == ()
