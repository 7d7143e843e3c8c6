"""Ways of captioning the same recordings, each a column of the comparison."""

from __future__ import annotations

import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from audiokv.models.load import load_recognizer
from audiokv.models.silero import SileroModel
from audiokv.models.weights import resolve_model
from audiokv.models.whisper.recognizer import WhisperRecognizer
from audiokv.models.whisper.stream import WindowOptions
from benchmarks.joined_stream import arrivals_of_each, join, original_name
from benchmarks.live_stream import TAIL_MS, speech_from_file, stream_in_real_time
from benchmarks.peers.whisperlivekit import caption_with_peer, serving_peer, write_model_folder
from benchmarks.recordings import SAMPLES_PER_MS, near_silence
from benchmarks.scoring import Heard, Summary, score
from benchmarks.server_process import ServerUse, serving, watched
from benchmarks.virtual_stream import VirtualListener, agreement_options, one_thread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.measures import Arrival
    from benchmarks.recordings import Recording
    from benchmarks.truth import Truth

# With windows of up to 12 s this gives the model the 30 s it was trained on.
USUAL_PADDING_MS = 18_000


@dataclass(slots=True)
class Column:
    """What one way of captioning made of the recordings.

    Attributes:
        name: Shown in the results.
        arrivals: Captions by recording.
        end_lags_ms: Lag when the last audio had come, by recording.
        cost: What it took.
        recordings: What was said, where that is not each recording once.
    """

    name: str
    arrivals: dict[str, Sequence[Arrival]] = field(default_factory=dict)
    end_lags_ms: dict[str, float] = field(default_factory=dict)
    cost: dict[str, object] = field(default_factory=dict)
    recordings: list[Recording] = field(default_factory=list)

    def summary(self, recordings: Sequence[Recording], truth: Mapping[str, Truth]) -> Summary:
        """Return its figures."""
        return Summary(
            [
                score(
                    Heard(
                        recording,
                        self.arrivals[recording.name],
                        truth[original_name(recording.name)].word_ends,
                        truth[original_name(recording.name)].offline_text,
                        self.end_lags_ms.get(recording.name, 0.0),
                    )
                )
                for recording in self.recordings or recordings
            ]
        )


def wished_language(recording: Recording, mode: str) -> str | None:
    """Return the language to ask for in a mode, ``given`` or ``auto``."""
    return recording.language if mode == "given" else None


async def live_column(
    recordings: Sequence[Recording], mode: str, model: str, url: str | None
) -> Column:
    """Send the recordings to a server in real time, one stream each.

    Args:
        recordings: What to send.
        mode: ``given`` or ``auto``: whether the language is told.
        model: What the server runs, where one is started.
        url: A server that runs already; what it uses is then not known.
    """
    column = Column(f"audiokv, real server, language {mode}")
    audio_ms, late_ms = 0.0, []
    async with AsyncExitStack() as stack:
        use = ServerUse()
        if url is None:
            server = await stack.enter_async_context(serving(model))
            url = server.url
            use = await stack.enter_async_context(watched(server.pid))
        for recording in recordings:
            tell(f"{column.name}: {recording.name}")
            speech = speech_from_file(recording.path)
            run = await stream_in_real_time(url, speech, wished_language(recording, mode))
            column.arrivals[recording.name] = run.arrivals
            column.end_lags_ms[recording.name] = run.end_lag_ms
            audio_ms += speech.duration_ms
            late_ms.append(run.max_late_ms)
    column.cost = {
        **_process_cost(use, audio_ms),
        "sender_late_at_most_ms": round(max(late_ms), 1),
    }
    return column


async def joined_column(
    recordings: Sequence[Recording], at_least_ms: float, model: str, url: str | None
) -> Column:
    """Send one live stream a language in real time; the server detects the language.

    Args:
        recordings: What is said; those of a language follow each other with pauses.
        at_least_ms: Length of each stream.
        model: What the server runs, where one is started.
        url: A server that runs already; what it uses is then not known.
    """
    column = Column("audiokv, real server, one live stream, language auto")
    audio_ms, late_ms = 0.0, []
    async with AsyncExitStack() as stack:
        use = ServerUse()
        if url is None:
            server = await stack.enter_async_context(serving(model))
            url = server.url
            use = await stack.enter_async_context(watched(server.pid))
        for language in dict.fromkeys(one.language for one in recordings):
            tell(f"{column.name}: {language}")
            stream = join([one for one in recordings if one.language == language], at_least_ms)
            run = await stream_in_real_time(url, stream.speech)
            column.recordings += [one.recording for one in stream.spoken]
            column.arrivals |= arrivals_of_each(stream.spoken, run.arrivals)
            column.end_lags_ms[stream.spoken[-1].recording.name] = run.end_lag_ms
            audio_ms += stream.speech.duration_ms
            late_ms.append(run.max_late_ms)
    column.cost = {
        **_process_cost(use, audio_ms),
        "sender_late_at_most_ms": round(max(late_ms), 1),
    }
    return column


def _process_cost(use: ServerUse, audio_ms: float) -> dict[str, object]:
    if not use.peak_rss_bytes:
        return {"audio_s": round(audio_ms / 1e3, 1)}
    return {
        "audio_s": round(audio_ms / 1e3, 1),
        "cpu_s_per_audio_s": round(use.cpu_s / (audio_ms / 1e3), 3),
        "peak_rss_bytes": use.peak_rss_bytes,
    }


def virtual_columns(recordings: Sequence[Recording], mode: str, model: str) -> list[Column]:
    """Run our way of streaming and the usual one on the same weights in virtual time."""
    recognizer = load_recognizer(model)
    files = resolve_model(model)
    padded = WhisperRecognizer(files.folder, files.name, window=WindowOptions(USUAL_PADDING_MS))
    one_thread()
    open_detector = SileroModel.load().open
    ours = VirtualListener(recognizer, open_detector)
    usual = VirtualListener(padded, open_detector, agreement_options(), is_agreeing=True)
    return [
        _virtual_column(f"audiokv, virtual time, language {mode}", ours, recordings, mode),
        _virtual_column(
            f"LocalAgreement-2 every second, virtual time, language {mode}", usual, recordings, mode
        ),
    ]


def _virtual_column(
    name: str, listener: VirtualListener, recordings: Sequence[Recording], mode: str
) -> Column:
    column = Column(name)
    compute_ms = audio_ms = 0.0
    for recording in recordings:
        tell(f"{name}: {recording.name}")
        tail = near_silence(TAIL_MS * SAMPLES_PER_MS)
        audio = np.concatenate([recording.samples(), tail])
        run = listener.listen(audio, wished_language(recording, mode))
        column.arrivals[recording.name] = run.arrivals
        column.end_lags_ms[recording.name] = run.steps[-1].lag_ms if run.steps else 0.0
        compute_ms += run.compute_ms
        audio_ms += run.duration_ms
    column.cost = {
        "audio_s": round(audio_ms / 1e3, 1),
        "cpu_s_per_audio_s": round(compute_ms / audio_ms, 3),
    }
    return column


async def peer_column(
    recordings: Sequence[Recording], mode: str, model: str, python: Path
) -> Column:
    """Send the recordings to the peer's server in real time, one stream each.

    Args:
        recordings: What to send; the first is sent once before, to warm the server up.
        mode: ``given`` or ``auto``.
        model: A packaged model, written out for the peer.
        python: Interpreter of the environment the peer is installed in.
    """
    column = Column(f"WhisperLiveKit, faster-whisper, LocalAgreement-2, language {mode}")
    audio_ms = 0.0
    with tempfile.TemporaryDirectory() as folder:
        write_model_folder(model, Path(folder))
        async with serving_peer(python, Path(folder)) as (pid, url):
            tell(f"{column.name}: warming up")
            await caption_with_peer(url, recordings[0], wished_language(recordings[0], mode))
            async with watched(pid) as use:
                for recording in recordings:
                    tell(f"{column.name}: {recording.name}")
                    column.arrivals[recording.name] = await caption_with_peer(
                        url, recording, wished_language(recording, mode)
                    )
                    audio_ms += recording.samples().size / SAMPLES_PER_MS + TAIL_MS
    column.cost = _process_cost(use, audio_ms)
    return column


def tell(what: str) -> None:
    """Say what is being done."""
    sys.stderr.write(f"{what}\n")
