from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import jiwer
import numpy as np
import pytest
import torch

from audiokv.models.recordings import TimedWord
from audiokv.models.weights import ModelFiles, resolve_model
from audiokv.models.whisper.features import IncrementalLogMel, mel_filters
from audiokv.models.whisper.word_alignment import WordAligner, open_aligner
from audiokv.streaming.errors import ConfigError, WeightsError
from tests.models.whisper.stream_doubles import noise

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.models.whisper.conftest import Tiny

    Read = Callable[[str], np.ndarray]


@pytest.fixture(scope="module")
def aligner(tiny: Tiny) -> WordAligner:
    return WordAligner(tiny.folder)


def test_every_head_of_the_models_own_attention_is_read(tiny: Tiny, aligner: WordAligner) -> None:
    audio = noise(1000)
    speech = aligner.align(audio, "en", "the other fox")
    n_tokens = speech.words[-1].end_token
    assert speech.attention.shape == (3, 4, n_tokens + 1, 50 + 100)
    assert np.allclose(speech.attention.sum(axis=-1), 1, atol=1e-4)
    mel = IncrementalLogMel(mel_filters(80))
    mel.append(torch.from_numpy(audio))
    features = mel.features(300)[None]
    tokens = tiny.text.encode(" the other fox")
    inputs = torch.tensor([[*tiny.text.start_tokens("en"), *tokens]])
    with torch.no_grad():
        seen = tiny.reference(
            input_features=features, decoder_input_ids=inputs, output_attentions=True
        )
    expected = torch.cat(seen.cross_attentions)[:, :, -n_tokens - 1 :]
    assert np.allclose(speech.attention, expected, atol=2e-3)
    log_p = (
        seen.logits[0, -n_tokens - 1 : -1].log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])
    )
    for word in speech.words:
        by_hand = log_p[word.first_token : word.end_token].mean().exp()
        assert word.probability == pytest.approx(float(by_hand), rel=0.02)


def test_words_follow_each_other_in_tokens_and_in_time(aligner: WordAligner) -> None:
    speech = aligner.align(noise(1000), "en", "the quick  brown fox")
    assert [word.text for word in speech.words] == ["the", "quick", "brown", "fox"]
    ends = [0, *(word.end_token for word in speech.words)]
    assert [word.first_token for word in speech.words] == ends[:-1]
    times = [t for word in speech.words for t in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] <= 1000


def test_known_times_count_in_place_of_the_models_own(aligner: WordAligner) -> None:
    words = [TimedWord("the", 40, 200), TimedWord("fox", 220, 480)]
    speech = aligner.align(noise(1000), "en", "ignored", words)
    assert [(w.text, w.start_ms, w.end_ms) for w in speech.words] == [
        ("the", 40, 200),
        ("fox", 220, 480),
    ]
    plain = aligner.align(noise(1000), "en", "the fox")
    assert np.array_equal(speech.attention, plain.attention)


def test_words_that_spell_nothing_are_left_out(aligner: WordAligner) -> None:
    words = [TimedWord("<|endoftext|>", 0, 40), TimedWord("fox", 40, 90)]
    speech = aligner.align(noise(1000), "en", words=words)
    assert speech.words[-1].text == "fox"
    assert speech.words[-1].end_token + 1 == speech.attention.shape[2]


@pytest.mark.parametrize("code", ["zh", "en"])
def test_spaces_are_the_languages_own(tiny: Tiny, aligner: WordAligner, code: str) -> None:
    speech = aligner.align(noise(400), code, words=[TimedWord("fox", 0, 100)])
    expected = tiny.text.encode("fox" if code == "zh" else " fox")
    assert speech.words[0].end_token == len(expected)


def test_a_text_nobody_gives_is_recognised(aligner: WordAligner, worded: np.ndarray) -> None:
    speech = aligner.align(worded, "en")
    assert speech.words
    told = aligner.align(worded, "en", " ".join(word.text for word in speech.words))
    assert [w.text for w in told.words] == [w.text for w in speech.words]


def test_the_language_is_detected_where_it_is_not_given(
    aligner: WordAligner, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = sorted(aligner.languages)
    assert codes == ["de", "en", "yue", "zh"]
    wanted: dict[str, np.ndarray] = {
        code: aligner.align(noise(1000), code, "fox").attention for code in codes
    }
    for place, code in enumerate(["en", "de", "zh", "yue"]):
        logits = np.eye(4, dtype=np.float32)[place]
        monkeypatch.setattr(
            "audiokv.models.whisper.decoding.DraftDecoder.language_logits",
            lambda *_, logits=logits: logits,
        )
        assert np.array_equal(aligner.align(noise(1000), None, "fox").attention, wanted[code])


def test_a_model_of_one_language_needs_none(tiny: Tiny, tmp_path: Path) -> None:
    shutil.copytree(tiny.folder, tmp_path / "english")
    stated = {"is_multilingual": False, "alignment_heads": [[1, 0]]}
    (tmp_path / "english" / "generation_config.json").write_text(json.dumps(stated))
    english = WordAligner(tmp_path / "english")
    assert english.languages == frozenset()
    speech = english.align(noise(1000), text="the fox")
    assert [word.text for word in speech.words] == ["the", "fox"]


@pytest.mark.parametrize(
    ("n_ms", "language", "text", "code"),
    [
        (3000, "en", "fox", "recording_too_long"),
        (1000, "xx", "fox", "unknown_language"),
        (1000, "en", "fox " * 95, "text_too_long"),
    ],
)
def test_what_the_model_cannot_take_is_refused(
    aligner: WordAligner, n_ms: int, language: str, text: str, code: str
) -> None:
    assert aligner.max_ms == 1500
    with pytest.raises(ConfigError) as caught:
        aligner.align(noise(n_ms), language, text)
    assert caught.value.code == code
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"model_type": "llama"}, "unsupported_model"),
        ({"model_type": "whisper"}, "weights_corrupt"),
        ([], "weights_corrupt"),
    ],
)
def test_other_models_are_refused(tmp_path: Path, config: object, code: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match="odd") as caught:
        open_aligner(ModelFiles("odd", tmp_path))
    assert caught.value.code == code


def test_words_of_real_speech_lie_where_they_were_said(
    read_speech: Read, speech_folder: Path
) -> None:
    lines = (speech_folder / "manifest.jsonl").read_text("utf-8").splitlines()
    entry = next(e for e in map(json.loads, lines) if e["file"] == "multilingual/es.wav")
    real = open_aligner(resolve_model("whisper-base"))
    samples = read_speech("multilingual/es.wav")
    heard = real.align(samples)
    said = " ".join(word.text for word in heard.words)
    assert jiwer.wer(entry["text"].casefold(), said.casefold().replace(".", "")) < 0.5
    told = real.align(samples, "es", entry["text"])
    assert len(told.words) == len(entry["words"])
    middles = [500 * (w["start_s"] + w["end_s"]) for w in entry["words"]]
    within = [
        w.start_ms - 100 <= m <= w.end_ms + 100 for w, m in zip(told.words, middles, strict=True)
    ]
    assert np.mean(within) >= 0.8
