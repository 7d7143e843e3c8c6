"""Errors that reach the person who caused them."""


class AudioKVError(Exception):
    """An error with a stable code, a message that names the input, and a remedy.

    Args:
        code: Stable lower-case identifier, part of the wire protocol.
        message: What is wrong, naming the offending input.
        remedy: What the caller can do about it.
    """

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}" if remedy else message)
        self.code = code
        self.message = message
        self.remedy = remedy


class MessageError(AudioKVError):
    """A message of the native protocol that cannot be accepted (close code 4400)."""


class AudioFormatError(AudioKVError):
    """Audio that cannot be decoded or was declared wrongly (close code 1003)."""


class ConfigError(AudioKVError):
    """A setting that is unknown or has an impossible value."""


class WeightsError(AudioKVError):
    """Model weights that are missing, incomplete or corrupt."""
