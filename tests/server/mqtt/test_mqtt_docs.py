"""docs/mqtt.md against the code."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

from audiokv.server.config import ServerConfig
from audiokv.server.mqtt.broker_link import FIRST_RETRY_S, LONGEST_RETRY_S
from audiokv.server.mqtt.device import DeviceRoute
from audiokv.server.mqtt.stream_topics import FINAL_EXPIRY_S, PARTIAL_EXPIRY_S
from audiokv.server.mqtt.topics import Topics
from audiokv.server.mqtt.unsent import MAX_BYTES, MAX_MESSAGES

TEXT = (Path(__file__).parents[3] / "docs" / "mqtt.md").read_text("utf-8")
TOPICS = Topics(ServerConfig().mqtt_prefix, ServerConfig().mqtt_instance)


def test_every_setting_is_explained() -> None:
    explained = re.findall(r"^\| (`mqtt.*?) \|", TEXT, re.MULTILINE)
    named = {name for cell in explained for name in re.findall(r"`(\w+)`", cell)}
    assert named == {s.name for s in fields(ServerConfig) if s.name.startswith("mqtt")}


def test_the_topics_are_those_of_the_code() -> None:
    assert f"`{TOPICS.base}`, that is prefix and instance" in TEXT
    written = set(re.findall(r"^\| `…/([\w/]+)` \|", TEXT, re.MULTILINE))
    made = [TOPICS.status, TOPICS.to_device("DEVICE")]
    made += [name("STREAM") for name in (TOPICS.state, TOPICS.partial, TOPICS.final)]
    made += [topic.replace("+", "DEVICE") for topic in DeviceRoute(TOPICS).subscriptions]
    assert written == {topic.removeprefix(f"{TOPICS.base}/") for topic in made}


def test_the_examples_are_json() -> None:
    blocks = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    examples = [json.loads(line) for block in blocks for line in block.splitlines()]
    assert [e.get("state") or e.get("type") for e in examples] == ["live", "ended", "ready"]


def test_the_figures_are_those_of_the_code() -> None:
    assert f"| no | {PARTIAL_EXPIRY_S} s |" in TEXT
    assert f"| no | {FINAL_EXPIRY_S // 3_600} h |" in TEXT
    assert f"{MAX_MESSAGES:,} messages or {MAX_BYTES // 1_000_000} MB" in TEXT
    assert f"after {FIRST_RETRY_S:g} s" in TEXT
    assert f"every {LONGEST_RETRY_S:g} s" in TEXT
