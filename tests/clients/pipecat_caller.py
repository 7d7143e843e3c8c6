"""A pipecat pipeline with one of its own speech-to-text services, as a program of its own.

pipecat replaces parts of asyncio when it is imported, so it runs beside the tests, not in them. It
plays 16-bit samples of 16 kHz from a file to the service, says when the speaker has stopped, and
prints one JSON object for each transcription and error. Arguments: the service (``deepgram`` or
``openai``), the server's port, its token, the file, and how many words to wait for.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.deepgram.stt import DeepgramSTTService
from pipecat.services.openai.stt import OpenAIRealtimeSTTService
from pipecat.workers.runner import WorkerRunner

if TYPE_CHECKING:
    from pipecat.services.stt_service import STTService

RATE_HZ = 16_000
PACKET_BYTES = 640
PATIENCE_S = 60.0  # a limit for words that do not come, never a wait


class Notes(FrameProcessor):
    """Prints what a service says."""

    def __init__(self) -> None:
        super().__init__()
        self.n_words = 0
        self.said = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Note a frame, and hand it on."""
        await super().process_frame(frame, direction)
        if isinstance(frame, TranscriptionFrame):
            note("final", frame.text)
            self.n_words += len(frame.text.split())
            self.said.set()
        elif isinstance(frame, InterimTranscriptionFrame):
            note("interim", frame.text)
        elif isinstance(frame, ErrorFrame):
            note("error", frame.error)
        await self.push_frame(frame, direction)


def note(kind: str, text: str) -> None:
    """Print one thing that happened."""
    sys.stdout.write(json.dumps({"kind": kind, "text": text}) + "\n")
    sys.stdout.flush()


def service(name: str, port: str, token: str) -> STTService:
    """Return pipecat's service as its documentation sets it up, but for the address."""
    if name == "deepgram":
        return DeepgramSTTService(api_key=token, base_url=f"ws://127.0.0.1:{port}")
    return OpenAIRealtimeSTTService(api_key=token, base_url=f"ws://127.0.0.1:{port}/v1/realtime")


async def play(worker: PipelineWorker, audio: bytes, notes: Notes, n_words: int) -> None:
    """Play audio in packets of 20 ms, ask for the rest, and end once enough words are final."""
    await worker.queue_frame(VADUserStartedSpeakingFrame())
    for at in range(0, len(audio), PACKET_BYTES):
        packet = audio[at : at + PACKET_BYTES]
        await worker.queue_frame(InputAudioRawFrame(packet, RATE_HZ, 1))
    await worker.queue_frame(VADUserStoppedSpeakingFrame())
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            while notes.n_words < n_words:
                notes.said.clear()
                await notes.said.wait()
    await worker.queue_frame(EndFrame())


async def main() -> None:
    """Run the pipeline from its start to its end."""
    name, port, token, path, n_words = sys.argv[1:]
    logger.remove()
    notes = Notes()
    pipeline = Pipeline([service(name, port, token), notes])
    worker = PipelineWorker(
        pipeline,
        cancel_on_idle_timeout=False,
        params=PipelineParams(audio_in_sample_rate=RATE_HZ),
    )
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")  # type: ignore[untyped-decorator]
    async def on_started(_worker: PipelineWorker, _frame: Frame) -> None:
        started.set()

    async def speak() -> None:
        await started.wait()
        audio = await asyncio.to_thread(Path(path).read_bytes)
        await play(worker, audio, notes, int(n_words))

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await asyncio.gather(runner.run(), speak())
    note("end", "")


if __name__ == "__main__":
    asyncio.run(main())
