"""Audio files as a source: any format libsndfile reads, block by block, in constant memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
import soundfile

from audiokv.streaming.audio_format import (
    MAX_SAMPLE_RATE_HZ,
    MIN_SAMPLE_RATE_HZ,
    SAMPLE_RATE_HZ,
    AudioFormat,
)
from audiokv.streaming.errors import AudioFormatError
from audiokv.streaming.resampler import StreamResampler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from audiokv.client.link import ReconnectingLink
    from audiokv.client.timing import Clock

    FloatArray = NDArray[np.float32]

REAL_TIME_BLOCK_MS = 10
FAST_BLOCK_MS = 100

_MAX_CHANNELS = 2
_UNKNOWN_FRAMES = 2**40  # some formats state an absurd length when they do not know it
_FORMATS = "Give a file like WAV, FLAC, MP3, Ogg or AIFF; ffmpeg converts others to WAV."


class _Sequential(soundfile.SoundFile):  # type: ignore[misc]  # soundfile has no types
    """A sound file read from start to end.

    soundfile seeks after every read of a seekable file, and an MP3 decoder that seeks loses what
    it carries from block to block: in blocks of 10 ms little but noise is left.
    """

    def seekable(self) -> bool:
        """Tell soundfile to leave the position alone."""
        return False


class AudioFile:
    """An open audio file that comes out as 16-bit audio.

    Mono and stereo stay as they are, more channels are mixed to one. The rate stays where the
    protocol allows it (8 to 48 kHz); else the audio is resampled to 16 kHz.

    Args:
        path: The file.

    Raises:
        AudioFormatError: The file is missing, unreadable, empty or not audio.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _open(path)
        rate_hz = self._file.samplerate
        is_allowed = MIN_SAMPLE_RATE_HZ <= rate_hz <= MAX_SAMPLE_RATE_HZ
        n_channels = self._file.channels if self._file.channels <= _MAX_CHANNELS else 1
        self.audio_format = AudioFormat(
            sample_rate_hz=rate_hz if is_allowed else SAMPLE_RATE_HZ, channels=n_channels
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def duration_ms(self) -> int | None:
        """Length of the audio, or None where the format does not tell."""
        n_frames: int = self._file.frames
        return None if n_frames >= _UNKNOWN_FRAMES else n_frames * 1000 // self._file.samplerate

    def blocks(self, block_ms: int) -> Iterator[bytes]:
        """Yield the audio as interleaved little-endian 16-bit samples.

        Args:
            block_ms: Length of a block; the last one is what is left.

        Raises:
            AudioFormatError: The file is damaged past what was read so far.
        """
        resamplers = [
            StreamResampler(self._file.samplerate, self.audio_format.sample_rate_hz)
            for _ in range(self.audio_format.channels)
        ]
        for samples in self._read(self._file.samplerate * block_ms // 1000):
            columns = [one.push(samples[:, i]) for i, one in enumerate(resamplers)]
            yield _interleaved(columns)
        yield _interleaved([one.flush() for one in resamplers])

    def _read(self, n_frames: int) -> Iterator[FloatArray]:
        """Yield blocks of shape (n, channels), float32."""
        while True:
            try:
                samples = self._file.read(n_frames, dtype="float32", always_2d=True)
            except soundfile.LibsndfileError as error:
                at_s = self._file.tell() / self._file.samplerate
                raise AudioFormatError(
                    "damaged_audio",
                    f"{str(self.path)!r} is damaged at about {at_s:.1f} s: {error.error_string}",
                    "Repair the file or send it up to there.",
                ) from error
            if not len(samples):
                return
            if samples.shape[1] > self.audio_format.channels:
                samples = samples.mean(axis=1, keepdims=True, dtype=np.float32)
            yield samples


def _open(path: Path) -> _Sequential:
    name = repr(str(path))
    if not path.exists():
        raise AudioFormatError("no_file", f"The file {name} does not exist.", "Check its name.")
    if not path.is_file():
        raise AudioFormatError("not_a_file", f"{name} is not a file.", "Name the files in it.")
    try:
        file = _Sequential(path)
    except (soundfile.LibsndfileError, OSError, TypeError) as error:
        if not path.stat().st_size:
            raise AudioFormatError("empty_audio", f"The file {name} is empty.", _FORMATS) from error
        detail = getattr(error, "error_string", None) or "its kind is not known."
        raise AudioFormatError(
            "not_audio", f"The file {name} cannot be read as audio: {detail}", _FORMATS
        ) from error
    if not file.frames:
        file.close()
        raise AudioFormatError("empty_audio", f"The file {name} holds no audio.", _FORMATS)
    return file


def _interleaved(columns: list[FloatArray]) -> bytes:
    samples = np.nan_to_num(np.stack(columns, axis=1), posinf=1.0, neginf=-1.0)
    return np.clip(np.rint(samples * 32768), -32768, 32767).astype("<i2").tobytes()


async def send_in_real_time(link: ReconnectingLink, file: AudioFile, clock: Clock) -> None:
    """Send a file as a microphone would: 10 ms every 10 ms, each when its last sample is due."""
    began_s = clock.now_s()
    n_bytes = 0
    for block in file.blocks(REAL_TIME_BLOCK_MS):
        n_bytes += len(block)
        due_s = began_s + n_bytes / file.audio_format.bytes_per_second
        wait_s = due_s - clock.now_s()
        if wait_s > 0:
            await clock.sleep(wait_s)
        await link.send(block)


async def send_fast(link: ReconnectingLink, file: AudioFile) -> None:
    """Send a file as fast as the server takes it."""
    for block in file.blocks(FAST_BLOCK_MS):
        await link.send(block)
