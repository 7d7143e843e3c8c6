"""The whole server against a real mosquitto."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiomqtt import Client

from audiokv.server.app import open_server
from audiokv.server.config import ServerConfig
from audiokv.server.mqtt import broker_link
from audiokv.streaming.captions import Caption
from audiokv.streaming.errors import ConfigError
from audiokv.streaming.messages import Finalize, Stop, decode_server
from tests.server.doubles import (
    NEVER_MERGE_MS,
    LoudnessDetector,
    ScriptedRecognizer,
    captions_in,
    speech,
    undisturbed,
)
from tests.server.mqtt.mosquitto import HOST, free_port, running_broker, subscribed
from tests.server.running import Source, complete, running_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from audiokv.server.app import CaptionServer
    from tests.server.mqtt.mosquitto import Mosquitto, Subscriber

BASE = "captions/v1/audiokv"
BYTES_PER_SECOND = 32_000
AWAY_S = 10


@asynccontextmanager
async def on_air(
    folder: Path, **settings: Any
) -> AsyncIterator[tuple[Mosquitto, Subscriber, CaptionServer]]:
    """Run a broker, a subscriber to everything, and a server that publishes."""
    async with (
        running_broker(folder) as broker,
        subscribed(broker) as subscriber,
        running_server(mqtt=broker.url, **settings) as server,
    ):
        await subscriber.wait_for("#")
        yield broker, subscriber, server


def heard_captions(subscriber: Subscriber, topic: str) -> list[Caption]:
    return captions_in([decode_server(body.decode()) for body in subscriber.payloads(topic)])


def states(subscriber: Subscriber, stream: str = "+") -> list[object]:
    bodies = subscriber.payloads(f"{BASE}/{stream}/state")
    return [json.loads(body)["state"] if body else None for body in bodies]


# Captions


async def test_the_captions_of_a_live_stream_arrive_complete_and_in_order(tmp_path: Path) -> None:
    audio = speech(1, seconds=8)
    async with on_air(tmp_path) as (_, subscriber, server):
        source = await Source.open(server)
        stream = (await source.start()).stream
        await complete(source, audio)
        await subscriber.until(lambda: states(subscriber)[-1:] == [None])
        expected = captions_in(undisturbed(audio))
        finals = [caption for caption in expected if caption.is_final]
        assert len(finals) == 4
        assert heard_captions(subscriber, f"{BASE}/{stream}/final") == finals
        partials = heard_captions(subscriber, f"{BASE}/{stream}/partial")
        assert partials
        left = iter(expected)
        assert all(partial in left for partial in partials)  # in the order they were said
        assert states(subscriber) == ["live", "ended", None]
        after_final: set[int] = set()
        for message in subscriber.heard:
            if message.topic.matches(f"{BASE}/+/final"):
                after_final.add(json.loads(bytes(message.payload))["segment"])
            if message.topic.matches(f"{BASE}/+/partial"):
                segment = json.loads(bytes(message.payload))["segment"]
                assert segment not in after_final


async def test_streams_do_not_mix(tmp_path: Path) -> None:
    audios = {}
    async with on_air(tmp_path) as (_, subscriber, server):
        sources = [await Source.open(server) for _ in range(3)]
        for seed, source in enumerate(sources):
            audios[(await source.start()).stream] = speech(seed, seconds=4)
        await asyncio.gather(*map(complete, sources, audios.values()))
        await subscriber.until(lambda: states(subscriber).count(None) == 3)
        for stream, audio in audios.items():
            expected = [c for c in captions_in(undisturbed(audio)) if c.is_final]
            assert heard_captions(subscriber, f"{BASE}/{stream}/final") == expected


async def test_a_broker_stopped_in_mid_stream_costs_no_final(tmp_path: Path) -> None:
    audio = speech(1, seconds=12)
    async with on_air(tmp_path, shutdown_timeout_s=20) as (broker, subscriber, server):
        source = await Source.open(server)
        stream = (await source.start()).stream
        await source.send_audio(audio[: 32_000 * 3])
        await subscriber.wait_for(f"{BASE}/{stream}/final")
        await source.wait_for(Caption, lambda caption: caption.segment == 1)
        await subscriber.acknowledged()
        await broker.stop()
        await source.send_audio(audio[32_000 * 3 :])
        await source.send(Stop())
        await source.rest()
        await broker.start()
        await subscriber.until(lambda: states(subscriber, stream)[-1:] == [None])
        expected = [c for c in captions_in(undisturbed(audio)) if c.is_final]
        assert len(expected) == 6
        heard = heard_captions(subscriber, f"{BASE}/{stream}/final")
        assert list(dict.fromkeys(heard)) == expected  # a repeated one has the seq it had
        assert len(heard) <= len(expected) + 1
        assert states(subscriber, stream)[-2:] == ["ended", None]


@pytest.mark.slow
async def test_a_broker_away_for_ten_seconds_of_talk_costs_no_final(tmp_path: Path) -> None:
    audio = speech(2, seconds=AWAY_S + 4)
    before, meanwhile = audio[: 2 * BYTES_PER_SECOND], audio[2 * BYTES_PER_SECOND :]
    async with (
        asyncio.timeout(6 * AWAY_S),
        running_broker(tmp_path) as broker,
        subscribed(broker) as subscriber,
        open_server(
            ServerConfig(port=0, mqtt=broker.url, max_lag_ms=NEVER_MERGE_MS, shutdown_timeout_s=20),
            recognizer=ScriptedRecognizer(),
            open_detector=LoudnessDetector,
            pages={},
        ) as server,
    ):
        source = await Source.open(server)
        stream = (await source.start()).stream
        await source.send_audio(before)
        await source.wait_for(Caption, lambda caption: caption.is_final)
        await broker.stop()
        for second in range(AWAY_S):
            at = second * BYTES_PER_SECOND
            await source.send_audio(meanwhile[at : at + BYTES_PER_SECOND])
            await asyncio.sleep(1)  # the time is what is tested: the server tries ever more rarely
        await broker.start()
        await source.send_audio(meanwhile[AWAY_S * BYTES_PER_SECOND :])
        await source.send(Stop())
        await source.rest()
        await subscriber.until(lambda: states(subscriber, stream)[-1:] == [None])
        expected = [c for c in captions_in(undisturbed(audio)) if c.is_final]
        assert len(expected) >= 6
        heard = heard_captions(subscriber, f"{BASE}/{stream}/final")
        assert list(dict.fromkeys(heard)) == expected


async def test_captions_go_on_without_a_broker() -> None:
    audio = speech(1, seconds=4)
    async with running_server(mqtt=f"mqtt://{HOST}:{free_port()}") as server:
        source = await Source.open(server)
        await source.start()
        await complete(source, audio)
        assert source.captions == captions_in(undisturbed(audio))


# Status and state


async def test_the_status_goes_offline_when_the_server_is_killed(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, subscribed(broker) as subscriber:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.server.mqtt.scripted_server", broker.url
        )
        try:
            await subscriber.until(lambda: states(subscriber) == ["live"])
        finally:
            process.kill()
            await process.wait()
        assert await subscriber.wait_for(f"{BASE}/status", 2) == [b"online", b"offline"]
        async with subscribed(broker, f"{BASE}/status") as later:
            assert await later.wait_for(f"{BASE}/status") == [b"offline"]
        # The next life of the server clears what the killed one left.
        async with running_server(mqtt=broker.url):
            await subscriber.until(lambda: states(subscriber) == ["live", None])
        async with subscribed(broker, f"{BASE}/+/state") as later:
            await later.acknowledged()
            assert later.heard == []


async def test_a_server_that_ends_says_so(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, subscribed(broker) as subscriber:
        async with running_server(mqtt=broker.url) as server:
            source = await Source.open(server)
            await source.start()
            await subscriber.until(lambda: states(subscriber) == ["live"])
        await subscriber.wait_for(f"{BASE}/status", 2)
        assert states(subscriber) == ["live", "stopped", None]
        assert subscriber.payloads(f"{BASE}/status") == [b"online", b"offline"]


async def test_the_server_ends_in_time_although_the_broker_hangs(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, subscribed(broker) as subscriber:
        async with running_server(mqtt=broker.url, shutdown_timeout_s=0.2) as server:
            await subscriber.wait_for(f"{BASE}/status")
            source = await Source.open(server)
            await source.start()
            broker.freeze()
            started_s = asyncio.get_running_loop().time()
        took_s = asyncio.get_running_loop().time() - started_s
        assert took_s < broker_link.OPERATION_TIMEOUT_S / 2


async def test_a_restarted_broker_learns_what_is_live(tmp_path: Path) -> None:
    async with on_air(tmp_path) as (broker, subscriber, server):
        source = await Source.open(server)
        stream = (await source.start()).stream
        await subscriber.until(lambda: states(subscriber) == ["live"])
        await broker.stop()
        (tmp_path / "mosquitto.db").unlink()  # it forgot everything
        await broker.start()
        async with subscribed(broker, f"{BASE}/{stream}/state") as later:
            assert json.loads((await later.wait_for("#"))[0])["state"] == "live"


# Settings


async def test_prefix_and_instance_are_in_every_topic(tmp_path: Path) -> None:
    settings = {"mqtt_prefix": "a/b", "mqtt_instance": "hall", "mqtt_audio": True}
    async with on_air(tmp_path, **settings) as (_, subscriber, server):
        source = await Source.open(server)
        stream = (await source.start()).stream
        await complete(source, speech(1, seconds=2))
        await subscriber.wait_for("a/b/hall/+/final")
        assert subscriber.payloads("a/b/hall/status") == [b"online"]
        assert all(message.topic.matches("a/b/hall/#") for message in subscriber.heard)
        assert subscriber.payloads(f"a/b/hall/{stream}/final")


@pytest.mark.parametrize("is_on", [True, False])
async def test_home_assistant_and_hermes_are_options(tmp_path: Path, *, is_on: bool) -> None:
    settings = {"mqtt_home_assistant": is_on, "mqtt_hermes": is_on}
    async with on_air(tmp_path, **settings) as (_, subscriber, server):
        source = await Source.open(server)
        await source.start()
        await complete(source, speech(1, seconds=2))
        await subscriber.until(lambda: states(subscriber)[-1:] == [None])
        assert len(subscriber.payloads("homeassistant/device/+/config")) == is_on
        assert len(subscriber.payloads("hermes/asr/textCaptured")) == is_on


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"mqtt": "http://broker"}, "bad_mqtt_url"),
        ({"mqtt": "mqtt://b", "mqtt_prefix": "a//b"}, "bad_mqtt_prefix"),
        ({"mqtt": "mqtt://b", "mqtt_instance": "a/b"}, "bad_mqtt_instance"),
    ],
)
async def test_settings_that_cannot_work_end_the_server_at_once(
    settings: dict[str, Any], code: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        async with running_server(**settings):
            pass
    assert caught.value.code == code


# Devices


async def test_a_device_s_audio_is_captioned_by_way_of_the_broker(tmp_path: Path) -> None:
    audio = speech(1, seconds=4)
    device = f"{BASE}/devices/mic"
    async with on_air(tmp_path, mqtt_audio=True) as (broker, subscriber, _):
        async with Client(HOST, broker.port) as client:
            await client.publish(f"{device}/start", qos=1)
            (ready,) = await subscriber.wait_for(f"{device}/events")
            for start in range(0, len(audio), 3_200):
                await client.publish(f"{device}/audio", audio[start : start + 3_200], qos=1)
            await client.publish(f"{device}/stop", qos=1)
        await subscriber.wait_for(f"{device}/events", 2)
        captions = json.loads(ready)["captions"]
        await subscriber.until(lambda: states(subscriber)[-1:] == [None])
        expected = [c for c in captions_in(undisturbed(audio)) if c.is_final]
        assert heard_captions(subscriber, f"{captions}/final") == expected
        (live, *_) = subscriber.payloads(f"{captions}/state")
        assert json.loads(live)["metadata"] == {"device": "mic"}


async def test_devices_are_not_heard_unless_asked_for_and_a_kept_start_never(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as broker, subscribed(broker) as subscriber:
        async with Client(HOST, broker.port) as client:
            start = f"{BASE}/devices/mic/start"
            await client.publish(start, b'{"type":"start"', qos=1, retain=True)
            async with running_server(mqtt=broker.url, mqtt_audio=True):
                await subscriber.wait_for(f"{BASE}/status")
                await client.publish(start, b"{", qos=1)
                (error,) = await subscriber.wait_for(f"{BASE}/devices/mic/events")
                assert json.loads(error)["code"] == "bad_json"
            async with running_server(mqtt=broker.url) as server:
                await subscriber.wait_for(f"{BASE}/status", 3)
                await client.publish(start, qos=1)
                source = await Source.open(server)
                await source.start()
                await source.send(Finalize())
                await subscriber.until(lambda: "live" in states(subscriber))
                assert server.registry.n_streams == 1
        assert len(subscriber.payloads(f"{BASE}/devices/mic/events")) == 1
