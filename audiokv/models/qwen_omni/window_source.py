"""From a stream's audio to Qwen3-Omni's slots: full windows for good, the open one anew each time.

The front end is Whisper's, whose floor lies a fixed range below the loudest bin of the clip. A
stream does not know how loud it will be: here it is the loudest bin up to the end of the window.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from audiokv.models.qwen_omni.window_encoder import MEL_FRAMES_PER_SLOT
from audiokv.models.whisper.features import (
    DYNAMIC_RANGE,
    HOP_SAMPLES,
    N_FFT,
    IncrementalLogMel,
)
from audiokv.streaming.audio_format import FRAME_MS, FRAME_SAMPLES
from audiokv.streaming.policy.loudness import LoudnessGate
from audiokv.streaming.policy.marker import VOICE_SHARE, SlotMarker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audiokv.models.base import FloatArray
    from audiokv.models.gemma3n.slot_source import MarkedSlot
    from audiokv.models.gemma3n.speech_model import Inputs
    from audiokv.models.qwen_omni.qwen_omni_speech import QwenOmniSpeech
    from audiokv.streaming.policy.marker import Talker
    from audiokv.streaming.policy.marks import SlotMarks

_SCALE = 4.0  # decades are divided by it before they go to the encoder


class WindowSource:
    """Encodes one stream.

    Args:
        speech: The model.
        mel_filters: Whisper's filter bank, shape (mels, 201).
        at_ms: Position of the first sample on the stream's clock.
    """

    def __init__(self, speech: QwenOmniSpeech, mel_filters: torch.Tensor, at_ms: int) -> None:
        self._speech = speech
        self._mel = IncrementalLogMel(mel_filters)
        self._marker = SlotMarker(FRAME_MS, start_ms=at_ms)
        self._gate = LoudnessGate()
        self._part: FloatArray = np.empty(0, np.float32)
        self._frames: list[SlotMarks] = []  # of the open window, one a frame of 10 ms
        self._n_windows = 0
        self._floor = -math.inf  # of the windows before

    def push(self, samples: FloatArray, talker: Talker) -> list[MarkedSlot]:
        """Take audio and return the slots of the windows it completes.

        Args:
            samples: Shape (n,), 16 kHz mono, directly following the push before.
            talker: Who speaks.
        """
        encoder = self._speech.encoder
        n_frames = encoder.frames_per_window
        n_needed = (n_frames - 1) * HOP_SAMPLES + N_FFT // 2  # the last frame looks ahead
        self._mel.append(torch.from_numpy(samples))
        self._mark(samples, talker)
        whole: list[MarkedSlot] = []
        while self._mel.n_samples >= n_needed and len(self._frames) >= n_frames:
            slots = self._encode(n_frames)
            loudest = float(self._mel.features(n_frames).max())
            self._floor = max(self._floor, loudest - DYNAMIC_RANGE / _SCALE)
            marks = slot_marks(self._frames[:n_frames], encoder.frames_per_chunk)
            whole += [(slots[i : i + 1], mark) for i, mark in enumerate(marks)]
            self._mel.drop(n_frames)
            self._frames = self._frames[n_frames:]
            self._n_windows += 1
        return whole

    def unfinished(self) -> list[Inputs]:
        """Return the open window's slots, as if the audio ended here; the stream can go on."""
        n_frames = min(self._mel.n_samples // HOP_SAMPLES, self._speech.encoder.frames_per_window)
        return [self._encode(n_frames)] if n_frames else []

    def _encode(self, n_frames: int) -> Inputs:
        mel = self._features(n_frames)
        return self._speech.slots(self._speech.encoder.encode(mel, has_past=self._n_windows > 0))

    def _features(self, n_frames: int) -> torch.Tensor:
        return self._mel.features(n_frames).clamp(min=self._floor)

    def _mark(self, samples: FloatArray, talker: Talker) -> None:
        joined = np.concatenate((self._part, samples))
        n_whole = len(joined) - len(joined) % FRAME_SAMPLES
        frames, self._part = joined[:n_whole], joined[n_whole:]
        self._frames += self._marker.push(frames, self._gate.push(frames), talker)


def slot_marks(frames: Sequence[SlotMarks], frames_per_chunk: int) -> list[SlotMarks]:
    """Gather the marks of frames into those of slots, of which the last of a chunk is shorter.

    Args:
        frames: Marks of frames of 10 ms, whole chunks of them.
        frames_per_chunk: Frames that are convolved together.
    """
    slots: list[SlotMarks] = []
    for start in range(0, len(frames), frames_per_chunk):
        chunk = frames[start : start + frames_per_chunk]
        slots += [
            _joined(chunk[first : first + MEL_FRAMES_PER_SLOT])
            for first in range(0, len(chunk), MEL_FRAMES_PER_SLOT)
        ]
    return slots


def _joined(frames: Sequence[SlotMarks]) -> SlotMarks:
    powers = [frame.power for frame in frames if frame.power is not None]
    return replace(
        frames[-1],
        start_ms=frames[0].start_ms,
        is_voice=sum(frame.is_voice for frame in frames) >= VOICE_SHARE * len(frames),
        is_boundary=any(frame.is_boundary for frame in frames),
        prior=float(np.mean([frame.prior for frame in frames])),
        power=float(np.mean(powers)) if powers else None,
    )
