"""The part of ``vosk-transcriber --server`` that speaks the protocol, unmodified."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from vosk.transcriber.transcriber import Transcriber

if TYPE_CHECKING:
    from pathlib import Path


async def transcribe(url: str, pcm: Path) -> tuple[list[dict[str, Any]], int]:
    """Send a file of 16-bit samples; return the results and how many bytes were sent."""
    client = Transcriber.__new__(Transcriber)  # its constructor downloads a Kaldi model
    client.args = SimpleNamespace(server=url)
    program = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(pcm), stdout=asyncio.subprocess.PIPE
    )
    result, n_bytes = await client.recognize_stream_server(process)
    await process.wait()
    return result, n_bytes
