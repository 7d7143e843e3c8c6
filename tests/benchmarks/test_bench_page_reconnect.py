from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

import numpy as np
import soundfile

from benchmarks.page_reconnect import READ_FRAMES, RECORD_FRAMES, parse_arguments
from tests.client.web.page_driver import open_browser, write_microphone_wav

if TYPE_CHECKING:
    from pathlib import Path

# A page that cuts its microphone into frames as ours does: a worklet posts buffers of samples.
CUT = """async () => {
  const code = `registerProcessor("cutter", class extends AudioWorkletProcessor {
    process([[samples]]) {
      if (samples) {
        const whole = Int16Array.from(samples, (x) => x * 32767);
        this.port.postMessage({ samples: whole.buffer }, [whole.buffer]);
      }
      return true;
    }
  });`;
  const context = new AudioContext({ sampleRate: 16000 });
  const module = new Blob([code], { type: "text/javascript" });
  await context.audioWorklet.addModule(URL.createObjectURL(module));
  const media = await navigator.mediaDevices.getUserMedia({ audio: true });
  const cutter = new AudioWorkletNode(context, "cutter", { numberOfOutputs: 0 });
  let heard = [];
  cutter.port.onmessage = ({ data }) => heard.push(...new Int16Array(data.samples));
  context.createMediaStreamSource(media).connect(cutter);
  await context.resume();
  while (heard.length < 16000) await new Promise((resolve) => setTimeout(resolve, 20));
  await context.suspend();
  await new Promise((resolve) => setTimeout(resolve, 100));
  return heard;
}"""


def test_what_a_page_hears_is_recorded_sample_by_sample(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", 0.3 * np.sin(np.arange(64_000) / 20), 16_000)
    wav = write_microphone_wav(tmp_path / "a.wav", tmp_path / "b.wav")

    async def hear() -> tuple[list[int], bytes]:
        async with open_browser(wav=wav) as browser:
            context = await browser.new_context(permissions=["microphone"])
            page = await context.new_page()
            await page.add_init_script(RECORD_FRAMES)
            await page.route(
                "**/*", lambda route: route.fulfill(body="<p>x</p>", content_type="text/html")
            )
            await page.goto("http://localhost/")
            heard = await page.evaluate(CUT)
            return heard, base64.b64decode(await page.evaluate(READ_FRAMES))

    heard, recorded = asyncio.run(hear())
    assert np.abs(heard).max() > 1000
    assert np.frombuffer(recorded, "<i2").tolist() == heard


def test_ten_cuts_of_three_seconds_are_the_default() -> None:
    args = parse_arguments([])
    assert (args.cuts, args.cut_seconds) == (10, 3.0)
