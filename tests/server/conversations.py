"""A dialect in conversation with a client that sends what no client would, and what it may do."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from audiokv.server.protocols.dialect import (
    Audio,
    Begin,
    Change,
    Finalize,
    Finalized,
    Gap,
    Opening,
    Reply,
    Stop,
    Taken,
)
from audiokv.server.refusals import as_refusal
from audiokv.server.telephony.media_timeline import MAX_GAP_MS
from audiokv.streaming.captions import SpeechChange
from audiokv.streaming.errors import MessageError
from audiokv.streaming.messages import Done
from tests.server.mutations import Mutator
from tests.server.protocols.events import READY, caption, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from audiokv.server.protocols.dialect import Command, Dialect, Event

    Take = Callable[[Iterator[bytes]], int]

MAX_SHOWN_CHARS = 2_000
_SAID: tuple[Event, ...] = (
    SpeechChange(is_on=True, at_ms=0),
    *(caption("one two", is_final=False), progress(5_000), caption("one two")),
    *(SpeechChange(is_on=False, at_ms=600), progress(9_000)),
)


class Conversation:
    """One connection of a dialect, checking that what it asks for and says is in order.

    Args:
        dialect: The protocol's state.
        opening: How the connection was opened.
    """

    def __init__(self, dialect: Dialect, opening: Opening) -> None:
        self._dialect = dialect
        self._is_begun = False
        self._obey(dialect.open(opening))

    def hear(self, message: str | bytes) -> bool:
        """Let the dialect hear a message; return whether its connection goes on."""
        try:
            commands = self._dialect.hear(message)
        except MessageError as error:
            _assert_sendable(self._dialect.refuse(as_refusal(error)).messages)
            return False
        self._obey(commands)
        return True

    def end(self) -> None:
        """Let time pass, tell what a stream tells, and end."""
        self._obey(self._dialect.miss(2_000))
        _assert_sendable(self._dialect.tick())
        if self._is_begun:
            for event in (*_SAID, Done(9_000, 1)):
                _assert_sendable(self._dialect.say(event))
            _assert_sendable(self._dialect.done().messages)

    def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Begin():
                    assert not self._is_begun
                    self._is_begun = True
                    json.dumps(dict(command.metadata)).encode()
                    _assert_sendable([command.prompt, command.language or "", command.profile])
                    _assert_sendable(self._dialect.say(READY))
                case Reply(message):
                    _assert_sendable([message])
                case Gap(duration_ms):
                    assert self._is_begun
                    assert 0 < duration_ms <= MAX_GAP_MS
                case Audio():
                    assert self._is_begun
                    _assert_sendable(self._dialect.say(Taken()))
                case Finalize():
                    assert self._is_begun
                    _assert_sendable(self._dialect.say(Finalized()))
                case Change():
                    assert self._is_begun
                case Stop():
                    pass


def _assert_sendable(messages: Iterable[str | bytes]) -> None:
    for message in messages:
        if isinstance(message, str):
            message.encode()


@contextmanager
def noted(inputs: list[str | bytes]) -> Iterator[None]:
    """Add inputs to whatever goes wrong with them."""
    try:
        yield
    except Exception as error:
        for message in inputs:
            error.add_note(f"heard {repr(message)[:MAX_SHOWN_CHARS]}")
        raise


def converse(make: Callable[[], Dialect], seeds: tuple[str | bytes, ...], opening: Opening) -> Take:
    """Return what lets connections of a dialect hear inputs, several each.

    Half of them begin as the protocol does, with the first of the valid messages.

    Args:
        make: Returns the state of a connection.
        seeds: Valid messages.
        opening: How the connections are opened.
    """
    mutator = Mutator(seeds)

    def take(recipes: Iterator[bytes]) -> int:
        n_taken = 0
        conversation: Conversation | None = None
        heard: list[str | bytes] = []
        for recipe in recipes:
            if conversation is None:
                conversation = Conversation(make(), opening)
                if recipe[6] % 2:
                    heard.append(seeds[0])
                    assert conversation.hear(seeds[0])
            heard.append(mutator.make(recipe))
            with noted(heard):
                is_going_on = conversation.hear(heard[-1])
            n_taken += 1
            if is_going_on and recipe[7] % 8 == 0:
                with noted(heard):
                    conversation.end()
                is_going_on = False
            if not is_going_on:
                conversation = None
                heard.clear()
        return n_taken

    return take
