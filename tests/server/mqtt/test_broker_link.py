"""The link against a real mosquitto."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

from aiomqtt import Client

from audiokv.server.mqtt import broker_link
from audiokv.server.mqtt.broker_link import LONGEST_RETRY_S, BrokerLink
from audiokv.server.mqtt.unsent import AT_MOST_ONCE, Publication, UnsentQueue
from tests.server.doubles import ManualClock, until
from tests.server.mqtt.linking import Talker, final, linked
from tests.server.mqtt.mosquitto import (
    HOST,
    Mosquitto,
    free_port,
    passage_to,
    running_broker,
    subscribed,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_what_is_put_arrives_in_order_between_greeting_and_farewell(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, subscribed(broker) as subscriber:
        async with linked(broker.port) as link:
            for n in range(100):
                link.put(final(n))
            await subscriber.wait_for("t/final", 100)
        await subscriber.wait_for("t/status", 2)
        expected = [b"online", *(str(n).encode() for n in range(100)), b"bye"]
        assert [message.payload for message in subscriber.heard] == expected


async def test_messages_carry_their_properties(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, subscribed(broker) as subscriber:
        async with linked(broker.port) as link:
            await link.connected.wait()
            link.put(Publication("a", b"{}", expiry_s=3_600))
            link.put(Publication("b", b"x", content_type="text/plain", is_retained=True))
            link.put_partial(Publication("c", b"{}", qos=AT_MOST_ONCE, expiry_s=5))
            await subscriber.wait_for("+", 3)
        by_topic = {message.topic.value: message for message in subscriber.heard}
        assert [(t, by_topic[t].qos) for t in "abc"] == [("a", 1), ("b", 1), ("c", 0)]
        expected = {
            "a": {"MessageExpiryInterval": 3_600, "ContentType": "application/json"},
            "b": {"ContentType": "text/plain"},
            "c": {"MessageExpiryInterval": 5, "ContentType": "application/json"},
        }
        for topic, values in expected.items():
            properties = by_topic[topic].properties
            assert properties is not None
            assert properties.json() == values  # type: ignore[no-untyped-call]  # the library's
        async with subscribed(broker, "b") as later:
            assert await later.wait_for("b") == [b"x"]


# Absence of the broker


async def test_finals_wait_for_a_broker_that_is_not_there_yet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Mosquitto(tmp_path)
    async with linked(broker.port) as link:
        for n in range(40):
            link.put(final(n))
        await until(lambda: "127.0.0.1" in caplog.text)
        link.put_partial(Publication("t/partial", b"old"))
        await broker.start()
        async with subscribed(broker) as subscriber:
            heard = await subscriber.wait_for("t/final", 40)
            assert heard == [str(n).encode() for n in range(40)]
            assert not subscriber.payloads("t/partial")
    await broker.stop()
    assert f"The connection to the broker mqtt://127.0.0.1:{broker.port} failed" in caplog.text
    assert "refused" in caplog.text


async def test_a_broker_away_for_long_costs_no_final(tmp_path: Path) -> None:
    clock = ManualClock()
    talker = Talker()
    async with running_broker(tmp_path) as broker, subscribed(broker) as subscriber:
        async with linked(broker.port, talker, clock=clock) as link:
            link.put(final(0))
            await subscriber.wait_for("t/final")
            await until(lambda: not len(link.unsent))
            await subscriber.acknowledged()
            await broker.stop()
            await until(lambda: not link.is_connected)
            for n in range(1, 200):
                await clock.advance(0.1)
                link.put(final(n))
            await until(lambda: clock.n_waiting == 1)  # between two attempts
            link.put_partial(Publication("t/partial", b"old"))
            await broker.start()
            await subscriber.listening()
            while not link.is_connected:
                await clock.advance(LONGEST_RETRY_S)
                await asyncio.sleep(0.01)  # connecting takes a thread and a socket
            heard = await subscriber.wait_for("t/final", 200)
        assert heard == [str(n).encode() for n in range(200)]
        assert not subscriber.payloads("t/partial")
        assert talker.n_greetings == 2


async def test_a_lost_acknowledgement_repeats_a_final_but_keeps_the_order(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as broker,
        passage_to(broker) as passage,
        subscribed(broker) as subscriber,
        linked(passage.port) as link,
    ):
        await link.connected.wait()
        passage.is_answering = False
        for n in range(3):
            link.put(final(n))
        await subscriber.wait_for("t/final", 3)
        link.put(final(3))
        passage.cut()
        passage.is_answering = True
        await until(lambda: not link.is_connected)
        heard = await subscriber.wait_for("t/final", 7)
        assert heard == [b"0", b"1", b"2", b"0", b"1", b"2", b"3"]


async def test_a_broker_that_hangs_is_left_and_met_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_link, "OPERATION_TIMEOUT_S", 0.3)
    async with running_broker(tmp_path) as broker, subscribed(broker) as subscriber:
        async with linked(broker.port) as link:
            await link.connected.wait()
            broker.freeze()
            for n in range(20):
                link.put(final(n))
            link.put_partial(Publication("t/partial", b"old", "another stream"))
            await until(lambda: not link.is_connected)
            broker.thaw()
            await until(lambda: not len(link.unsent))
        await subscriber.wait_for("t/status", 3)
        # Acknowledged by the broker is not yet heard by the subscriber.
        await until(lambda: b"19" in subscriber.payloads("t/final"))
        assert not subscriber.payloads("t/partial")
        heard = subscriber.payloads("t/final")
        assert list(dict.fromkeys(heard)) == [str(n).encode() for n in range(20)]


async def test_closing_without_a_broker_ends_and_says_what_was_not_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with linked(free_port()) as link:
        link.put(final(1))
        link.put(final(2))
        await until(lambda: "failed" in caplog.text)
    assert "2 messages never reached the broker" in caplog.text


async def test_a_full_queue_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with linked(free_port(), unsent=UnsentQueue(max_messages=2)) as link:
        for n in range(5):
            link.put(final(n))
        await until(lambda: "dropped" in caplog.text)
    assert "3 messages for the broker were dropped" in caplog.text


async def test_a_failure_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    async with linked(free_port(), clock=clock):
        for _ in range(4):
            await until(lambda: clock.n_waiting == 1)
            await clock.advance(LONGEST_RETRY_S)
    assert caplog.text.count("The connection to the broker") == 1


async def test_attempts_become_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    tried: list[float] = []
    known = BrokerLink._client

    def client(link: BrokerLink) -> Client:
        tried.append(clock.now_s())
        return known(link)

    monkeypatch.setattr(BrokerLink, "_client", client)
    async with linked(free_port(), clock=clock):
        for n_tries in range(1, 9):
            await until(lambda n=n_tries: len(tried) == n and clock.n_waiting == 1)  # type: ignore[misc]  # a default
            while len(tried) == n_tries:
                await clock.advance(0.5)
    assert [late - early for early, late in pairwise(tried)][:7] == [0.5, 1, 2, 4, 8, 10, 10]


# Last will, logins, and others


async def test_the_will_tells_of_a_cut_connection_and_the_greeting_of_the_next(
    tmp_path: Path,
) -> None:
    async with (
        running_broker(tmp_path) as broker,
        passage_to(broker) as passage,
        subscribed(broker) as subscriber,
        linked(passage.port) as link,
    ):
        await link.connected.wait()
        passage.cut()
        heard = await subscriber.wait_for("t/status", 3)
        assert heard == [b"online", b"offline", b"online"]


async def test_a_half_open_connection_is_replaced_before_its_will_can_lie(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as broker,
        passage_to(broker) as passage,
        subscribed(broker) as subscriber,
        linked(passage.port) as link,
    ):
        await link.connected.wait()
        passage.cut_side_of_client()  # the broker does not notice
        await until(lambda: passage.n_connections == 2)
        await link.connected.wait()
        link.put(final(1))
        await subscriber.wait_for("t/final")
        assert subscriber.payloads("t/status")[-1] == b"online"


async def test_two_servers_of_one_name_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path) as broker, linked(broker.port) as first:
        await first.connected.wait()
        async with linked(broker.port):
            await until(lambda: "mqtt_instance" in caplog.text)
    assert f"The broker {broker.url} closed the connection of 'me'." in caplog.text


async def test_messages_come_in_and_own_ones_do_not_come_back(tmp_path: Path) -> None:
    talker = Talker(("t/#", "in/+"))
    async with running_broker(tmp_path) as broker:
        async with linked(broker.port) as other:
            other.put(Publication("in/old", b"kept", is_retained=True))
            await other.connected.wait()
            await until(lambda: not len(other.unsent))
        async with linked(broker.port, talker) as link:
            await link.connected.wait()
            link.put(final(1))
            async with Client(HOST, broker.port) as device:
                await device.publish("in/new", b"\x00\xff", qos=1)
                await device.publish("in/empty", None, qos=1)
            await until(lambda: len(talker.heard) == 4)
    assert talker.heard == [
        ("t/status", b"bye", True),
        ("in/old", b"kept", True),
        ("in/new", b"\x00\xff", False),
        ("in/empty", b"", False),
    ]
