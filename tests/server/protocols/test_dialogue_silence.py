"""What happens on a line on which nothing comes, on a clock that stands in the test's hands."""

from __future__ import annotations

import asyncio
from uuid import UUID

from audiokv.server.protocols.dialogue import MISSING_AFTER_MS, PACKET_MS
from tests.server.doubles import ManualClock, silence, speech, until
from tests.server.running import running_server
from tests.server.telephony.calling import AudioSocketCaller, Follower, Heard

CALL = UUID(int=7)
WIDE = 0x12


async def heard_call(before_ms: int, silences_s: list[float]) -> Heard:
    """Speak, then be silent and speak again for each silence; return what was heard."""
    clock = ManualClock()
    async with running_server(audiosocket_port=0, clock=clock) as server:
        follower = Follower(server)
        caller = await AudioSocketCaller.dial(server, CALL)
        audio = speech(3, seconds=before_ms / 1000)
        await caller.speak(audio, WIDE)
        await until(lambda: server.registry.n_streams == 1)
        entry = next(iter(server.registry._by_name.values()))
        n_ms = before_ms
        await until(lambda: entry.stream.received_ms == n_ms)
        for silence_s in silences_s:
            await clock.advance(silence_s)
            n_ms = entry.stream.received_ms
            await caller.speak(audio[:640], WIDE)
            await until(lambda before=n_ms: entry.stream.received_ms >= before + 20)  # type: ignore[misc]
        await caller.hang_up()
        (heard,) = await follower.all_done(1)
    return heard


async def test_the_time_of_a_silent_line_goes_on_to_the_millisecond() -> None:
    heard = await heard_call(1_000, [4.7])
    assert heard.done is not None
    # The packet that ends the silence was spoken in its last 20 ms.
    assert heard.done.received_ms == 1_000 + 4_700


async def test_each_silence_counts_by_itself() -> None:
    heard = await heard_call(1_000, [3.3, 2.5, 9.9])
    assert heard.done is not None
    assert heard.done.received_ms == 1_000 + 3_300 + 2_500 + 9_900


async def test_a_stalled_network_is_no_silence() -> None:
    just_short_s = (MISSING_AFTER_MS + PACKET_MS - 1) / 1000
    heard = await heard_call(1_000, [just_short_s])
    assert heard.done is not None
    assert heard.done.received_ms == 1_020


async def test_the_last_words_before_a_silence_become_final_in_it() -> None:
    clock = ManualClock()
    async with running_server(audiosocket_port=0, clock=clock) as server:
        follower = Follower(server)
        caller = await AudioSocketCaller.dial(server, CALL)
        await caller.speak(speech(3, seconds=1), WIDE)
        await until(lambda: bool(follower.streams and follower.streams[0].captions))
        assert not any(c.is_final for c in follower.streams[0].captions)
        await clock.advance(4)
        await until(lambda: any(c.is_final for c in follower.streams[0].captions))
        await caller.hang_up()
        await follower.all_done(1)


async def test_a_caller_is_read_also_while_recognition_stands_still() -> None:
    from tests.server.doubles import ScriptedRecognizer  # noqa: PLC0415

    recognizer = ScriptedRecognizer()
    async with running_server(recognizer, audiosocket_port=0, max_backlog_ms=1_000) as server:
        follower = Follower(server)
        caller = await AudioSocketCaller.dial(server, CALL)
        recognizer.gate.clear()
        spoken = speech(3, seconds=2)
        await caller.speak(spoken, WIDE)
        # Far more than the sockets between would hold: were it not read, this would never end.
        for _ in range(60):
            await caller.speak(silence(seconds=10), WIDE)
        await until(lambda: server.registry.n_streams == 1)
        recognizer.gate.set()
        entry = next(iter(server.registry._by_name.values()))
        await until(lambda: entry.stream.lag_ms < 500)
        before_ms = entry.stream.received_ms
        for _ in range(700):
            await caller.speak(silence(seconds=0.02), WIDE)
            await asyncio.sleep(0)
        await until(lambda: entry.stream.received_ms > before_ms)
        await caller.hang_up()
        await follower.all_done(1)
