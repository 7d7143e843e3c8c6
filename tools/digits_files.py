"""The checkpoint folder of the small Gemma-3n: written for, and read by, ordinary tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    AutoConfig,
    AutoFeatureExtractor,
    GenerationConfig,
    PreTrainedTokenizerFast,
)

from tools.digits_data import WORDS
from tools.digits_model import (
    AUDIO_TOKEN,
    BOA,
    BOI,
    BOS,
    DIGIT_0,
    EOA,
    EOS,
    PAD,
    UNKNOWN,
    VOCABULARY,
    DigitsModel,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from transformers import Gemma3nAudioFeatureExtractor

_PREFIX = "model."
_MAX_POSITIONS = 4096  # as far as positions jump in training
_SPECIAL = {
    PAD: "<pad>",
    EOS: "<eos>",
    BOS: "<bos>",
    BOA: "<boa>",
    UNKNOWN: "<unk>",
    BOI: "<boi>",
    EOA: "<eoa>",
    AUDIO_TOKEN: "<audio_soft_token>",
}


def digits_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer: one token a digit word, words separated by spaces."""
    names = _SPECIAL | {DIGIT_0 + digit: word for digit, word in enumerate(WORDS)}
    vocabulary = {names.get(at, f"<unused{at}>"): at for at in range(VOCABULARY)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=_SPECIAL[UNKNOWN]))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    unused = [name for at, name in enumerate(vocabulary) if at not in names]
    extra = [_SPECIAL[at] for at in (BOA, BOI, EOA, AUDIO_TOKEN)] + unused
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=_SPECIAL[PAD],
        eos_token=_SPECIAL[EOS],
        bos_token=_SPECIAL[BOS],
        unk_token=_SPECIAL[UNKNOWN],
        additional_special_tokens=extra,
        clean_up_tokenization_spaces=False,
    )


def write_checkpoint(
    folder: Path, model: DigitsModel, extractor: Gemma3nAudioFeatureExtractor
) -> None:
    """Write configuration, fp16 weights, front end, tokenizer and generation settings."""
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    extractor.save_pretrained(folder)
    digits_tokenizer().save_pretrained(folder)
    GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD, do_sample=False, max_new_tokens=64
    ).save_pretrained(folder)
    weights = {
        f"{_PREFIX}{name}": tensor.detach().to(torch.float16).contiguous()
        for name, tensor in model.state_dict().items()
    }
    write_settings(folder, [])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write_settings(folder: Path, heads: Sequence[tuple[int, int]]) -> None:
    """Write what the live recogniser wants to know beside the model's own configuration.

    Args:
        folder: Of the checkpoint.
        heads: Layer and head of each head that follows the audio.
    """
    settings = {
        "prompt": "plain",
        "languages": ["en"],
        "alignment_heads": [list(one) for one in heads],
        "dtype": "float32",
        "max_positions": _MAX_POSITIONS,
    }
    (folder / "audiokv.json").write_text(json.dumps(settings) + "\n", "utf-8")


def read_checkpoint(folder: Path) -> tuple[DigitsModel, Gemma3nAudioFeatureExtractor]:
    """Return the model, fp32 and ready to recognise, and its front end."""
    model = DigitsModel(AutoConfig.from_pretrained(folder))
    weights = load_file(folder / "model.safetensors")
    model.load_state_dict(
        {name.removeprefix(_PREFIX): tensor.float() for name, tensor in weights.items()}
    )
    extractor = AutoFeatureExtractor.from_pretrained(folder)  # type: ignore[no-untyped-call]
    return model.eval(), extractor
