"""Names of the topics: ``PREFIX/INSTANCE/...``."""

from __future__ import annotations

from dataclasses import dataclass

from audiokv.streaming.errors import ConfigError

MAX_TOPIC_CHARS = 200
_FORBIDDEN = frozenset("+#\0")


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one server.

    Attributes:
        prefix: Levels in front of every topic, for example ``captions/v1``.
        instance: The server's own level; no two servers at one broker may share it.

    Raises:
        ConfigError: Prefix or instance cannot be part of a topic.
    """

    prefix: str
    instance: str

    def __post_init__(self) -> None:
        """Refuse names that cannot be published to."""
        if not _is_good_prefix(self.prefix):
            raise ConfigError(
                "bad_mqtt_prefix",
                f"mqtt_prefix is {self.prefix!r}.",
                "Use levels separated by single slashes, without + # or a $ at the start, "
                "such as captions/v1.",
            )
        if not is_good_level(self.instance):
            raise ConfigError(
                "bad_mqtt_instance",
                f"mqtt_instance is {self.instance!r}.",
                "Use a short name without + # or a slash, such as kitchen.",
            )

    @property
    def base(self) -> str:
        """What every topic of the server begins with, without the last slash."""
        return f"{self.prefix}/{self.instance}"

    @property
    def status(self) -> str:
        """``online`` or ``offline``, retained."""
        return f"{self.base}/status"

    def state(self, stream: str) -> str:
        """Whether a stream is live, retained while it is."""
        return f"{self.base}/{stream}/state"

    def partial(self, stream: str) -> str:
        """Captions of a stream that will still change."""
        return f"{self.base}/{stream}/partial"

    def final(self, stream: str) -> str:
        """Captions of a stream that never change again."""
        return f"{self.base}/{stream}/final"

    def stream_of_state(self, topic: str) -> str | None:
        """Return the stream whose state a topic holds, or None when it is another topic."""
        levels = topic.removeprefix(f"{self.base}/").split("/")
        is_state = topic.startswith(f"{self.base}/") and levels[1:] == ["state"]
        return levels[0] if is_state else None

    def to_device(self, device: str) -> str:
        """What the server tells a device about its stream."""
        return f"{self.base}/devices/{device}/events"

    def from_device(self, device: str, verb: str) -> str:
        """Where a device sends ``start``, ``audio`` or ``stop``."""
        return f"{self.base}/devices/{device}/{verb}"

    def device_and_verb(self, topic: str) -> tuple[str, str] | None:
        """Return what a topic made by `from_device` names, or None when it is another topic."""
        start = f"{self.base}/devices/"
        levels = topic.removeprefix(start).split("/")
        if not topic.startswith(start) or len(levels) != 2 or not all(levels):  # noqa: PLR2004  pair
            return None
        return levels[0], levels[1]


def is_good_level(name: str) -> bool:
    """Return whether a name can be one level of a topic."""
    return (
        0 < len(name) <= MAX_TOPIC_CHARS
        and "/" not in name
        and not _FORBIDDEN & set(name)
        and name.isprintable()
    )


def _is_good_prefix(prefix: str) -> bool:
    return (
        len(prefix) <= MAX_TOPIC_CHARS
        and not prefix.startswith("$")
        and all(is_good_level(level) for level in prefix.split("/"))
    )
