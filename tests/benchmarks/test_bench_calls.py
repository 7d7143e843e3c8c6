from __future__ import annotations

from benchmarks.calls import PROTOCOLS, expected, measure, packets_of, parse_arguments


def test_every_call_has_packets_of_its_own() -> None:
    for protocol, n_bytes in (("audiosocket", 320), ("twilio", 160)):
        calls = [packets_of(call, 0.1, PROTOCOLS[protocol]) for call in range(3)]
        assert all(len(call) == 5 for call in calls)
        assert {len(packet) for call in calls for packet in call} == {n_bytes}
        assert len({b"".join(call) for call in calls}) == 3


def test_what_a_call_says_follows_from_its_samples() -> None:
    fmt = PROTOCOLS["audiosocket"]
    assert expected(1, 1.0, fmt)
    assert expected(1, 1.0, fmt) != expected(2, 1.0, fmt)


async def test_calls_are_heard_right_and_their_cost_is_told() -> None:
    for protocol in PROTOCOLS:
        row = await measure(protocol, 2, 1.0)
        assert row["n_calls_heard_right"] == 2
        assert row["n_packets"] == 100
        cost = row["event_loop_us_per_packet"]
        assert isinstance(cost, float)
        assert cost > 0


def test_twenty_calls_are_the_default() -> None:
    assert parse_arguments([]).calls == 20
