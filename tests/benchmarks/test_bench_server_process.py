from __future__ import annotations

import os

import pytest

from benchmarks.server_process import ProcessWatch, serving, stream_url, watched


def test_the_address_is_read_from_what_the_server_says() -> None:
    line = "Captions with whisper-base at http://127.0.0.1:8765/\n"
    assert stream_url(line) == "ws://127.0.0.1:8765/v1/stream"
    assert stream_url("x at https://host:1/\n") == "wss://host:1/v1/stream"
    assert stream_url("model = whisper-base (default)\n") is None


async def test_a_process_is_watched() -> None:
    async with watched(os.getpid()) as use:
        sum(i * i for i in range(300_000))
    assert use.peak_rss_bytes > 10_000_000
    assert 0.0 < use.cpu_s < 60.0
    assert ProcessWatch(os.getpid()).use().cpu_s < use.cpu_s


async def test_a_server_that_cannot_start_is_told() -> None:
    with pytest.raises(SystemExit, match="status 2"):
        async with serving("whisper-base", ["--max-streams", "none"]):
            pass
