from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.replay import ReplayBuffer, SentCaption


def caption(seq: int, *, is_final: bool, size: int = 4, segment: int = 0) -> SentCaption:
    return SentCaption(seq, segment, is_final, f"{seq:{size}}".encode())


def numbers(messages: list[bytes]) -> list[int]:
    return [int(message) for message in messages]


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 20), st.integers(0, 70))
def test_what_was_missed_comes_in_order_once(finals: list[bool], kept: int, after: int) -> None:
    replay = ReplayBuffer(max_recent=kept)
    for seq, is_final in enumerate(finals, start=1):
        replay.add(caption(seq, is_final=is_final))
    first_recent = max(1, len(finals) - kept + 1)
    expected = [
        seq
        for seq, is_final in enumerate(finals, start=1)
        if seq > after and (is_final or seq >= first_recent)
    ]
    assert numbers(replay.after(after)) == expected
    assert replay.last_seq == len(finals)
    n_old_partials = sum(not is_final for is_final in finals[: first_recent - 1])
    assert replay.n_forgotten == n_old_partials


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 20))
def test_a_newcomer_gets_all_finals_and_the_open_caption(finals: list[bool], kept: int) -> None:
    replay = ReplayBuffer(max_recent=kept)
    for seq, is_final in enumerate(finals, start=1):
        replay.add(caption(seq, is_final=is_final))
    expected = [seq for seq, is_final in enumerate(finals, start=1) if is_final]
    if finals and not finals[-1]:
        expected.append(len(finals))
    assert numbers(replay.for_newcomer()) == expected


def test_a_newcomer_gets_the_open_caption_of_each_channel() -> None:
    replay = ReplayBuffer()
    said = [(0, False), (1, False), (0, False), (0, True), (2, False), (1, False), (2, False)]
    for seq, (segment, is_final) in enumerate(said, start=1):
        replay.add(caption(seq, is_final=is_final, segment=segment))
    assert numbers(replay.for_newcomer()) == [4, 6, 7]


def test_old_finals_are_kept_within_a_size() -> None:
    replay = ReplayBuffer(max_recent=2, max_finals_bytes=50)
    for seq in range(1, 20):
        replay.add(caption(seq, is_final=True, size=10))
    assert numbers(replay.after(0)) == [13, 14, 15, 16, 17, 18, 19]
    assert replay.n_forgotten == 12


def test_an_empty_memory_has_nothing() -> None:
    replay = ReplayBuffer()
    assert (replay.last_seq, replay.after(0), replay.for_newcomer()) == (0, [], [])
