"""Whether the page, its connection cut again and again, shows what its audio says undisturbed.

A real server, headless Chromium with a fake microphone, real time. Chromium's microphone starts at
another sample each time, so two runs of the page never hear the same audio. The audio that the page
cuts into frames is therefore recorded inside it, and sent once more by the project's own client
over a connection that nobody cuts: both texts must be equal. Writes ``page_reconnect.json`` into
the results; the exit status is 1 where they differ.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import soundfile

from audiokv.streaming.audio_format import SAMPLE_RATE_HZ, AudioFormat
from benchmarks.columns import tell
from benchmarks.live_stream import Speech, split, stream_in_real_time
from benchmarks.measures import final_text
from benchmarks.mixed_stream import mix
from benchmarks.reconnect import cut_at, cut_moments_s
from benchmarks.recordings import add_recording_arguments, chosen_recordings
from benchmarks.results_file import RESULTS, provenance, write_results
from benchmarks.server_process import serving
from benchmarks.wire import wired
from tests.client.web.page_driver import open_browser, transcript_of, write_microphone_wav

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.wire import Wire

READY_S = 2.0  # the page is surely live; cuts count from here

# Runs before the page's own scripts: keeps a copy of every frame the page cuts.
RECORD_FRAMES = """
window.recordedFrames = [];
const Plain = window.AudioWorkletNode;
window.AudioWorkletNode = class extends Plain {
  constructor(...given) {
    super(...given);
    this.port.addEventListener("message", ({ data }) => {
      if (data.samples) window.recordedFrames.push(new Uint8Array(data.samples.slice(0)));
    });
  }
};
"""
READ_FRAMES = """() => {
  const parts = window.recordedFrames.map((bytes) => String.fromCharCode(...bytes));
  return btoa(parts.join(""));
}"""


@dataclass(frozen=True, slots=True)
class PageRun:
    """What the page heard and showed.

    Attributes:
        text: Its transcript.
        audio: The frames it cut, 16 kHz mono, 16 bits.
    """

    text: str
    audio: bytes


def parse_arguments(arguments: Sequence[str] | None = None) -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description=__doc__)
    add_recording_arguments(parser)
    parser.add_argument("--model", default="whisper-base", help="name or folder of the model")
    parser.add_argument("--cuts", type=int, default=10, help="default: %(default)s")
    parser.add_argument(
        "--cut-seconds", type=float, default=3.0, help="length of each (default: %(default)s)"
    )
    parser.add_argument(
        "--minutes", type=float, default=1.6, help="length of the stream (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the stream and of the cuts")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, metavar="DIR", help="default: %(default)s"
    )
    return parser.parse_args(arguments)


async def run_page(url: str, microphone: Path, seconds: float) -> PageRun:
    """Let the page hear a file, and return what it showed and what it cut into frames."""
    async with open_browser(wav=microphone) as browser:
        context = await browser.new_context(permissions=["microphone"])
        page = await context.new_page()
        await page.add_init_script(RECORD_FRAMES)
        await page.goto(url)
        await page.click("#toggle")
        await page.wait_for_selector('body[data-state="live"]', timeout=30_000)
        await asyncio.sleep(seconds)
        await page.click("#toggle")
        await page.wait_for_selector('body[data-state="idle"]', timeout=60_000)
        audio = base64.b64decode(await page.evaluate(READ_FRAMES))
        return PageRun(await transcript_of(page), audio)


async def measure(
    args: Namespace, microphone: Path, duration_s: float, moments_s: Sequence[float]
) -> tuple[PageRun, str, Wire]:
    """Return the page's run, the text of its audio undisturbed, and the wire that was cut."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(args.model, []))
        page_url = server.url.replace("ws://", "http://").replace("/v1/stream", "/")
        wire, wired_url = await stack.enter_async_context(wired(page_url))
        tell(f"the page, {duration_s:.0f} s, {len(moments_s)} cuts")

        async def cut() -> None:
            await asyncio.sleep(READY_S)
            await cut_at(wire, moments_s, args.cut_seconds)

        cutting = asyncio.create_task(cut())
        shown = await run_page(wired_url, microphone, duration_s + READY_S)
        await cutting
        tell("the same audio, undisturbed")
        audio_format = AudioFormat()
        speech = Speech(audio_format, tuple(split(shown.audio, audio_format)))
        undisturbed = await stream_in_real_time(server.url, speech)
    return shown, final_text(undisturbed.arrivals), wire


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the page, send its audio again, compare, write; return the exit status."""
    args = parse_arguments(arguments)
    origin = provenance()
    stream = mix(chosen_recordings(args), args.minutes * 60_000, args.seed)
    duration_s = len(stream.samples) / SAMPLE_RATE_HZ
    moments_s = cut_moments_s(args.cuts, args.cut_seconds, duration_s, args.seed)
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "stream.wav"
        soundfile.write(recording, stream.samples, SAMPLE_RATE_HZ)
        microphone = write_microphone_wav(recording, Path(folder) / "microphone.wav")
        shown, undisturbed, wire = asyncio.run(measure(args, microphone, duration_s, moments_s))
    is_equal = shown.text == undisturbed
    content: dict[str, object] = {
        "settings": {"model": args.model, "seed": args.seed, "cut_s": args.cut_seconds},
        "heard_s": round(len(shown.audio) / 2 / SAMPLE_RATE_HZ, 2),
        "cuts_at_s": [round(moment_s, 2) for moment_s in moments_s],
        "n_connections_cut": wire.n_cut_connections,
        "n_connections_refused": wire.n_refused,
        "is_text_equal": is_equal,
        "text_of_the_page": shown.text,
        "text_undisturbed": undisturbed,
    }
    write_results("page_reconnect", content, origin, args.out)
    print("undisturbed:", undisturbed)
    print("page, cut:  ", shown.text)
    print(
        "met     " if is_equal else "NOT MET ",
        f"same text after {wire.n_cut_connections} cut connections "
        f"({wire.n_refused} attempts refused meanwhile)",
    )
    return 0 if is_equal and wire.n_cut_connections == args.cuts else 1


if __name__ == "__main__":
    sys.exit(main())
