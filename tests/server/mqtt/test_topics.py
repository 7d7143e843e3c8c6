from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub

from audiokv.server.mqtt.topics import Topics, is_good_level
from audiokv.streaming.errors import ConfigError

TOPICS = Topics("captions/v1", "kitchen")


def test_the_topics_are_those_of_the_documentation() -> None:
    assert TOPICS.status == "captions/v1/kitchen/status"
    assert TOPICS.state("s-1") == "captions/v1/kitchen/s-1/state"
    assert TOPICS.partial("s-1") == "captions/v1/kitchen/s-1/partial"
    assert TOPICS.final("s-1") == "captions/v1/kitchen/s-1/final"
    assert TOPICS.from_device("mic", "audio") == "captions/v1/kitchen/devices/mic/audio"
    assert TOPICS.to_device("mic") == "captions/v1/kitchen/devices/mic/events"


@pytest.mark.parametrize(
    "prefix", ["", "/a", "a/", "a//b", "a/+", "#", "$SYS/a", "a\0", "a/b\n", "x" * 201]
)
def test_a_prefix_that_is_no_topic_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="mqtt_prefix") as caught:
        Topics(prefix, "kitchen")
    assert caught.value.code == "bad_mqtt_prefix"


@pytest.mark.parametrize("instance", ["", "a/b", "+", "a#", "\0", "x" * 201])
def test_an_instance_that_is_no_level_is_refused(instance: str) -> None:
    with pytest.raises(ConfigError, match="mqtt_instance") as caught:
        Topics("captions/v1", instance)
    assert caught.value.code == "bad_mqtt_instance"


# Printable and without what topics forbid, so that hardly anything is thrown away.
LEVELS = st.text(
    st.characters(categories=("L", "M", "N", "P", "S"), exclude_characters="/+#"),
    min_size=1,
    max_size=12,
).filter(is_good_level)


@given(LEVELS, LEVELS)
def test_what_is_made_is_found_again(name: str, verb: str) -> None:
    assert TOPICS.device_and_verb(TOPICS.from_device(name, verb)) == (name, verb)
    assert TOPICS.stream_of_state(TOPICS.state(name)) == name
    assert topic_matches_sub(TOPICS.from_device("+", verb), TOPICS.from_device(name, verb))
    assert topic_matches_sub(TOPICS.state("+"), TOPICS.state(name))
    for other in (TOPICS.final(name), TOPICS.partial(name), TOPICS.status):
        assert TOPICS.stream_of_state(other) is None
        assert TOPICS.device_and_verb(other) is None


@given(st.text(max_size=60))
def test_topics_of_others_are_not_taken(topic: str) -> None:
    assert TOPICS.device_and_verb(topic) is None
    assert TOPICS.stream_of_state(topic) is None


@pytest.mark.parametrize(
    "topic",
    [
        "captions/v1/kitchen/devices/mic",
        "captions/v1/kitchen/devices//audio",
        "captions/v1/kitchen/devices/mic/audio/x",
        "captions/v1/kitchen2/devices/mic/audio",
        "captions/v1/kitchen/devices/mic/",
    ],
)
def test_topics_that_are_almost_a_device_s_are_not_taken(topic: str) -> None:
    assert TOPICS.device_and_verb(topic) is None
