"""Both sides of a call as the two channels of one stream, the near one with the far one's echo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from audiokv.models.base import StreamOptions
from audiokv.server.sessions import session_opener
from audiokv.streaming.audio_format import FRAME_SAMPLES, AudioFormat
from audiokv.streaming.captions import Caption
from audiokv.streaming.session_options import SessionOptions
from benchmarks.measures import Arrival
from benchmarks.recordings import to_pcm
from benchmarks.telephone_call import heard
from benchmarks.telephone_conditions import echoing
from benchmarks.telephone_line import Leg, Network

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from audiokv.models.base import Recognizer
    from audiokv.streaming.captions import Event
    from audiokv.streaming.channels import ChannelGroup
    from audiokv.streaming.voice_activity import VoiceDetector
    from benchmarks.recordings import FloatArray
    from benchmarks.telephone_conditions import Utterance

NEAR, FAR = "near", "far"
_PUSH_BYTES = 4 * FRAME_SAMPLES  # 10 ms of both channels


class TwoLegListener:
    """Listens to both sides of a call at a time, as the server does; time does not matter to it.

    Args:
        recognizer: The loaded model.
        open_detector: Gives a voice detector with its own state.
    """

    def __init__(self, recognizer: Recognizer, open_detector: Callable[[], VoiceDetector]) -> None:
        self._recognizer = recognizer
        self._open_session = session_opener(recognizer, open_detector, SessionOptions())

    def near_side(self, utterance: Utterance, profile: str = "default") -> list[Arrival]:
        """Return the captions of the near side, into which the other one echoes.

        Args:
            utterance: What both sides say.
            profile: Of the stream.
        """
        both = [_through_the_line(one) for one in (echoing(utterance), utterance.other)]
        wishes = StreamOptions(language=utterance.recording.language, profile=profile)
        group = self._open_session(AudioFormat(channels=2), wishes, (NEAR, FAR))
        audio = to_pcm(np.stack(both, axis=1))
        found: list[Arrival] = []
        for first in range(0, len(audio), _PUSH_BYTES):
            group.push(audio[first : first + _PUSH_BYTES])
            if first + _PUSH_BYTES >= len(audio):
                group.stop()
            at_ms = float(group.received_ms)
            found += [
                Arrival(at_ms, event)
                for event in self._work(group)
                if isinstance(event, Caption) and event.speaker == NEAR
            ]
        return found

    def _work(self, group: ChannelGroup) -> Sequence[Event]:
        events = group.prepare()
        while group.is_step_due:
            events += group.apply(self._recognizer.decode(group.due))
            events += group.prepare()
        return events


def _through_the_line(samples: FloatArray) -> FloatArray:
    return heard(Network().carry(Leg().send(samples), np.random.default_rng(0)))
