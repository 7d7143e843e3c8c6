"""Kept audio: what was appended can be read back from any position that is still kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

APPEND_AND_READ = """
async ({ lengths, limit, drop, from, count }) => {
  const { KeptAudio } = await import("./js/kept_audio.js");
  const kept = new KeptAudio(limit);
  let next = 0;
  for (const length of lengths) {
    kept.append(Int16Array.from({ length }, () => (next++) % 30000));
  }
  kept.dropBefore(drop);
  const { start, end } = kept;
  const position = Math.min(end, Math.max(start, from));
  return { start, end, position, samples: [...kept.read(position, count)] };
}
"""


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lengths=st.lists(st.integers(0, 40), max_size=30),
    numbers=st.fixed_dictionaries(
        {
            "limit": st.integers(0, 400),
            "drop": st.integers(0, 1000),
            "from": st.integers(0, 1200),
            "count": st.integers(0, 300),
        }
    ),
)
async def test_what_is_kept_reads_back(
    blank_page: Page, lengths: list[int], numbers: dict[str, int]
) -> None:
    got = await blank_page.evaluate(APPEND_AND_READ, {"lengths": lengths, **numbers})
    limit, drop, count = numbers["limit"], numbers["drop"], numbers["count"]
    total = sum(lengths)
    assert got["end"] == total
    begin = got["position"]
    assert got["samples"] == [n % 30000 for n in range(begin, min(total, begin + count))]
    longest = max(lengths, default=0)
    assert got["start"] >= min(total, max(drop, total - limit)) - longest
    assert got["start"] <= max(drop, total - limit, 0)


async def test_dropping_is_cheap_and_exact_over_an_hour(blank_page: Page) -> None:
    start, end, first = await blank_page.evaluate("""async () => {
      const { KeptAudio } = await import("./js/kept_audio.js");
      const kept = new KeptAudio(16000 * 60);
      for (let i = 0; i < 360000; i += 1) {
        kept.append(new Int16Array(160).fill(i % 30000));
        if (i % 25 === 0) kept.dropBefore(kept.end - 16000);
      }
      return [kept.start, kept.end, kept.read(kept.start, 1)[0]];
    }""")
    assert end == 360000 * 160
    assert end - 16000 - 25 * 160 <= start <= end - 16000
    assert first == start // 160 % 30000


async def test_reading_what_was_dropped_is_an_error(blank_page: Page) -> None:
    message = await blank_page.evaluate("""async () => {
      const { KeptAudio } = await import("./js/kept_audio.js");
      const kept = new KeptAudio(1000);
      kept.append(new Int16Array(160));
      kept.dropBefore(160);
      try { kept.read(0, 10); } catch (error) { return error.message; }
    }""")
    assert message == "Sample 0 is no longer kept."
