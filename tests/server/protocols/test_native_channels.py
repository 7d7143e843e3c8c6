from __future__ import annotations

import numpy as np
import pytest

from audiokv.server.app import open_server
from audiokv.server.config import ServerConfig
from audiokv.server.sessions import speaker_opener
from audiokv.streaming.captions import Caption
from audiokv.streaming.messages import Resume, Start
from tests.server.doubles import (
    LoudnessDetector,
    ScriptedRecognizer,
    captions_in,
    silence,
    speech,
    undisturbed,
)
from tests.server.running import Source, complete, running_server

LABELS = ("agent", "caller")
SIDES = (speech(1, seconds=8), silence(seconds=1.5) + speech(2, seconds=6.5, pause_every_s=1))


def stereo(*sides: bytes) -> bytes:
    return np.stack([np.frombuffer(side, "<i2") for side in sides], axis=1).tobytes()


def check(said: list[Caption]) -> None:
    for label, side in zip(LABELS, SIDES, strict=True):
        own = [caption for caption in said if caption.speaker == label]
        alone = captions_in(undisturbed(side))
        assert [(c.text, c.words, c.is_final) for c in own] == [
            (c.text, c.words, c.is_final) for c in alone
        ]
    assert [caption.seq for caption in said] == list(range(1, len(said) + 1))
    finals = [caption.segment for caption in said if caption.is_final]
    assert sorted(finals) == list(range(len(finals)))


@pytest.mark.parametrize("message_bytes", [3_201, 64_000])
async def test_a_call_is_captioned_by_its_channels(message_bytes: int) -> None:
    async with running_server() as server:
        source = await Source.open(server)
        await source.start(channels=2, channel_labels=LABELS)
        await source.send_audio(stereo(*SIDES), message_bytes=message_bytes)
        await complete(source, b"")
    check(source.captions)


async def test_a_call_is_resumed_at_the_sample_on_both_channels() -> None:
    audio = stereo(*SIDES)
    said: list[Caption] = []
    resume: Resume | None = None
    async with running_server() as server:
        for cut in (50_001, 200_002, len(audio)):
            source = await Source.open(server)
            ready = await source.start(channels=2, channel_labels=LABELS, resume=resume)
            assert ready.resumed == (resume is not None)
            await source.send_audio(audio[4 * ready.received_samples : cut], message_bytes=1_601)
            if cut < len(audio):
                await source.wait_for(Caption)
                await source.connection.close()
            else:
                await complete(source, b"")
            said += source.captions
            resume = Resume(ready.resume_token or "", said[-1].seq)
    check(said)


async def test_a_server_may_tell_the_voices_of_a_stream_apart() -> None:
    def embed(samples: np.ndarray) -> np.ndarray:
        is_loud = float(np.abs(samples).mean()) > 0.06
        return np.array([is_loud, not is_loud], np.float32)

    loud = speech(1, seconds=2.6, pause_every_s=2)
    soft = (np.frombuffer(loud, "<i2") // 4).astype("<i2").tobytes()
    async with open_server(
        ServerConfig(port=0),
        recognizer=ScriptedRecognizer(),
        open_detector=LoudnessDetector,
        open_speaker=speaker_opener(embed),
        pages={},
    ) as server:
        source = await Source.open(server)
        await source.start()
        await complete(source, loud + soft + loud)
    finals = [caption.speaker for caption in source.captions if caption.is_final]
    assert finals == ["speaker 1", "speaker 2", "speaker 1"]


async def test_two_channels_without_labels_are_one_speaker() -> None:
    async with running_server() as server:
        source = await Source.open(server)
        await source.start(channels=2)
        await source.send_audio(stereo(SIDES[0], SIDES[0]))
        await complete(source, b"")
    assert source.captions == captions_in(undisturbed(SIDES[0]))


@pytest.mark.parametrize("labels", [("agent",), ("agent", "agent"), ("agent", " ")])
async def test_labels_that_do_not_tell_the_channels_apart_are_refused(
    labels: tuple[str, ...],
) -> None:
    async with running_server() as server:
        source = await Source.open(server)
        await source.send(Start("pcm_s16le", 16_000, channels=2, channel_labels=labels))
        assert await source.error() == ("bad_field", 4400)
