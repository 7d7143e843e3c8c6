from __future__ import annotations

import json
import re

import pytest

from audiokv.server.mqtt.home_assistant import discovery
from audiokv.server.mqtt.topics import Topics

TOPICS = Topics("captions/v1", "kitchen")


def test_home_assistant_is_told_where_captions_and_status_are() -> None:
    message = discovery(TOPICS, model="whisper", version="1.2.3")
    assert (message.qos, message.is_retained) == (1, True)
    assert re.fullmatch(r"homeassistant/device/[A-Za-z0-9_-]+/config", message.topic)
    told = json.loads(message.payload)
    assert told["device"]["model"] == "whisper"
    assert told["device"]["sw_version"] == told["origin"]["sw_version"] == "1.2.3"
    assert told["availability_topic"] == TOPICS.status
    assert (told["payload_available"], told["payload_not_available"]) == ("online", "offline")
    sensors = told["components"]
    assert sensors["caption"]["state_topic"] == "captions/v1/kitchen/+/final"
    assert sensors["partial"]["state_topic"] == "captions/v1/kitchen/+/partial"
    for sensor in sensors.values():
        assert sensor["platform"] == "sensor"
        assert sensor["json_attributes_topic"] == sensor["state_topic"]
        assert "[:255]" in sensor["value_template"]  # the longest state it keeps
    assert len({sensor["unique_id"] for sensor in sensors.values()}) == len(sensors)
    assert sensors["partial"]["enabled_by_default"] is False


@pytest.mark.parametrize("other", [Topics("captions/v1", "küche"), Topics("x", "kitchen")])
def test_two_servers_are_two_devices(other: Topics) -> None:
    mine = discovery(TOPICS, model="m", version="1")
    theirs = discovery(other, model="m", version="1")
    assert mine.topic != theirs.topic
    assert re.fullmatch(r"homeassistant/device/[A-Za-z0-9_-]+/config", theirs.topic)
    ids = [json.loads(m.payload)["device"]["identifiers"] for m in (mine, theirs)]
    assert ids[0] != ids[1]
