"""A random Whisper of a few hundred thousand parameters with a byte-level vocabulary of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import samplerate
import soundfile
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import WhisperConfig, WhisperForConditionalGeneration

from audiokv.models.whisper.features import mel_filters
from audiokv.models.whisper.network import Dimensions, WhisperNetwork
from audiokv.models.whisper.stream import WhisperModel
from audiokv.models.whisper.text import WhisperText
from tests.models.whisper.stream_doubles import Recorded, noise, record_decodes, stream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]

N_TEXT_TOKENS = 340
CORPUS = [
    "the quick brown fox said that the other fox was not the one they thought it was",
    "der schnelle braune Fuchs, die Füße und der Rest",
    "el zorro dijo que no era el otro",
]
SPECIAL = [
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|de|>",
    "<|zh|>",
    "<|yue|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
    "<|0.00|>",
    "<|0.02|>",
]
SUPPRESSED = [3, 17, 299]
GAIN = 3.0  # of every product, so that text and attention differ from window to window
END_BIAS = 7.0
ALIGNMENT_HEADS = [(1, 0), (1, 3), (2, 2)]


def train_tokenizer() -> Tokenizer:
    """Return a vocabulary like Whisper's: every byte, merges, then the special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=N_TEXT_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=1,
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    assert tokenizer.get_vocab_size() == N_TEXT_TOKENS
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def random_whisper(**changes: Any) -> WhisperForConditionalGeneration:
    """Return transformers' own Whisper with random weights."""
    torch.manual_seed(0)
    config = WhisperConfig(
        **{
            "vocab_size": N_TEXT_TOKENS + len(SPECIAL),
            "num_mel_bins": 80,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 3,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 64,
            "max_source_positions": 150,
            "max_target_positions": 96,
            "bos_token_id": N_TEXT_TOKENS,
            "eos_token_id": N_TEXT_TOKENS,
            "pad_token_id": N_TEXT_TOKENS,
            "decoder_start_token_id": N_TEXT_TOKENS + 1,
            "suppress_tokens": None,
            "begin_suppress_tokens": None,
        }
        | changes
    )
    config._attn_implementation = "eager"  # so that the attention can be read
    model = WhisperForConditionalGeneration(config)
    model.train(mode=False)
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        if "layer_norm" in name:
            parameter.data = noise * 0.1 + name.endswith("weight")
        elif "embed" in name or parameter.dim() == 1:
            parameter.data = noise * 0.3
        else:
            parameter.data = noise * GAIN * parameter[0].numel() ** -0.5
        parameter.requires_grad_(False)  # noqa: FBT003  torch's own signature
    # The end of the text is made likelier, or a random model would hardly ever end one.
    decoder = model.model.decoder
    decoder.embed_tokens.weight[N_TEXT_TOKENS] += END_BIAS * decoder.layer_norm.bias
    return model


@dataclass(frozen=True, repr=False)  # thousands of lines otherwise
class Tiny:
    """transformers' random model, and ours with the same weights."""

    reference: WhisperForConditionalGeneration
    network: WhisperNetwork
    text: WhisperText
    folder: Path

    @property
    def model(self) -> WhisperModel:
        """What streams share."""
        return WhisperModel(self.network, self.text, mel_filters(80), SUPPRESSED)

    def twin(self, dtype: torch.dtype) -> WhisperNetwork:
        """The same weights with products in another type."""
        return network_of(self.reference, dtype)


def network_of(model: WhisperForConditionalGeneration, dtype: torch.dtype) -> WhisperNetwork:
    """Return our network with the weights of transformers' model."""
    dims = Dimensions.from_config(model.config.to_dict())
    return WhisperNetwork(model.state_dict(), dims, dtype, ALIGNMENT_HEADS)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The model in memory and as a folder in Hugging Face's layout."""
    folder = tmp_path_factory.mktemp("tiny-whisper")
    reference = random_whisper()
    reference.save_pretrained(folder)
    train_tokenizer().save(str(folder / "tokenizer.json"))
    generation = {
        "alignment_heads": [list(pair) for pair in ALIGNMENT_HEADS],
        "is_multilingual": True,
        "suppress_tokens": SUPPRESSED,
    }
    (folder / "generation_config.json").write_text(json.dumps(generation), "utf-8")
    text = WhisperText(folder / "tokenizer.json")
    return Tiny(reference, network_of(reference, torch.float32), text, folder)


@pytest.fixture(scope="session")
def read_speech(speech_folder: Path) -> Callable[[str], FloatArray]:
    """Reads a recording as 16 kHz mono."""

    def read(name: str) -> FloatArray:
        samples, rate_hz = soundfile.read(speech_folder / name, dtype="float32", always_2d=True)
        mono = samples.mean(axis=1)
        if rate_hz != 16_000:
            mono = samplerate.resample(mono, 16_000 / rate_hz, "sinc_best")
        return np.ascontiguousarray(mono, dtype=np.float32)

    return read


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """The questions to the decoders of a test, and their answers."""
    return record_decodes(monkeypatch)


@pytest.fixture(scope="session")
def worded(tiny: Tiny) -> np.ndarray:
    """A second of audio in which the random model finds some words."""
    for seed in range(100):
        audio = noise(1000, seed)
        if len(stream(tiny, audio=audio).decode().words) >= 3:
            return audio
    raise AssertionError("the random model finds no words")
