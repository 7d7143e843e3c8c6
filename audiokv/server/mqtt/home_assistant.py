"""Home Assistant finds the captions by itself: one retained message that describes the server.

The form is MQTT device discovery: ``<discovery prefix>/device/<object id>/config``. The state of a
sensor is limited to 255 characters there, so the whole caption goes into the attributes.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from audiokv.server.mqtt.stream_topics import json_payload
from audiokv.server.mqtt.unsent import Publication

if TYPE_CHECKING:
    from audiokv.server.mqtt.topics import Topics

DISCOVERY_PREFIX = "homeassistant"
MAX_STATE_CHARS = 255


def discovery(topics: Topics, *, model: str, version: str) -> Publication:
    """Return the retained message that makes Home Assistant show the server.

    Args:
        topics: The server's topics.
        model: Name of the recogniser.
        version: Version of AudioKV.
    """
    node = _node_id(topics)
    # The wildcard takes in every stream; Home Assistant subscribes to state topics as they stand.
    components = {
        "caption": _sensor(node, "caption", "Caption", topics.final("+")),
        "partial": {
            **_sensor(node, "partial", "Caption being spoken", topics.partial("+")),
            "enabled_by_default": False,  # several changes a second fill the recorder's database
        },
    }
    payload = {
        "device": {
            "identifiers": [node],
            "name": f"AudioKV {topics.instance}",
            "manufacturer": "AudioKV",
            "model": model,
            "sw_version": version,
        },
        "origin": {"name": "AudioKV", "sw_version": version},
        "availability_topic": topics.status,
        "payload_available": "online",
        "payload_not_available": "offline",
        "qos": 1,
        "components": components,
    }
    return Publication(
        f"{DISCOVERY_PREFIX}/device/{node}/config", json_payload(payload), is_retained=True
    )


def _node_id(topics: Topics) -> str:
    """Return a name of the server as discovery allows it, of its own even where letters change."""
    digest = hashlib.sha256(topics.base.encode()).hexdigest()
    return f"audiokv_{re.sub(r'[^A-Za-z0-9_-]', '_', topics.instance)}_{digest[:8]}"


def _sensor(node: str, key: str, name: str, topic: str) -> dict[str, object]:
    return {
        "platform": "sensor",
        "unique_id": f"{node}_{key}",
        "name": name,
        "icon": "mdi:closed-caption",
        "state_topic": topic,
        "value_template": f"{{{{ value_json.text[:{MAX_STATE_CHARS}] }}}}",
        "json_attributes_topic": topic,
        "json_attributes_template": (
            "{{ {'text': value_json.text, 'language': value_json.language, "
            "'speaker': value_json.speaker, 'start_ms': value_json.start_ms, "
            "'end_ms': value_json.end_ms} | tojson }}"
        ),
    }
