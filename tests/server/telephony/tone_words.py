"""Words of two tones, another one each second, known again after any codec and any loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.captions import Word
from tests.server.doubles import ScriptedRecognizer, ScriptedStream

if TYPE_CHECKING:
    from audiokv.models.base import FloatArray, StreamOptions

RATE_HZ = 16_000
WORD_MS = 300
BEGIN_MS = 500  # in each second
_LOW_HZ = np.arange(400, 1_400, 40)
_HIGH_HZ = np.arange(1_500, 3_000, 60)
_AMPLITUDE = 0.15
_BLOCK = RATE_HZ // 1000  # 1 ms: how finely an edge is found
_OVER_AFTER_MS = 120  # a hole that long is no loss in the middle of a word
_LOUD = 0.02
_FFT_SIZE = 1 << 14


def word_name(number: int) -> str:
    """Return what is heard of the word of a second; 625 differ."""
    return f"w{number % (len(_LOW_HZ) * len(_HIGH_HZ))}"


def tone_words(first: int, n_words: int) -> FloatArray:
    """Return a second of audio for each word, from 16 kHz.

    Args:
        first: Number of the first.
        n_words: How many.
    """
    at_s = np.arange(WORD_MS * _BLOCK) / RATE_HZ
    spoken = np.zeros((n_words, RATE_HZ), np.float32)
    begin = BEGIN_MS * _BLOCK
    for row, number in zip(spoken, range(first, first + n_words), strict=True):
        low, high = divmod(number % (len(_LOW_HZ) * len(_HIGH_HZ)), len(_HIGH_HZ))
        tones = np.sin(2 * np.pi * _LOW_HZ[low] * at_s) + np.sin(2 * np.pi * _HIGH_HZ[high] * at_s)
        row[begin : begin + len(at_s)] = _AMPLITUDE * tones
    return spoken.reshape(-1)


class ToneStream(ScriptedStream):
    """Hears one word in each window, once it is over, at the place of its first and last sound."""

    def hear(self) -> tuple[Word, ...]:
        n_blocks = len(self.audio) // _BLOCK
        blocks = np.abs(self.audio[: n_blocks * _BLOCK]).reshape(n_blocks, _BLOCK).max(axis=1)
        loud = np.flatnonzero(blocks > _LOUD)
        self.words = ()
        if loud.size and n_blocks - int(loud[-1]) > _OVER_AFTER_MS:
            begin, end = int(loud[0]), int(loud[-1]) + 1
            name = self._name(self.audio[begin * _BLOCK : end * _BLOCK])
            self.words = (Word(name, self.at_ms + begin, self.at_ms + end, confidence=0.9),)
        return self.words

    def _name(self, samples: FloatArray) -> str:
        size = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), _FFT_SIZE))
        low, high = (
            int(size[np.rint(band * _FFT_SIZE / RATE_HZ).astype(int)].argmax())
            for band in (_LOW_HZ, _HIGH_HZ)
        )
        return word_name(low * len(_HIGH_HZ) + high)


class ToneRecognizer(ScriptedRecognizer):
    """Hears words of two tones."""

    def open_stream(self, options: StreamOptions) -> ScriptedStream:
        return ToneStream(options)
