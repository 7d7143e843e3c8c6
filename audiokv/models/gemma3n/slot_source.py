"""From a stream's audio to its slots: each encoded once, and marked for the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from audiokv.models.gemma3n.mel import IncrementalMel
from audiokv.streaming.audio_format import FRAME_MS, FRAME_SAMPLES
from audiokv.streaming.policy.loudness import LoudnessGate
from audiokv.streaming.policy.marker import SlotMarker

if TYPE_CHECKING:
    from audiokv.models.base import FloatArray
    from audiokv.models.gemma3n.mel import MelFrontEnd
    from audiokv.models.gemma3n.speech_model import Inputs, SpeechModel
    from audiokv.streaming.policy.marker import Talker
    from audiokv.streaming.policy.marks import SlotMarks

    MarkedSlot = tuple[Inputs, SlotMarks]


class SlotSource:
    """Encodes one stream.

    Args:
        speech: The model.
        front_end: Its mel front end.
        at_ms: Position of the first sample on the stream's clock.
    """

    def __init__(self, speech: SpeechModel, front_end: MelFrontEnd, at_ms: int) -> None:
        self._speech = speech
        self._mel = IncrementalMel(front_end)
        self._tower = speech.tower.start()
        self._marker = SlotMarker(slot_length_ms(speech, front_end), start_ms=at_ms)
        self._gate = LoudnessGate()
        self._part: FloatArray = np.empty(0, np.float32)
        self._unmarked: list[Inputs] = []

    def push(self, samples: FloatArray, talker: Talker) -> list[MarkedSlot]:
        """Take audio and return the slots it completes.

        A slot's encoding is final 68 ms before its audio ends; it counts as unfinished until then.

        Args:
            samples: Shape (n,), 16 kHz mono, directly following the push before.
            talker: Who speaks.
        """
        frames = torch.from_numpy(self._mel.push(samples))
        if len(frames):
            mel = self._speech.mel(frames)
            encoded, self._tower = self._speech.tower.advance(self._tower, mel)
            slots = self._speech.slots(encoded)
            self._unmarked += [slots[i : i + 1] for i in range(len(slots))]
        marks = self._marks(samples, talker)
        whole = list(zip(self._unmarked, marks, strict=False))
        self._unmarked = self._unmarked[len(marks) :]
        return whole

    def unfinished(self) -> list[Inputs]:
        """Return the slots that are due if the audio ends here; the stream can go on."""
        last = self._speech.slots(self._speech.tower.finish(self._tower))
        return [*self._unmarked, *([last] if len(last) else [])]

    def forget_level(self) -> None:
        """Let the tower's running norms begin anew, at a pause."""
        self._tower = self._speech.tower.forget_level(self._tower)

    def _marks(self, samples: FloatArray, talker: Talker) -> list[SlotMarks]:
        joined = np.concatenate((self._part, samples))
        n_whole = len(joined) - len(joined) % FRAME_SAMPLES
        frames, self._part = joined[:n_whole], joined[n_whole:]
        return self._marker.push(frames, self._gate.push(frames), talker)


def slot_length_ms(speech: SpeechModel, front_end: MelFrontEnd) -> int:
    """Return the length of one audio slot of a model.

    Raises:
        ValueError: It is not whole frames of 10 ms.
    """
    samples = speech.tower.mel_frames_per_slot * front_end.hop_samples
    if samples % FRAME_SAMPLES:
        raise ValueError(f"a slot of {samples} samples is not whole frames of {FRAME_MS} ms")
    return samples // FRAME_SAMPLES * FRAME_MS
