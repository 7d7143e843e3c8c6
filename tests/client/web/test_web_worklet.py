"""The audio thread's part: whole frames of 10 ms, the same integers, nothing left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

# Renders integers offline through the worklet and returns the frames that it posts.
RENDER = """async ({ rate, left, right }) => {
  const context = new OfflineAudioContext(1, left.length + 128, rate);
  await context.audioWorklet.addModule("./js/worklet.js");
  const buffer = context.createBuffer(right ? 2 : 1, left.length, rate);
  buffer.copyToChannel(Float32Array.from(left, (v) => v / 32768), 0);
  if (right) buffer.copyToChannel(Float32Array.from(right, (v) => v / 32768), 1);
  const source = new AudioBufferSourceNode(context, { buffer });
  const cutter = new AudioWorkletNode(context, "frame-cutter", {
    numberOfInputs: 1, numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit",
  });
  const frames = [];
  const over = new Promise((resolve) => {
    cutter.port.onmessage = ({ data }) => {
      if (data.samples) frames.push([[...new Int16Array(data.samples)], data.peak]);
      if (data.end) resolve();
    };
  });
  source.connect(cutter);
  source.start();
  await context.startRendering();
  cutter.port.postMessage("flush");
  await over;
  return frames;
}"""


@pytest.mark.parametrize(
    ("rate_hz", "frame_samples"), [(8000, 80), (16000, 160), (44100, 441), (48000, 480)]
)
async def test_frames_are_10_ms_and_bit_exact(
    blank_page: Page, rate_hz: int, frame_samples: int
) -> None:
    samples = [(i * 7919) % 65536 - 32768 for i in range(128 * 20)]
    frames = await blank_page.evaluate(RENDER, {"rate": rate_hz, "left": samples})
    lengths = [len(frame) for frame, _ in frames]
    assert set(lengths[:-1]) == {frame_samples}
    assert lengths[-1] <= frame_samples
    joined = [value for frame, _ in frames for value in frame]
    assert joined[: len(samples)] == samples
    assert not any(joined[len(samples) :])
    assert frames[0][1] == pytest.approx(max(map(abs, samples[:frame_samples])) / 32768)


async def test_loud_samples_are_clipped_not_wrapped(blank_page: Page) -> None:
    samples = [40000, -40000] * 64
    frames = await blank_page.evaluate(RENDER, {"rate": 16000, "left": samples})
    assert frames[0][0][:2] == [32767, -32768]


async def test_two_channels_become_their_mean(blank_page: Page) -> None:
    left, right = [1000] * 256, [3000] * 256
    frames = await blank_page.evaluate(RENDER, {"rate": 16000, "left": left, "right": right})
    assert frames[0][0] == [2000] * 160
