"""Audio, streams and a decoder that remembers what it was asked, for the tests of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from audiokv.models.base import Hypothesis, StreamOptions
from audiokv.models.whisper.decoding import Decoded, DraftDecoder
from audiokv.models.whisper.stream import WhisperStream, WindowOptions

if TYPE_CHECKING:
    import pytest

    from audiokv.models.whisper.cross_cache import CrossCache
    from tests.models.whisper.conftest import Tiny

WINDOW = WindowOptions(padding_ms=400, trim_above_ms=1200, keep_ms=300)
ENGLISH = StreamOptions("en")
DETECTED = StreamOptions()
LIMIT_MS = 150 * 20 - 400  # 150 positions of 20 ms, less the padding


def noise(duration_ms: int, seed: int = 0) -> np.ndarray:
    """Noise under a moving envelope, loud enough for features that differ."""
    generator = np.random.default_rng(seed)
    samples = generator.standard_normal(duration_ms * 16)
    envelope = np.abs(np.sin(np.arange(samples.size) / 900.0)) ** 3
    loud: np.ndarray = (samples * envelope * 0.3).astype(np.float32)
    return loud


def stream(
    tiny: Tiny,
    *,
    options: StreamOptions = ENGLISH,
    window: WindowOptions = WINDOW,
    audio: np.ndarray | None = None,
    at_ms: int = 0,
) -> WhisperStream:
    opened = WhisperStream(tiny.model, options, window)
    opened.open(at_ms)
    if audio is not None:
        opened.append(audio)
    return opened


class Recorded:
    """What the decoder was asked, and what it answered."""

    def __init__(self) -> None:
        self.contexts: list[list[int]] = []
        self.forced: list[list[int]] = []
        self.drafts: list[list[int]] = []
        self.results: list[Decoded] = []
        self.language_slots: list[int] = []
        self.scripted: Decoded | None = None


def record_decodes(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    record = Recorded()
    decode, language_logits = DraftDecoder.decode, DraftDecoder.language_logits

    def recording_decode(
        self: DraftDecoder,
        context: list[int],
        n_forced: int,
        draft: list[int],
        cross: CrossCache,
        *settled: int,
    ) -> Decoded:
        record.contexts.append(context)
        record.forced.append(context[len(context) - n_forced :])
        record.drafts.append(draft)
        result = record.scripted or decode(self, context, n_forced, draft, cross, *settled)
        record.results.append(result)
        return result

    def recording_logits(self: DraftDecoder, cross: CrossCache, ids: list[int]) -> np.ndarray:
        record.language_slots.append(cross.n_audio_slots)
        return language_logits(self, cross, ids)

    monkeypatch.setattr(DraftDecoder, "decode", recording_decode)
    monkeypatch.setattr(DraftDecoder, "language_logits", recording_logits)
    return record


def said(tokens: list[int], slots: list[int], *, n_slots: int, **changes: object) -> Decoded:
    """A scripted result whose tokens look at the given slots, and whose end looks at the last."""
    attention = np.full((2, len(slots) + 1, n_slots), 1e-4, dtype=np.float32)
    for row, slot in enumerate([*slots, n_slots - 1]):
        attention[:, row, slot : slot + 4] = 1.0
    values: dict[str, object] = {
        "tokens": tokens,
        "log_probabilities": [-0.1] * len(tokens),
        "attention": attention,
        "no_speech_probability": 0.1,
        "is_complete": True,
        "n_forwards": 1,
    }
    return Decoded(**(values | changes))  # type: ignore[arg-type]


def texts(hypothesis: Hypothesis) -> list[str]:
    return [word.text for word in hypothesis.words]
