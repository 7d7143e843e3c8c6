"""From a stream's audio to its slots: each encoded once, and marked for the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from audiokv.models.gemma3n.batch_requests import Encode, Finish, run_alone
from audiokv.models.gemma3n.mel import IncrementalMel
from audiokv.streaming.audio_format import FRAME_MS, FRAME_SAMPLES
from audiokv.streaming.policy.loudness import LoudnessGate
from audiokv.streaming.policy.marker import SlotMarker

if TYPE_CHECKING:
    from audiokv.models.audio_llm.hearing_model import SlotModel
    from audiokv.models.base import FloatArray
    from audiokv.models.gemma3n.batch_requests import Work
    from audiokv.models.gemma3n.mel import MelFrontEnd
    from audiokv.models.gemma3n.speech_model import Inputs
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

    def __init__(self, speech: SlotModel, front_end: MelFrontEnd, at_ms: int) -> None:
        self._speech = speech
        self._mel = IncrementalMel(front_end)
        self._tower = speech.tower.start()
        self._marker = SlotMarker(slot_length_ms(speech, front_end), start_ms=at_ms)
        self._gate = LoudnessGate()
        self._part: FloatArray = np.empty(0, np.float32)
        self._unmarked: list[Inputs] = []
        self._marked: list[SlotMarks] = []  # of slots whose encoding is not final

    def push(self, samples: FloatArray, talker: Talker) -> list[MarkedSlot]:
        """Take audio and return the slots it completes.

        A slot counts as unfinished until both its encoding is final (Gemma-3n: 68 ms before its
        audio ends) and its audio is there.

        Args:
            samples: Shape (n,), 16 kHz mono, directly following the push before.
            talker: Who speaks.
        """
        return run_alone(self.pushing(samples, talker))

    def pushing(self, samples: FloatArray, talker: Talker) -> Work[list[MarkedSlot]]:
        """The work of ``push``."""
        mel = self._mel.copy()
        frames = torch.from_numpy(mel.push(samples))
        if len(frames):
            encode = Encode(self._speech.tower, self._tower, self._speech.mel(frames))
            yield encode  # may fail: until here nothing has changed
            self._tower = encode.after
            slots = self._speech.slots(encode.slots)
            self._unmarked += [slots[i : i + 1] for i in range(len(slots))]
        self._mel = mel
        self._marked += self._marks(samples, talker)
        whole = list(zip(self._unmarked, self._marked, strict=False))
        self._unmarked, self._marked = self._unmarked[len(whole) :], self._marked[len(whole) :]
        return whole

    def unfinished(self) -> list[Inputs]:
        """Return the slots that are due if the audio ends here; the stream can go on."""
        return run_alone(self.finishing())

    def finishing(self) -> Work[list[Inputs]]:
        """The work of ``unfinished``."""
        finish = Finish(self._speech.tower, self._tower)
        yield finish
        last = self._speech.slots(finish.slots)
        return [*self._unmarked, *([last] if len(last) else [])]

    def forget_level(self) -> None:
        """Let the tower's running norms begin anew, at a pause."""
        self._tower = self._speech.tower.forget_level(self._tower)

    def _marks(self, samples: FloatArray, talker: Talker) -> list[SlotMarks]:
        joined = np.concatenate((self._part, samples))
        n_whole = len(joined) - len(joined) % FRAME_SAMPLES
        frames, self._part = joined[:n_whole], joined[n_whole:]
        return self._marker.push(frames, self._gate.push(frames), talker)


def slot_length_ms(speech: SlotModel, front_end: MelFrontEnd) -> int:
    """Return the length of one audio slot of a model.

    Raises:
        ValueError: It is not whole frames of 10 ms.
    """
    samples: int = speech.tower.mel_frames_per_slot * front_end.hop_samples
    if samples % FRAME_SAMPLES:
        raise ValueError(f"a slot of {samples} samples is not whole frames of {FRAME_MS} ms")
    return samples // FRAME_SAMPLES * FRAME_MS
