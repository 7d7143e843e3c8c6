"""What a model's folder says beside the model's own configuration, in ``audiokv.json``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from audiokv.streaming.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

SETTINGS_FILE = "audiokv.json"
_LANGUAGE_CODE = re.compile("[a-z]{2}")
_MAX_TAIL_SLOTS = 640  # ``PrefixOptions.tail_slots``: what a step appends has to fit as well


def _is_whole(value: object, least: int = 0) -> bool:
    return type(value) is int and value >= least  # True is an int, too


def _is_language(value: object) -> bool:
    return isinstance(value, str) and _LANGUAGE_CODE.fullmatch(value) is not None


def _is_head(value: object) -> bool:
    match value:
        case [layer, head]:
            return _is_whole(layer) and _is_whole(head)
    return False


# What each key's value must be, in JSON's types: how to tell, and in words.
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "prompt": (lambda value: value in (None, "plain", "chat"), '"plain", "chat" or null'),
    "languages": (
        lambda value: (
            value is None
            or (isinstance(value, list) and bool(value) and all(map(_is_language, value)))
        ),
        'a list of ISO 639-1 codes such as ["en", "de"], or null',
    ),
    "alignment_heads": (
        lambda value: isinstance(value, list) and all(map(_is_head, value)),
        "a list of pairs of a layer and a head, counted from 0, such as [[3, 1], [5, 0]]",
    ),
    "pad_to_slots": (_is_whole, "a whole number, 0 or more"),
    "dtype": (
        lambda value: value in (None, "float32", "bfloat16", "float16"),
        '"float32", "bfloat16", "float16" or null',
    ),
    "max_positions": (
        lambda value: value is None or _is_whole(value, _MAX_TAIL_SLOTS + 1),
        f"a whole number above {_MAX_TAIL_SLOTS}, or null",
    ),
    "resets_norm": (lambda value: isinstance(value, bool), "true or false"),
}


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What a model's folder may say in ``audiokv.json``.

    Attributes:
        prompt: ``plain``, ``chat``, or None to tell from the vocabulary.
        languages: ISO 639-1 codes it recognises, or None for those of the layout.
        alignment_heads: Layer and head of each head whose attention follows the audio.
        pad_to_slots: Slots that a clip is filled up to, as transformers' processor does (188).
        dtype: Name of the type to hold the weights in, or None for what suits the device.
        max_positions: Positions the model was trained for, where that is less than its config says.
        resets_norm: Whether the audio tower's running norm begins anew at each pause.
    """

    prompt: str | None = None
    languages: frozenset[str] | None = None
    alignment_heads: tuple[tuple[int, int], ...] = ()
    pad_to_slots: int = 0
    dtype: str | None = None
    max_positions: int | None = None
    resets_norm: bool = False

    @classmethod
    def from_folder(cls, folder: Path) -> ModelSettings:
        """Read a model's settings; all defaults where there are none.

        Raises:
            ConfigError: The file cannot be read or has a key or value that means nothing.
        """
        file = folder / SETTINGS_FILE
        if not file.exists():
            return cls()
        try:
            settings = json.loads(file.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise _bad_settings(file, f"{error}", "Make it a JSON object.") from error
        if not isinstance(settings, dict):
            remedy = "Write its keys and their values in braces."
            raise _bad_settings(file, "it holds no JSON object", remedy)
        for key, value in settings.items():
            if key not in _CHECKS:
                remedy = f"Its keys are {', '.join(_CHECKS)}."
                raise _bad_settings(file, f"there is no key {key!r}", remedy)
            is_valid, wanted = _CHECKS[key]
            if not is_valid(value):
                remedy = f"Make {key} {wanted}, or leave it out."
                raise _bad_settings(file, f"{key} is {json.dumps(value)}", remedy)
        heads = settings.pop("alignment_heads", [])
        languages = settings.pop("languages", None)
        return cls(
            **settings,
            alignment_heads=tuple((layer, head) for layer, head in heads),
            languages=None if languages is None else frozenset(languages),
        )

    def check_heads(self, folder: Path, layers: Sequence[int], n_heads: int) -> None:
        """Make sure that the model has the alignment heads.

        Args:
            folder: The model's, to be named.
            layers: Layers that attend to everything held.
            n_heads: Query heads of each.

        Raises:
            ConfigError: A head is not in one of these layers.
        """
        for layer, head in self.alignment_heads:
            if layer not in layers or head >= n_heads:
                raise _bad_settings(
                    folder / SETTINGS_FILE,
                    f"alignment_heads has [{layer}, {head}], which this model has not",
                    f"Name heads 0 to {n_heads - 1} of the full-attention layers {layers}; "
                    "audiokv calibrate finds those that follow the audio.",
                )


def _bad_settings(file: Path, what: str, remedy: str) -> ConfigError:
    return ConfigError("bad_model_settings", f"{file} cannot be used: {what}.", remedy)
