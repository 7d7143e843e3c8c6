"""Links to test, and what is asked of everything they yield."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

from audiokv.client.link import ReconnectingLink
from audiokv.client.settings import LinkSettings
from audiokv.client.timing import Backoff
from audiokv.streaming.captions import Caption, Notice, Word

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

    from audiokv.client.events import LinkEvent
    from tests.client.conftest import ScriptedServer


def at_once() -> Backoff:
    return Backoff(first_s=0.0, most_s=0.0)


def link_to(server: ScriptedServer, **settings: Any) -> ReconnectingLink:
    return ReconnectingLink(LinkSettings(url=server.url, **settings), backoff=at_once())


async def events_of(link: ReconnectingLink) -> list[LinkEvent]:
    return [event async for event in link]


def captions_in(events: Sequence[LinkEvent]) -> list[Caption]:
    return [event for event in events if isinstance(event, Caption)]


def notices_in(events: list[LinkEvent]) -> list[str]:
    return [event.code for event in events if isinstance(event, Notice)]


def said_in(events: list[LinkEvent]) -> list[str]:
    return [w.text for c in captions_in(events) if c.is_final for w in c.words]


def assert_lawful(captions: list[Caption]) -> None:
    """Every caption once, one final a segment, committed words never change."""
    assert [c.seq for c in captions] == list(range(1, len(captions) + 1))
    committed: dict[int, tuple[Word, ...]] = {}
    finals = set()
    for caption in captions:
        assert caption.segment not in finals
        before = committed.get(caption.segment, ())
        now = tuple(word for word in caption.words if word.is_final)
        assert now[: len(before)] == before
        committed[caption.segment] = now
        if caption.is_final:
            finals.add(caption.segment)
    assert finals == set(committed)


async def speak_through(
    link: ReconnectingLink, audio: bytes, chance: random.Random
) -> list[LinkEvent]:
    """Send audio in pieces of any length while the server does what it likes."""
    reading = asyncio.create_task(events_of(link))
    while audio:
        n_bytes = chance.randrange(1, 9_000)
        await link.send(audio[:n_bytes])
        audio = audio[n_bytes:]
        await asyncio.sleep(chance.choice([0, 0, 0.002]))
    await link.stop()
    return await reading


async def program(*words: str | Path, **variables: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "audiokv", *map(str, words),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **variables},
    )  # fmt: skip
