"""The lock-step client of the ``vosk`` package, unmodified, and the pattern of its examples."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from websockets.sync.client import connect

from tests.clients.conftest import Spoken, plain_words
from tests.clients.vosk_transcriber import transcribe

if TYPE_CHECKING:
    from pathlib import Path

    from tests.serving import RealServer

pytestmark = [pytest.mark.clients, pytest.mark.weights, pytest.mark.slow]


def url(server: RealServer) -> str:
    return f"ws://127.0.0.1:{server.own_ports['vosk']}"


async def test_the_transcriber_of_the_package_hears_the_words(
    real_server: RealServer, spoken: Spoken, tmp_path: Path
) -> None:
    pcm = tmp_path / "spoken.pcm"
    pcm.write_bytes(spoken.pcm())
    result, n_bytes = await transcribe(url(real_server), pcm)
    assert n_bytes == len(spoken.pcm())
    assert plain_words(" ".join(part["text"] for part in result)) == spoken.words
    times = [word["start"] for part in result for word in part.get("result", [])]
    assert times == sorted(times)
    assert len(times) == len(spoken.words)


def test_the_pattern_of_the_examples_at_8_khz(real_server: RealServer, spoken: Spoken) -> None:
    audio = spoken.pcm(8_000)
    with connect(url(real_server)) as client:
        replies = []
        for at in range(0, len(audio), 3_200):
            client.send(audio[at : at + 3_200])
            replies.append(json.loads(client.recv()))
        client.send('{"eof" : 1}')
        replies.append(json.loads(client.recv()))
    text = " ".join(reply["text"] for reply in replies if "text" in reply)
    assert plain_words(text) == spoken.words
    assert any(reply.get("partial") for reply in replies)
