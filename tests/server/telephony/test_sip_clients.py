"""Real telephones call the server directly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from audiokv.streaming.audio_format import AudioFormat
from audiokv.streaming.g711 import decode_mulaw, encode_mulaw
from audiokv.streaming.resampler import StreamResampler
from tests.server.doubles import captions_in, speech, undisturbed
from tests.server.running import running_server
from tests.server.telephony.calling import Follower
from tests.server.telephony.recording import RecordingRecognizer
from tests.server.telephony.sip_clients import RATE_HZ, run_baresip, run_sipp

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

N_CALLS = 5


def noise(seconds: float) -> NDArray[np.int16]:
    wide = np.frombuffer(speech(9, seconds=2 * seconds, pause_every_s=60), "<i2")
    return (wide // 2)[: int(seconds * RATE_HZ)].astype(np.int16)


async def test_sipp_is_heard_to_the_sample_in_several_calls_at_a_time(tmp_path: Path) -> None:
    said = noise(2)
    async with running_server(sip_port=0, max_streams=N_CALLS) as server:
        follower = Follower(server)
        target = f"127.0.0.1:{server.other_ports['sip_port']}"
        assert await run_sipp(tmp_path, target, said, N_CALLS) == 0
        streams = await follower.all_done(N_CALLS)
    coded = decode_mulaw(encode_mulaw(said)).tobytes()
    expected = captions_in(undisturbed(coded, fmt=AudioFormat(sample_rate_hz=RATE_HZ)))
    texts = [c.text for c in expected if c.is_final]
    for heard in streams:
        assert [c.text for c in heard.captions if c.is_final] == texts != []
        assert heard.metadata["from"].startswith("sip:sipp@127.0.0.1")


@pytest.mark.parametrize(
    ("codec", "rate_hz"),
    [("PCMA/8000/1", 8_000), ("G722/16000/1", 16_000), ("opus/48000/2", 48_000)],
)
async def test_baresip_is_heard_and_its_hang_up_ends_the_stream(
    tmp_path: Path, speech_folder: Path, codec: str, rate_hz: int
) -> None:
    spoken, file_hz = soundfile.read(
        speech_folder / "librispeech" / "1089-134691-0001.flac", dtype="float32"
    )
    moved = StreamResampler(file_hz, rate_hz).push(spoken[: 3 * file_hz])
    said = (moved * 32_767).astype(np.int16)
    recognizer = RecordingRecognizer()
    async with running_server(recognizer, sip_port=0) as server:
        follower = Follower(server)
        uri = f"sip:captions@127.0.0.1:{server.other_ports['sip_port']}"
        await run_baresip(tmp_path, uri, said, codec=codec, rate_hz=rate_hz)
        (heard,) = await follower.all_done(1)
    assert heard.done is not None
    assert abs(heard.done.received_ms - 3_000) < 300
    assert recognizer.likeness(0, said, rate_hz) > 0.9
