"""From the microphone to the server: real frames at the declared rate, and clear refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import samplerate
import soundfile

from tests.client.web.page_driver import open_browser, until
from tests.client.web.script import Script
from tests.client.web.scripted_server import ScriptedServer

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from playwright.async_api import Page

    from tests.client.web.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

LOUD_RMS = 200
IS_LIVE = "document.body.dataset.state === 'live'"
IS_IDLE = "document.body.dataset.state === 'idle'"
PROBLEMS = "[...document.querySelectorAll('.notice')].map((n) => n.dataset.problem)"


def best_correlation(audio: NDArray[np.float64], whole: NDArray[np.float64]) -> float:
    """Return the highest normalised correlation of audio with any part of a whole."""
    n = 1 << (len(whole) + len(audio)).bit_length()
    cross = np.fft.irfft(np.fft.rfft(whole, n) * np.conj(np.fft.rfft(audio, n)), n)
    energy = np.concatenate([[0], np.cumsum(whole**2)])
    window = energy[len(audio) :] - energy[: -len(audio)]
    scale = np.sqrt(np.maximum(window, 1e-9) * np.sum(audio**2))
    return float(np.max(cross[: len(scale)] / scale))


def likeness(audio: NDArray[np.float64], wav: Path, rate_hz: int) -> float:
    """Return the median correlation of 200 ms pieces of audio with a file.

    Pieces, because on a busy machine Chromium's fake microphone itself skips now and then.
    """
    played, file_hz = soundfile.read(wav, dtype="float32")
    whole = samplerate.resample(played, rate_hz / file_hz, "sinc_medium").astype(np.float64)
    step = rate_hz // 5
    pieces = [audio[i : i + step] for i in range(0, len(audio) - step, step)]
    loud = [piece for piece in pieces if np.sqrt(np.mean(piece**2)) > LOUD_RMS]
    assert len(loud) >= 3
    return float(np.median([best_correlation(piece, whole) for piece in loud]))


async def record(page: Page, server: ScriptedServer, ms: int) -> NDArray[np.float64]:
    await page.click("#toggle")
    await until(page, IS_LIVE)
    await server.heard(ms)
    await page.click("#toggle")
    await until(page, IS_IDLE)
    return np.frombuffer(bytes(server.stream.audio), "<i2").astype(np.float64)


async def test_the_microphone_arrives_in_frames_of_10_ms(
    open_page: OpenPage, spoken_wav: Path
) -> None:
    async with open_page(Script()) as (page, server):
        audio = await record(page, server, 3000)
        stream = server.stream
        assert stream.start["sample_rate"] == 16000
        live = stream.sizes[5:-1]
        assert sum(size == 320 for size in live) >= 0.9 * len(live)
        assert all(size % 320 == 0 for size in live)
        elapsed_s = stream.arrivals_s[-1] - stream.arrivals_s[0]
        assert stream.received_ms == pytest.approx(1000 * elapsed_s, rel=0.1)
        assert likeness(audio, spoken_wav, 16000) > 0.98


async def test_a_browser_that_cannot_resample_sends_its_own_rate(
    open_page: OpenPage, spoken_wav: Path
) -> None:
    async with open_page(Script()) as (page, server):
        await page.evaluate("""() => {
          const Original = window.AudioContext;
          window.AudioContext = class extends Original {
            constructor(options) {
              super(options);
              this.asked = options?.sampleRate;
            }
            createMediaStreamSource(media) {
              if (this.asked) throw new DOMException("other rate", "NotSupportedError");
              return super.createMediaStreamSource(media);
            }
          };
        }""")
        audio = await record(page, server, 2000)
        rate_hz = server.stream.start["sample_rate"]
        assert rate_hz in (44100, 48000)
        live = server.stream.sizes[5:-1]
        assert sum(size == rate_hz // 100 * 2 for size in live) >= 0.9 * len(live)
        assert likeness(audio, spoken_wav, rate_hz) > 0.98


async def test_stop_sends_the_started_frame_too(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, server):
        await page.evaluate("""async () => {
          window.nSamples = 0;
          const { Capture } = await import("./js/capture.js");
          const off = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
          const capture = await Capture.open({ source: "", ...off });
          capture.addEventListener("frame", ({ detail }) => { nSamples += detail.samples.length; });
          await capture.start();
          await new Promise((resolve) => setTimeout(resolve, 505));
          await capture.stop();
        }""")
        n_samples = await page.evaluate("nSamples")
        assert n_samples > 16 * 300
        assert n_samples % 128 == 0  # every block the audio thread rendered, not only whole frames
        assert server.streams == []


@pytest.mark.parametrize("is_on", [False, True])
async def test_processing_is_as_chosen(open_page: OpenPage, *, is_on: bool) -> None:
    async with open_page(Script()) as (page, _server):
        await page.evaluate("""() => {
          const { mediaDevices } = navigator;
          const original = mediaDevices.getUserMedia.bind(mediaDevices);
          window.asked = [];
          mediaDevices.getUserMedia = (wish) => { asked.push(wish.audio); return original(wish); };
        }""")
        if is_on:
            await page.click("#open-settings")
            for name in ("echoCancellation", "noiseSuppression", "autoGainControl"):
                await page.check(f"[data-setting={name}]")
            await page.keyboard.press("Escape")
        await page.click("#toggle")
        await until(page, IS_LIVE)
        [wish] = await page.evaluate("asked")
        assert [wish[n] for n in ("echoCancellation", "noiseSuppression", "autoGainControl")] == [
            is_on
        ] * 3


async def test_another_source_can_be_taken_while_recording(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, server):
        await page.click("#toggle")
        await until(page, IS_LIVE)
        await until(page, "document.querySelector('#source').options.length > 1")
        values = await page.evaluate(
            "[...document.querySelector('#source').options].map((o) => o.value)"
        )
        microphones = [value for value in values if value not in ("", "tab")]
        assert microphones
        before_ms = server.stream.received_ms
        await page.select_option("#source", microphones[-1])
        await server.heard(before_ms + 1500)
        assert len(server.streams) == 1
        assert await page.evaluate(PROBLEMS) == []


async def test_a_microphone_that_is_gone_is_replaced_and_told(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, server):
        await page.evaluate("""() => localStorage.setItem("audiokv.settings",
          JSON.stringify({ source: "no-such-device" }))""")
        await page.reload()
        await page.click("#toggle")
        await until(page, IS_LIVE)
        assert await page.evaluate(PROBLEMS) == ["device-gone"]
        assert server.streams


async def test_an_unplugged_microphone_ends_the_stream_with_its_last_words(
    open_page: OpenPage,
) -> None:
    async with open_page(Script()) as (page, server):
        await page.evaluate("""() => {
          const { mediaDevices } = navigator;
          const original = mediaDevices.getUserMedia.bind(mediaDevices);
          mediaDevices.getUserMedia = async (wish) => {
            window.media = await original(wish);
            return media;
          };
        }""")
        await page.click("#toggle")
        await until(page, IS_LIVE)
        await page.evaluate("media.getAudioTracks()[0].dispatchEvent(new Event('ended'))")
        await until(page, IS_IDLE)
        assert await page.evaluate(PROBLEMS) == ["unplugged"]
        assert server.stream.is_done


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("NotAllowedError", "denied"),
        ("NotFoundError", "no-device"),
        ("NotReadableError", "busy"),
        ("AbortError", "busy"),
    ],
)
async def test_what_the_browser_says_is_put_into_words(
    open_page: OpenPage, name: str, problem: str
) -> None:
    async with open_page(Script()) as (page, server):
        await page.evaluate(
            """(name) => {
              navigator.mediaDevices.getUserMedia = async () => {
                throw new DOMException("", name);
              };
            }""",
            name,
        )
        await page.click("#toggle")
        await until(page, f"{PROBLEMS}.length > 0")
        assert await page.evaluate(PROBLEMS) == [problem]
        assert await page.evaluate(IS_IDLE)
        assert server.streams == []


async def test_a_microphone_really_denied_is_told() -> None:
    flags = ["--deny-permission-prompts", "--use-fake-device-for-media-stream"]
    async with ScriptedServer(Script()) as server, open_browser(flags) as browser:
        page = await browser.new_page()
        await page.goto(server.url)
        await page.click("#toggle")
        await until(page, f"{PROBLEMS}.length > 0")
        assert await page.evaluate(PROBLEMS) == ["denied"]
        text = await page.inner_text(".notice")
        assert "Allow the microphone" in text


async def test_an_address_that_is_not_secure_is_told_at_once() -> None:
    flags = ["--host-resolver-rules=MAP captions.test 127.0.0.1"]
    async with ScriptedServer(Script()) as server, open_browser(flags) as browser:
        page = await browser.new_page()
        await page.goto(f"http://captions.test:{server.port}/")
        assert await page.evaluate(PROBLEMS) == ["insecure"]
        await page.click(".notice button")
        await page.click("#toggle")
        await until(page, f"{PROBLEMS}.length > 0")
        assert await page.evaluate(PROBLEMS) == ["insecure"]


async def test_silence_is_noticed_and_the_notice_goes_with_sound(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, _server):
        result: Any = await page.evaluate("""async () => {
          const { Recorder } = await import("./js/recorder.js");
          const { Capture } = await import("./js/capture.js");
          const { socketUrl } = await import("./js/protocol.js");
          const open = Capture.open;
          let capture;
          Capture.open = async (options) => {
            capture = await open.call(Capture, options);
            return capture;
          };
          const recorder = new Recorder(socketUrl("v1/stream", location.href));
          const seen = [];
          recorder.addEventListener("problem", ({ detail }) => seen.push(detail.id));
          recorder.addEventListener("solved", ({ detail }) => seen.push(`not ${detail}`));
          await recorder.start({ source: "" }, "");
          const frame = (peak) => capture.dispatchEvent(new CustomEvent("frame", {
            detail: { samples: new Int16Array(160), peak } }));
          for (let i = 0; i < 900; i += 1) frame(0);
          frame(0.3);
          await recorder.stop();
          await recorder.stop();
          return seen;
        }""")
        assert result == ["silent", "not silent"]
