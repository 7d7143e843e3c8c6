from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.telephony.tracks import MAX_APART_MS, TrackWeaver


def test_samples_of_both_legs_alternate() -> None:
    weaver = TrackWeaver(8_000, b"\0\0")
    assert weaver.push(0, b"aabb") == b""
    assert weaver.push(1, b"1122") == b"aa11bb22"


def test_the_order_of_the_legs_is_that_of_the_channels() -> None:
    weaver = TrackWeaver(8_000, b"\xff")
    assert weaver.push(1, b"12") == b""
    assert weaver.push(0, b"ab") == b"a1b2"


def test_a_leg_that_sends_nothing_is_silence() -> None:
    weaver = TrackWeaver(1_000, b"\xff")
    woven = weaver.push(0, b"x" * (MAX_APART_MS + 3))
    assert woven == b"x\xff" * 3
    assert weaver.flush() == b"x\xff" * MAX_APART_MS


def test_what_comes_late_of_a_leg_filled_up_is_left_out() -> None:
    weaver = TrackWeaver(1_000, b"\xff")
    weaver.push(0, b"x" * (MAX_APART_MS + 3))
    assert weaver.push(1, b"abcde") == b"xdxe"


def test_silence_stands_in_for_lost_samples() -> None:
    weaver = TrackWeaver(8_000, b"\0\0")
    weaver.push(0, b"aabbcc")
    assert weaver.leap(1, 2) == (b"aa\0\0bb\0\0", 0)
    assert weaver.push(1, b"33") == b"cc33"


def test_what_was_stood_in_for_a_silent_leg_counts_for_its_gap() -> None:
    weaver = TrackWeaver(1_000, b"\xff")
    for _ in range(4):
        weaver.push(0, b"x" * 500)  # the other leg is filled up to 1,500 samples
    assert weaver.leap(1, 2_000) == (b"x\xff" * 500, 0)
    assert weaver.push(1, b"abc") == b""
    assert weaver.push(0, b"xyz") == b"xaybzc"


def test_over_a_pause_of_both_legs_the_stream_leaps() -> None:
    weaver = TrackWeaver(1_000, b"\xff")
    weaver.push(0, b"abc")
    weaver.push(1, b"1")
    assert weaver.leap(0, 60_000) == (b"b\xffc\xff", 60_000)
    assert weaver.push(0, b"de") == b""
    # The other leg was two samples behind, which are stood in for.
    assert weaver.leap(1, 60_002) == (b"", 0)
    assert weaver.push(1, b"23") == b"d2e3"


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.booleans()), max_size=60),
    st.integers(1, 2),
)
def test_each_leg_keeps_its_samples_at_their_places(
    pushes: list[tuple[int, int, bool]], sample_bytes: int
) -> None:
    silence = b"\xff" * sample_bytes
    weaver = TrackWeaver(20, silence)  # legs may be 10 samples apart
    sent: tuple[list[int], list[int]] = ([], [])
    woven = b""
    for track, n_samples, is_gap in pushes:
        if is_gap:
            sent[track].extend([0xFF] * n_samples)
            complete, n_leapt = weaver.leap(track, n_samples)
            woven += complete + 2 * silence * n_leapt
        else:
            samples = [(len(sent[track]) + n) % 250 for n in range(n_samples)]
            sent[track].extend(samples)
            woven += weaver.push(track, b"".join(bytes([s]) * sample_bytes for s in samples))
    woven += weaver.flush()
    assert len(woven) % (2 * sample_bytes) == 0
    assert len(woven) // (2 * sample_bytes) == max(len(leg) for leg in sent)
    for track, leg in enumerate(sent):
        out = [woven[at] for at in range(track * sample_bytes, len(woven), 2 * sample_bytes)]
        for at, value in enumerate(out):
            true = leg[at] if at < len(leg) else 0xFF
            assert value in (true, 0xFF)
