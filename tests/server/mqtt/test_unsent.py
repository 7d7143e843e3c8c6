from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from audiokv.server.mqtt.unsent import AT_MOST_ONCE, Publication, UnsentQueue

STREAMS = st.sampled_from(["a", "b", "c"])


def kept(stream: str = "a", body: bytes = b"x") -> Publication:
    return Publication(f"{stream}/final", body, stream)


def partial(stream: str = "a", body: bytes = b"x") -> Publication:
    return Publication(f"{stream}/partial", body, stream, qos=AT_MOST_ONCE)


class Traffic(RuleBasedStateMachine):
    """A queue between streams that talk and a broker that comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = UnsentQueue()
        self.numbers = count()
        self.put_so_far: list[Publication] = []
        self.sent: list[Publication] = []
        self.newest: dict[str, int] = {}  # of each stream, the number of its latest message

    def body(self, stream: str) -> bytes:
        self.newest[stream] = next(self.numbers)
        return b"%d" % self.newest[stream]

    @rule(stream=STREAMS)
    def say_final(self, stream: str) -> None:
        self.put_so_far.append(kept(stream, self.body(stream)))
        self.queue.put(self.put_so_far[-1])

    @rule(stream=STREAMS)
    def say_partial(self, stream: str) -> None:
        self.queue.put_partial(partial(stream, self.body(stream)))

    @rule(n_max=st.integers(1, 5), order=st.permutations(range(5)))
    def send(self, n_max: int, order: list[int]) -> None:
        batch = self.queue.batch(n_max)
        self.sent += batch
        for index in order:  # acknowledged in any order
            if index < len(batch):
                self.queue.confirm(batch[index])

    @rule()
    def lose_the_connection(self) -> None:
        self.queue.forget_partials()
        assert all(p.qos != AT_MOST_ONCE for p in self.queue.batch(1_000))

    @invariant()
    def no_partial_is_outdated(self) -> None:
        for publication in self.queue.batch(1_000):
            if publication.qos == AT_MOST_ONCE:
                assert int(publication.payload) == self.newest[publication.stream]

    def teardown(self) -> None:
        """Let everything out: each kept message was sent once, in order."""
        while len(self.queue):
            self.send(3, [0, 1, 2])
        assert [p for p in self.sent if p.qos != AT_MOST_ONCE] == self.put_so_far
        assert (self.queue.kept_bytes, self.queue.n_dropped) == (0, 0)


TestTraffic = Traffic.TestCase


@given(st.lists(st.binary(max_size=30), max_size=50), st.integers(1, 8), st.integers(10, 100))
def test_the_bounds_hold_and_the_newest_stay(
    bodies: list[bytes], max_messages: int, max_bytes: int
) -> None:
    queue = UnsentQueue(max_messages, max_bytes)
    put = [kept(body=body) for body in bodies]
    for publication in put:
        queue.put(publication)
        assert len(queue) <= max_messages
        assert queue.kept_bytes <= max_bytes or len(queue) == 1
    waiting = queue.batch(1_000)
    assert waiting == put[len(put) - len(waiting) :]
    assert queue.n_dropped == len(put) - len(waiting)
    assert queue.kept_bytes == sum(publication.n_bytes for publication in waiting)
    if queue.n_dropped:  # no more was dropped than had to be
        one_more = put[queue.n_dropped - 1].n_bytes + queue.kept_bytes
        assert len(waiting) == max_messages or one_more > max_bytes


def test_a_later_confirmation_waits_for_the_earlier_ones() -> None:
    queue = UnsentQueue()
    first, second, third = (kept(body=body) for body in (b"1", b"2", b"3"))
    for publication in (first, second, third):
        queue.put(publication)
    queue.confirm(second)
    assert queue.batch(9) == [first, third]
    assert len(queue) == 3
    queue.confirm(first)
    assert queue.batch(9) == [third]
    assert len(queue) == 1


def test_what_was_dropped_while_under_way_may_still_be_confirmed() -> None:
    queue = UnsentQueue(max_messages=1)
    first, second = kept(), kept()
    queue.put(first)
    (under_way,) = queue.batch(1)
    queue.put(second)
    queue.confirm(under_way)
    assert queue.batch(9) == [second]


def test_kept_messages_go_before_partials_and_the_batch_is_limited() -> None:
    queue = UnsentQueue()
    queue.put_partial(partial("b"))
    queue.put(kept("a"))
    queue.put(kept("a"))
    assert [p.topic for p in queue.batch(1)] == ["a/final"]
    assert [p.topic for p in queue.batch(9)] == ["a/final", "a/final"]


@pytest.mark.parametrize(("topic", "expected"), [("a/final", True), ("a/partial", False)])
def test_only_messages_that_must_arrive_count_as_kept(topic: str, *, expected: bool) -> None:
    queue = UnsentQueue()
    queue.put(kept("a"))
    queue.put_partial(partial("a"))
    assert queue.has_kept(topic) is expected
