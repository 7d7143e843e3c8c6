"""Joins what a stream's sessions are made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from audiokv.streaming.audio_format import SAMPLE_BYTES, AudioFormat
from audiokv.streaming.channels import ChannelGroup, ChannelSplitter
from audiokv.streaming.session import Session
from audiokv.streaming.speakers import FixedSpeaker, SpeakerSource, SpeakerTracker

if TYPE_CHECKING:
    from audiokv.models.base import Recognizer, StreamOptions
    from audiokv.streaming.session_options import SessionOptions
    from audiokv.streaming.speakers import Embed
    from audiokv.streaming.voice_activity import VoiceDetector

OpenDetector = Callable[[], "VoiceDetector"]
OpenSpeaker = Callable[[], SpeakerSource]
OpenSession = Callable[[AudioFormat, "StreamOptions", tuple[str, ...]], ChannelGroup]


def speaker_opener(embed: Embed | None) -> OpenSpeaker:
    """Return what tells the speakers of each stream without labels.

    Args:
        embed: Embeds a stretch of voice, shared by all streams; None leaves speakers unknown.
    """
    return FixedSpeaker if embed is None else partial(SpeakerTracker, embed)


def session_opener(
    recognizer: Recognizer,
    open_detector: OpenDetector,
    options: SessionOptions,
    open_speaker: OpenSpeaker = FixedSpeaker,
) -> OpenSession:
    """Return a function that makes the sessions of one stream.

    With labels each channel has a session of its own, whose speaker is the label. Without, several
    channels are averaged into one session, and whoever opens speakers tells who speaks.

    Args:
        recognizer: The loaded model, shared by all streams.
        open_detector: Gives a voice detector with its own state.
        options: Timing, the same for all streams.
        open_speaker: Gives what tells the speakers of a stream without labels.
    """

    def open_one(fmt: AudioFormat, wishes: StreamOptions, speaker: SpeakerSource) -> Session:
        return Session(
            fmt=fmt,
            stream=recognizer.open_stream(wishes),
            info=recognizer.info,
            detector=open_detector(),
            options=options,
            speaker=speaker,
        )

    def open_session(
        fmt: AudioFormat, wishes: StreamOptions, labels: tuple[str, ...] = ()
    ) -> ChannelGroup:
        if not labels:
            splitter = ChannelSplitter(fmt.frame_bytes, 1)
            return ChannelGroup([open_one(fmt, wishes, open_speaker())], splitter)
        one_channel = AudioFormat(fmt.encoding, fmt.sample_rate_hz, 1)
        sessions = [open_one(one_channel, wishes, FixedSpeaker(label)) for label in labels]
        return ChannelGroup(sessions, ChannelSplitter(SAMPLE_BYTES[fmt.encoding], len(labels)))

    return open_session
