"""Spoken digits through ``audiokv serve`` with the small Gemma-3n: page, own and foreign client.

What is heard is held against what was said, and against the same checkpoint decoding the same audio
at once by transformers' own classes, so that the tests stand when a better checkpoint comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import soundfile

from benchmarks.digit_comparison import OfflineDigits
from benchmarks.digit_streams import DIGITS_MODEL, bank_of_test_takes, join_strings
from benchmarks.measures import errors
from benchmarks.recordings import to_pcm
from tests.client.web.page_driver import run_page, write_microphone_wav
from tests.clients.vosk_transcriber import transcribe
from tests.serving import RealServer, send, serving
from tools.digits_data import Conditions
from tools.digits_eval import test_strings as strings_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.weights, pytest.mark.slow]

RATE_HZ = 16_000
LENGTHS = (8, 8)
GAP_MS = 1000  # the browser may miss the first tenths of a second of its microphone
CLEAR = Conditions(
    pauses_ms=(80, 300), long_pause_share=0, quiet_share=1, gain_db=(0, 0), tilt_db=0
)


@dataclass(frozen=True, slots=True)
class Spoken:
    """Digits in a file.

    Attributes:
        wav: 16 kHz mono.
        pcm: The same samples alone.
        seconds: Their length.
        text: What is said.
        offline_text: What the checkpoint makes of each string at once.
    """

    wav: Path
    pcm: Path
    seconds: float
    text: str
    offline_text: str

    def must_be(self, heard: str) -> None:
        """Ask for most of what was said, and nearly all of what is heard offline."""
        assert errors(self.text, heard, "en").rate <= 0.2, (self.text, heard)
        assert errors(self.offline_text, heard, "en").rate <= 0.1, (self.offline_text, heard)


@pytest.fixture(scope="module")
def spoken(
    repository: Path, speech_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Spoken:
    strings = strings_of(5, bank_of_test_takes(speech_folder / "digits"), LENGTHS, CLEAR)
    stream = join_strings(strings, [GAP_MS] * len(strings))
    folder = tmp_path_factory.mktemp("digits")
    wav, pcm = folder / "digits.wav", folder / "digits.pcm"
    soundfile.write(wav, stream.samples, RATE_HZ, subtype="PCM_16")
    pcm.write_bytes(to_pcm(stream.samples))
    offline = OfflineDigits(repository / DIGITS_MODEL)
    return Spoken(
        wav,
        pcm,
        stream.duration_ms / 1e3,
        " ".join(one.text for one in stream.strings),
        " ".join(offline.text(one.samples) for one in strings),
    )


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[RealServer]:
    with serving("--model", str(repository / DIGITS_MODEL), own_ports=("vosk",)) as running:
        yield running


@pytest.mark.browser
def test_the_page_shows_the_digits_of_the_microphone(
    server: RealServer, spoken: Spoken, tmp_path: Path
) -> None:
    wav = write_microphone_wav(spoken.wav, tmp_path / "microphone.wav")
    spoken.must_be(run_page(server.page, wav, seconds=spoken.seconds + 1))


def test_our_own_client_writes_the_digits_down(
    server: RealServer, spoken: Spoken, tmp_path: Path
) -> None:
    send(server, spoken.wav, "--txt", tmp_path / "digits.txt")
    spoken.must_be(" ".join((tmp_path / "digits.txt").read_text("utf-8").split()))


@pytest.mark.clients
async def test_the_transcriber_of_vosk_hears_the_digits(server: RealServer, spoken: Spoken) -> None:
    result, n_bytes = await transcribe(f"ws://127.0.0.1:{server.own_ports['vosk']}", spoken.pcm)
    assert n_bytes == spoken.pcm.stat().st_size
    spoken.must_be(" ".join(part["text"] for part in result))
