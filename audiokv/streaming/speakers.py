"""Who speaks in a segment: a label that is given, or a voice told apart from those before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from audiokv.streaming.audio_format import FRAME_MS, FRAME_SAMPLES
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.speaker_clusters import SpeakerClusters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float32]

Embed = Callable[["FloatArray"], "FloatArray"]


class SpeakerSource(Protocol):
    """Tells who speaks in a session's segments. Called by one thread at a time."""

    @property
    def label(self) -> str | None:
        """Who speaks in the open segment, as of the step before; None while unknown."""

    def begin(self) -> None:
        """Note that a segment begins; voice heard since the one before does not count."""

    def hear(self, frame: FloatArray) -> None:
        """Take in a 10 ms frame of voice, shape (160,)."""

    def step(self) -> None:
        """Note that a recognition step is due here; ``label`` may change now and only now."""

    def rest(self) -> None:
        """Do what can wait until a step's captions are out; may be left out at no loss."""

    def conclude(self) -> str | None:
        """End the segment, or a part of a long one, and return who spoke in it."""


class FixedSpeaker:
    """Implements ``SpeakerSource`` where the speaker is given: a channel's label, or nobody.

    Args:
        label: The label, or None.
    """

    def __init__(self, label: str | None = None) -> None:
        self.label = label

    def begin(self) -> None:
        """Nothing to do."""

    def hear(self, frame: FloatArray) -> None:
        """Nothing to do."""

    def step(self) -> None:
        """Nothing to do."""

    def rest(self) -> None:
        """Nothing to do."""

    def conclude(self) -> str | None:
        """Return the label."""
        return self.label


@dataclass(frozen=True, slots=True)
class SpeakerOptions:
    """How voices are told apart.

    Attributes:
        threshold: Mean cosine to a known voice from which a segment is taken for it.
        short_threshold: The same for what is too short to be a new speaker; it teaches nothing.
        min_voice_ms: Voice that a segment needs for a label.
        new_voice_ms: Voice that a segment needs to be a new speaker.
        window_ms: Voice that one embedding covers.
        look_ms: Voice between two embeddings.
        max_speakers: Speakers told apart.

    Raises:
        ConfigError: ``bad_speaker_options``: a value is out of range.
    """

    threshold: float = 0.7
    short_threshold: float = 0.58
    min_voice_ms: int = 400
    new_voice_ms: int = 1600
    window_ms: int = 1600
    look_ms: int = 800
    max_speakers: int = 20

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name in ("threshold", "short_threshold"):
            if not 0 < getattr(self, name) < 1:
                raise _bad(name, getattr(self, name), "between 0 and 1")
        for name in ("min_voice_ms", "new_voice_ms", "window_ms", "look_ms"):
            if getattr(self, name) < FRAME_MS:
                raise _bad(name, getattr(self, name), f"of at least {FRAME_MS}")
        if self.max_speakers < 1:
            raise _bad("max_speakers", self.max_speakers, "of at least 1")


def _bad(name: str, value: float, wanted: str) -> ConfigError:
    return ConfigError(
        "bad_speaker_options",
        f"The speaker option {name} = {value} is out of range.",
        f"Use a number {wanted}.",
    )


class SpeakerTracker:
    """Implements ``SpeakerSource`` by the voice: "speaker 1", "speaker 2", … as they come.

    The voice of a segment is cut into overlapping windows at positions of the audio alone; each
    gives an embedding, their mean is the segment's. Whose it is, is decided anew with every window
    and for good at the segment's end, when it is learnt. So the labels of the same audio
    are the same however late it is heard, and whether or not there is time to rest.

    Args:
        embed: Returns the embedding of up to ``window_ms`` of voice, of unit length.
        options: How voices are told apart.
    """

    def __init__(self, embed: Embed, options: SpeakerOptions | None = None) -> None:
        self._embed = embed
        self._options = options = options or SpeakerOptions()
        self._clusters = SpeakerClusters(options.max_speakers)
        self._window: deque[FloatArray] = deque(maxlen=options.window_ms // FRAME_MS)
        self.begin()

    @property
    def label(self) -> str | None:
        """Who speaks in the open segment, as of the step before; None while unknown."""
        return self._label

    def begin(self) -> None:
        """Note that a segment begins."""
        self._window.clear()
        self._heard_ms = 0
        self._looked_ms = 0
        self._new: list[FloatArray] = []  # windows since the latest step
        self._due: list[FloatArray] = []  # windows before it
        self._voice = _SegmentVoice(self._options.window_ms // FRAME_MS * FRAME_SAMPLES)
        self._label: str | None = None

    def hear(self, frame: FloatArray) -> None:
        """Take in a 10 ms frame of voice."""
        self._window.append(frame)
        self._heard_ms += FRAME_MS
        if self._heard_ms - self._looked_ms >= self._options.look_ms:
            self._look()

    def _look(self) -> None:
        self._looked_ms = self._heard_ms
        if self._heard_ms >= self._options.min_voice_ms:
            self._new.append(np.concatenate(self._window))

    def step(self) -> None:
        """Let the windows before the latest step count."""
        self.rest()
        self._due, self._new = self._new, []
        voice = self._voice.embedding
        if voice is not None:
            speaker = self._clusters.match(voice, self._options.threshold)
            self._label = self._name(self._new_speaker() if speaker is None else speaker)

    def rest(self) -> None:
        """Embed the windows before the latest step."""
        for window in self._due:
            self._voice.add(self._embed(window), len(window))
        self._due = []

    def conclude(self) -> str | None:
        """End the segment, learn its voice, and return who spoke in it."""
        if 2 * (self._heard_ms - self._looked_ms) >= self._options.look_ms:
            self._look()
        self._due += self._new
        self.rest()
        voice = self._voice.embedding
        speaker = None if voice is None else self._learn(voice)
        self.begin()
        return self._name(speaker)

    def _learn(self, voice: FloatArray) -> int | None:
        speaker = self._clusters.match(voice, self._options.threshold)
        if speaker is None and self._new_speaker() is None:
            return self._clusters.match(voice, self._options.short_threshold)
        return self._clusters.learn(voice, speaker, self._heard_ms)

    def _new_speaker(self) -> int | None:
        """Return the number that a new voice would have, None where too little was heard of it."""
        is_enough = self._heard_ms >= self._options.new_voice_ms
        return len(self._clusters) if is_enough else None

    @staticmethod
    def _name(speaker: int | None) -> str | None:
        return None if speaker is None else f"speaker {speaker + 1}"


class _SegmentVoice:
    """The mean of a segment's embeddings; whole windows replace the short one before them.

    Args:
        window_samples: Length of a whole window.
    """

    def __init__(self, window_samples: int) -> None:
        self._window_samples = window_samples
        self._total: FloatArray | None = None
        self._is_whole = False

    @property
    def embedding(self) -> FloatArray | None:
        """The mean, of unit length; None before the first, or where they say nothing."""
        if self._total is None or not self._total.any():
            return None
        return self._total / np.linalg.norm(self._total)

    def add(self, embedding: FloatArray, n_samples: int) -> None:
        """Take in the embedding of so many samples."""
        is_whole = n_samples >= self._window_samples
        if self._total is None or is_whole > self._is_whole:
            self._total, self._is_whole = embedding, is_whole
        else:
            self._total = self._total + embedding
