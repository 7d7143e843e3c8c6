"""Calls of two scripted channels, for the tests of channels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from audiokv.streaming.audio_format import SAMPLE_BYTES, AudioFormat
from audiokv.streaming.channels import ChannelGroup, ChannelSplitter
from audiokv.streaming.session import Session
from audiokv.streaming.speakers import FixedSpeaker
from tests.streaming.session_script import LOUD, Loudness, Script, audio, captions, info

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audiokv.streaming.captions import Caption, Event
    from audiokv.streaming.session_options import SessionOptions

Turns = list[tuple[int, int]]  # (quiet ms, loud ms)
LABELS = ("agent", "caller")


def turn_lists() -> st.SearchStrategy[Turns]:
    return st.lists(st.tuples(st.integers(0, 900), st.integers(100, 1_500)), max_size=4)


def table(turns: Turns, name: str) -> list[tuple[str, int, int]]:
    """Return a word for each 300 ms of loud audio."""
    words: list[tuple[str, int, int]] = []
    at_ms = 0
    for quiet_ms, loud_ms in turns:
        at_ms += quiet_ms
        starts_ms = range(at_ms, at_ms + loud_ms - 300, 300)
        words += [(f"{name}{start_ms}", start_ms + 20, start_ms + 280) for start_ms in starts_ms]
        at_ms += loud_ms
    return words


def pcm(turns: Turns, whole_ms: int) -> bytes:
    sound = audio(*[part for quiet, loud in turns for part in ((0, quiet), (LOUD, loud))])
    return sound + bytes(32 * whole_ms - len(sound))


def interleaved(parts: Sequence[bytes], sample_bytes: int = 2) -> bytes:
    columns = [np.frombuffer(part, f"V{sample_bytes}") for part in parts]
    return np.stack(columns, axis=1).tobytes()


class Call:
    """A group of channels, each with a scripted recogniser, and what it said."""

    def __init__(
        self,
        scripts: Sequence[Script],
        labels: Sequence[str | None] = LABELS,
        fmt: AudioFormat | None = None,
        options: SessionOptions | None = None,
    ) -> None:
        self.scripts = scripts
        sessions = [
            Session(
                fmt=fmt or AudioFormat(),
                stream=script,
                info=info(),
                detector=Loudness(),
                options=options,
                speaker=FixedSpeaker(label),
            )
            for script, label in zip(scripts, labels, strict=True)
        ]
        encoding = (fmt or AudioFormat()).encoding
        splitter = ChannelSplitter(SAMPLE_BYTES[encoding], len(sessions))
        self.group = ChannelGroup(sessions, splitter)
        self.events: list[Event] = []
        self.batches: list[int] = []

    def work(self) -> None:
        self.events += self.group.prepare()
        while self.group.is_step_due:
            self.batches.append(len(self.group.due))
            hypotheses = [stream.decode() for stream in self.group.due]  # type: ignore[attr-defined]
            self.events += self.group.apply(hypotheses)
            self.events += self.group.prepare()
            self.group.rest()

    def of(self, label: str) -> list[Caption]:
        return [c for c in captions(self.events) if c.speaker == label]


def alone(turns: Turns, name: str, sound: bytes) -> Call:
    call = Call([Script(table(turns, name))], [name])
    call.group.push(sound)
    call.group.stop()
    call.work()
    return call


def bare(said: Sequence[Caption]) -> list[Caption]:
    """Return captions without the numbers that the whole stream gives."""
    return [replace(c, seq=0, segment=0, speaker=None) for c in said]


def check_numbers(said: Sequence[Caption]) -> None:
    assert [c.seq for c in said] == list(range(1, len(said) + 1))
    firsts = [c.segment for c in said if c.revision == 0]
    assert firsts == list(range(len(firsts)))
    finals = [c.segment for c in said if c.is_final]
    assert sorted(finals) == firsts  # one each
    for segment in firsts:
        own = [c for c in said if c.segment == segment]
        assert [c.revision for c in own] == list(range(len(own)))
        assert [c.is_final for c in own] == [False] * (len(own) - 1) + [True]
        assert len({c.speaker for c in own}) == 1
