from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from audiokv.client.backlog import Backlog
from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.messages import Finalize, Stop

FORMAT = AudioFormat(sample_rate_hz=8_000)
PLENTY = 10**6


def numbered(n_samples: int, first: int = 0) -> bytes:
    return np.arange(first, first + n_samples, dtype="<i2").tobytes()


def test_audio_comes_out_as_it_went_in() -> None:
    backlog = Backlog(FORMAT)
    backlog.append(numbered(10)[:7])
    assert backlog.take(PLENTY, PLENTY) == numbered(3)
    backlog.append(numbered(10)[7:])
    assert backlog.take(8, PLENTY) == numbered(4, 3)
    assert backlog.take(PLENTY, PLENTY) == numbered(3, 7)
    assert backlog.take(PLENTY, PLENTY) is None


def test_stereo_is_never_cut_between_the_channels() -> None:
    backlog = Backlog(AudioFormat(channels=2))
    backlog.append(numbered(5))
    assert backlog.take(7, PLENTY) == numbered(2)
    assert backlog.take(PLENTY, PLENTY) == numbered(2, 2)
    assert backlog.take(PLENTY, PLENTY) is None


def test_no_more_is_on_its_way_than_allowed() -> None:
    backlog = Backlog(FORMAT)
    backlog.append(numbered(100))
    assert backlog.take(PLENTY, 5) == numbered(40)
    assert backlog.take(PLENTY, 5) is None
    backlog.acknowledge(30)
    assert backlog.take(PLENTY, 5) == numbered(30, 40)
    assert backlog.unacknowledged_ms == 8


def test_requests_come_between_the_audio_around_them() -> None:
    backlog = Backlog(FORMAT)
    backlog.append(numbered(3))
    backlog.request(Finalize())
    backlog.append(numbered(2, 3))
    backlog.request(Stop())
    taken = [backlog.take(PLENTY, PLENTY) for _ in range(5)]
    assert taken == [numbered(3), Finalize(), numbered(2, 3), Stop(), None]


def test_a_request_is_repeated_unless_later_audio_arrived() -> None:
    backlog = Backlog(FORMAT)
    backlog.append(numbered(3))
    backlog.request(Finalize())
    backlog.append(numbered(2, 3))
    while backlog.take(PLENTY, PLENTY) is not None:
        pass
    backlog.resume(3)
    assert backlog.take(PLENTY, PLENTY) == Finalize()
    backlog.resume(4)
    assert backlog.take(PLENTY, PLENTY) == numbered(1, 4)


def test_resuming_sends_on_from_what_the_server_holds() -> None:
    backlog = Backlog(FORMAT)
    backlog.append(numbered(10))
    backlog.take(PLENTY, PLENTY)
    backlog.acknowledge(4)
    backlog.resume(6)
    assert backlog.take(PLENTY, PLENTY) == numbered(4, 6)


def test_a_server_cannot_claim_more_than_was_sent() -> None:
    backlog = Backlog(FORMAT)
    backlog.append(numbered(10))
    backlog.take(8, PLENTY)
    backlog.acknowledge(99)
    assert backlog.acknowledged == 4
    backlog.resume(99)
    assert backlog.take(PLENTY, PLENTY) is None
    backlog.append(numbered(1, 10))
    assert backlog.take(PLENTY, PLENTY) == numbered(1, 10)


def test_confirmed_audio_is_kept_until_its_words_are_committed() -> None:
    backlog = Backlog(FORMAT)
    backlog.append(numbered(80))
    backlog.take(PLENTY, PLENTY)
    backlog.acknowledge(80)
    backlog.commit(6)
    assert backlog.restart() == 48
    assert backlog.take(PLENTY, PLENTY) == numbered(32, 48)
    assert backlog.timeline.start_ms(0) == 6


def test_confirmed_audio_is_kept_no_longer_than_agreed() -> None:
    backlog = Backlog(FORMAT, keep_ms=2)
    backlog.append(numbered(80))
    backlog.take(PLENTY, PLENTY)
    backlog.acknowledge(80)
    assert backlog.restart() == 64
    assert backlog.take(PLENTY, PLENTY) == numbered(16, 64)


def test_a_restart_keeps_the_requests_that_still_lie_ahead() -> None:
    backlog = Backlog(FORMAT)
    backlog.request(Finalize())
    backlog.append(numbered(16))
    backlog.request(Stop())
    while backlog.take(PLENTY, PLENTY) is not None:
        pass
    backlog.acknowledge(16)
    backlog.commit(1)
    backlog.restart()
    assert [backlog.take(PLENTY, PLENTY) for _ in range(2)] == [numbered(8, 8), Stop()]


def test_dropping_takes_the_oldest_and_says_how_much() -> None:
    backlog = Backlog(FORMAT)
    backlog.append(numbered(80))
    assert backlog.drop_oldest(keep_ms=20) == 0
    assert backlog.drop_oldest(keep_ms=4) == 6
    assert backlog.drop_oldest(keep_ms=4) == 0
    assert backlog.take(PLENTY, PLENTY) == Finalize()
    assert backlog.take(PLENTY, PLENTY) == numbered(32, 48)
    assert backlog.timeline.source_sample(0) == 48
    assert backlog.unacknowledged_ms == 10
    backlog.acknowledge(32)
    assert backlog.unacknowledged_ms == 0


class Talk(RuleBasedStateMachine):
    """A source, a server and a wire that breaks: the server ends up with the audio, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog(FORMAT, keep_ms=5)
        self.n_said = 0
        self.held: list[int] = []  # by the server, of this stream
        self.committed_ms = 0

    @rule(n_samples=st.integers(1, 60))
    def say(self, n_samples: int) -> None:
        self.backlog.append(numbered(n_samples, self.n_said))
        self.n_said += n_samples

    @rule(max_bytes=st.integers(2, 100), is_carried=st.booleans())
    def carry(self, max_bytes: int, is_carried: bool) -> None:  # noqa: FBT001  drawn by name
        piece = self.backlog.take(max_bytes, 20)
        if isinstance(piece, bytes):
            if is_carried:
                self.held += np.frombuffer(piece, "<i2").tolist()
            else:
                self.backlog.resume(len(self.held))

    @rule()
    def confirm(self) -> None:
        self.backlog.acknowledge(len(self.held))

    @precondition(lambda self: self.held)
    @rule(fraction=st.floats(0, 1))
    def commit(self, fraction: float) -> None:
        at = self.held[int((len(self.held) - 1) * fraction)]
        self.committed_ms = max(self.committed_ms, at // 8)
        self.backlog.commit(self.committed_ms)

    @rule()
    def forget(self) -> None:
        first = self.backlog.restart()
        assert first >= self.committed_ms * 8 or first == self.backlog.end
        self.held = []

    @invariant()
    def the_server_holds_what_the_timeline_says(self) -> None:
        timeline = self.backlog.timeline
        assert self.held == [timeline.source_sample(i) for i in range(len(self.held))]

    @invariant()
    def memory_is_bounded(self) -> None:
        unconfirmed = self.backlog.end - self.backlog.acknowledged
        assert len(self.backlog._audio) // 2 <= unconfirmed + 5 * 8


TestTalk = Talk.TestCase
TestTalk.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


@settings(deadline=None)
@given(st.integers(0, 10_000))
def test_time_and_samples_agree(ms: int) -> None:
    backlog = Backlog(FORMAT)
    assert backlog.ms(backlog.samples(ms)) == ms
