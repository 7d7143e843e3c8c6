"""The source's link: no sample lost, no caption twice, whatever happens to the connection."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.client.web.script import Script, caption_message

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from playwright.async_api import Page

    from tests.client.web.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

RATE_HZ = 16_000
FRAME = 160

# Pushes a recording whose samples tell their position, ten frames each 10 ms.
DRIVE = """async ({ options = {}, ms, update = null, stopAfterMs = null, everyMs = 10 }) => {
  const { StreamLink } = await import("./js/stream_link.js");
  const { socketUrl } = await import("./js/protocol.js");
  const link = new StreamLink({
    url: socketUrl("v1/stream", location.href), firstRetryMs: 40,
    start: { sampleRateHz: 16000 }, ...options,
  });
  const log = { captions: [], states: [], problems: [], lostMs: 0, warnings: [] };
  link.addEventListener("caption", ({ detail }) => log.captions.push(detail));
  link.addEventListener("lost", ({ detail }) => { log.lostMs += detail.ms; });
  const over = new Promise((resolve) => link.addEventListener("state", ({ detail }) => {
    log.states.push(detail.state);
    if (detail.problem) log.problems.push(detail.problem);
    if (["ended", "failed"].includes(detail.state)) resolve();
  }));
  link.open();
  let position = 0;
  const frame = () => Int16Array.from({ length: 160 }, () => (position++ * 31) % 32749);
  while (position < ms * 16 && link.state !== "failed") {
    for (let i = 0; i < 10; i += 1) link.push(frame());
    if (update && position === 16000) {
      while (link.state !== "live") await new Promise((resolve) => setTimeout(resolve, 5));
      link.update(update);
    }
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
  if (stopAfterMs !== null) await new Promise((resolve) => setTimeout(resolve, stopAfterMs));
  link.stop();
  await over;
  return log;
}"""


def recording(ms: int) -> NDArray[np.int16]:
    return (np.arange(ms * RATE_HZ // 1000, dtype=np.int64) * 31 % 32749).astype(np.int16)


def heard(audio: bytes | bytearray) -> NDArray[np.int16]:
    return np.frombuffer(bytes(audio), "<i2")


async def drive(page: Page, ms: int, **more: Any) -> dict[str, Any]:
    log: dict[str, Any] = await page.evaluate(DRIVE, {"ms": ms, **more})
    return log


def script_of_words(n_words: int) -> list[tuple[int, dict[str, Any]]]:
    """One segment of a word each 200 ms, two of them tentative, then its final."""
    words = [f"w{i}" for i in range(n_words)]
    said = [
        (200 * i, caption_message(0, " ".join(words[:i]), max(0, i - 2)))
        for i in range(1, n_words + 1)
    ]
    return [*said, (200 * n_words + 100, caption_message(0, " ".join(words)))]


async def test_undisturbed_audio_arrives_frame_by_frame(open_page: OpenPage) -> None:
    async with open_page(Script(script_of_words(5))) as (page, server):
        log = await drive(page, 2000)
        np.testing.assert_array_equal(heard(server.stream.audio), recording(2000))
        assert set(server.stream.sizes[10:]) == {2 * FRAME}
        assert server.starts == [
            {
                "type": "start",
                "version": 1,
                "encoding": "pcm_s16le",
                "sample_rate": 16000,
                "channels": 1,
                "language": "auto",
            }
        ]
        assert log["states"] == ["connecting", "live", "ended"]
        assert [c["seq"] for c in log["captions"]] == [1, 2, 3, 4, 5, 6]
        assert log["captions"][-1]["final"]


@pytest.mark.parametrize("seed", [1, 2])
async def test_ten_cuts_lose_no_sample_and_repeat_no_caption(
    open_page: OpenPage, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311  a test needs no secrets
    cuts = sorted(chance.sample(range(100, 9800), 10))
    script = Script(script_of_words(45), cut_at_ms=cuts, lost_ms=chance.randrange(0, 700))
    async with open_page(script) as (page, server):
        log = await drive(page, 10_000)
        assert len(server.streams) == 1
        assert len(server.starts) == 11
        np.testing.assert_array_equal(heard(server.stream.audio), recording(10_000))
        assert [c["seq"] for c in log["captions"]] == list(range(1, 47))
        assert log["captions"][-1]["text"] == " ".join(f"w{i}" for i in range(45))
        assert log["states"][-1] == "ended"


async def test_resuming_tells_the_last_caption_seen(open_page: OpenPage) -> None:
    async with open_page(Script(script_of_words(8), cut_at_ms=[1050])) as (page, server):
        await drive(page, 2000)
        assert server.starts[0] == {k: v for k, v in server.starts[1].items() if k != "resume"}
        resume = server.starts[1]["resume"]
        assert resume in ({"token": "r-s-0", "last_seq": 4}, {"token": "r-s-0", "last_seq": 5})


async def test_captions_sent_again_are_shown_once(open_page: OpenPage) -> None:
    said = [caption_message(0, "word " * n, 0, seq=n) for n in (1, 2, 1, 3)]
    twice = [(200 * (i + 1), caption) for i, caption in enumerate(said)]
    async with open_page(Script(twice)) as (page, _server):
        log = await drive(page, 1000)
        assert [c["seq"] for c in log["captions"] if not c["final"]] == [1, 2, 3]


async def test_while_away_audio_is_kept_and_caught_up_in_larger_messages(
    open_page: OpenPage,
) -> None:
    script = Script(script_of_words(10), cut_at_ms=[500], away_s=0.5)
    async with open_page(script) as (page, server):
        log = await drive(page, 3000)
        np.testing.assert_array_equal(heard(server.stream.audio), recording(3000))
        assert max(server.stream.sizes) > 20 * 2 * FRAME
        assert max(server.stream.sizes) <= 32_768
        assert "unreachable" in [p["id"] for p in log["problems"]]


async def test_a_forgotten_stream_goes_on_from_the_settled_words(open_page: OpenPage) -> None:
    first = [
        (400, caption_message(0, "All done.", at_ms=100)),
        (1500, caption_message(1, "these are committed not these", 3, at_ms=700)),
    ]
    later = [(300, caption_message(0, "not these either.", at_ms=50))]
    script = Script(first, later_captions=later, cut_at_ms=[2000], is_forgetful=True)
    async with open_page(script) as (page, server):
        log = await drive(page, 3000)
        settled_ms = 700 + 2 * 300 + 250
        assert len(server.streams) == 2
        np.testing.assert_array_equal(
            heard(server.stream.audio), recording(3000)[settled_ms * RATE_HZ // 1000 :]
        )
        finals = [c for c in log["captions"] if c["final"]]
        assert [" ".join(w["text"] for w in c["words"]) for c in finals] == [
            "All done.",
            "these are committed",
            "not these either.",
        ]
        assert finals[2]["start_ms"] == finals[2]["words"][0]["start_ms"] == settled_ms + 50
        assert len({c["key"] for c in finals}) == 3
        assert "resume" not in server.starts[-1]


async def test_after_silence_a_forgotten_stream_repeats_little(open_page: OpenPage) -> None:
    script = Script([], cut_at_ms=[2000], is_forgetful=True)
    async with open_page(script) as (page, server):
        await drive(page, 2500)
        repeated = server.streams[0].n_samples + server.streams[1].n_samples - 2500 * 16
        assert 0 <= repeated <= 16 * 500


async def test_no_more_is_sent_ahead_than_the_server_allows(open_page: OpenPage) -> None:
    async with open_page(Script(unacknowledged_ms=700, is_mute=True)) as (page, server):
        log = await drive(page, 2000, options={"stopTimeoutMs": 300, "silenceTimeoutMs": 60_000})
        np.testing.assert_array_equal(heard(server.stream.audio), recording(700))
        assert log["problems"][-1]["id"] == "incomplete"


async def test_away_too_long_is_told_and_the_rest_goes_on(open_page: OpenPage) -> None:
    script = Script([], cut_at_ms=[500], away_s=0.6)
    async with open_page(script) as (page, server):
        log = await drive(page, 6000, options={"keptMs": 1000})
        assert log["lostMs"] > 0
        whole = recording(6000)
        assert server.streams[0].is_done
        rest = heard(server.stream.audio)
        np.testing.assert_array_equal(rest, whole[len(whole) - len(rest) :])
        missing_ms = 6000 - sum(s.received_ms for s in server.streams)
        assert abs(missing_ms - log["lostMs"]) <= 20


async def test_a_full_server_is_asked_again_when_it_said(open_page: OpenPage) -> None:
    async with open_page(Script(n_full=2, retry_after_s=0.1)) as (page, server):
        log = await drive(page, 1500)
        assert log["states"][:6] == ["connecting", "waiting"] * 2 + ["connecting", "live"]
        assert [p["id"] for p in log["problems"]] == ["full"] * len(log["problems"])
        assert log["problems"][0]["title"] == "All places are taken."
        np.testing.assert_array_equal(heard(server.stream.audio), recording(1500))


async def test_what_trying_again_cannot_help_ends_the_stream(open_page: OpenPage) -> None:
    told = {"code": "bad_audio", "message": "That is no audio.", "remedy": "Send PCM."}
    async with open_page(Script(error=(told, 1003))) as (page, _server):
        log = await drive(page, 1500)
        assert log["states"][-1] == "failed"
        assert log["problems"][-1] == {
            "id": "bad_audio",
            "title": "That is no audio.",
            "remedy": "Send PCM.",
        }


async def test_a_session_that_keeps_breaking_is_replaced(open_page: OpenPage) -> None:
    told = {"code": "internal", "message": "It broke."}
    said = [(200, caption_message(0, "kept words lost", 2))]
    script = Script(said, error=(told, 1011), n_errors=3)
    async with open_page(script) as (page, server):
        log = await drive(page, 4000)
        assert log["states"][-1] == "ended"
        assert len(server.streams) == 2
        assert ["resume" in start for start in server.starts] == [False, True, True, False]
        assert [c["text"] for c in log["captions"] if c["final"]] == ["kept words"]
        np.testing.assert_array_equal(heard(server.stream.audio), recording(4000)[550 * 16 :])


async def test_stop_waits_for_the_last_words_across_a_cut(open_page: OpenPage) -> None:
    script = Script(
        [(10_000, caption_message(0, "the very last words"))], cut_at_ms=[990], away_s=0.4
    )
    async with open_page(script) as (page, server):
        log = await drive(page, 1000)
        assert server.stream.controls == [{"type": "stop"}]
        assert [c["text"] for c in log["captions"]] == ["the very last words"]
        np.testing.assert_array_equal(heard(server.stream.audio), recording(1000))


async def test_a_server_that_fell_silent_is_left_and_found_again(open_page: OpenPage) -> None:
    async with open_page(Script(is_mute=True)) as (page, server):
        await drive(page, 2000, options={"silenceTimeoutMs": 300}, everyMs=100)
        assert len(server.starts) > 1
        np.testing.assert_array_equal(heard(server.stream.audio), recording(2000))


async def test_a_pause_in_the_audio_sends_a_sign_of_life(open_page: OpenPage) -> None:
    async with open_page(Script()) as (page, server):
        await drive(page, 200, options={"keepaliveMs": 300}, stopAfterMs=900)
        kinds = [control["type"] for control in server.stream.controls]
        assert kinds[-1] == "stop"
        assert 1 <= kinds.count("keepalive") <= 3


async def test_changes_reach_the_stream_and_its_successor(open_page: OpenPage) -> None:
    script = Script([], cut_at_ms=[1500], is_forgetful=True)
    async with open_page(script) as (page, server):
        await drive(page, 2500, update={"language": "de", "prompt": "Leiche"})
        assert server.streams[0].controls == [
            {"type": "update", "language": "de", "prompt": "Leiche"}
        ]
        assert server.starts[0]["language"] == "auto"
        assert (server.starts[-1]["language"], server.starts[-1]["prompt"]) == ("de", "Leiche")
