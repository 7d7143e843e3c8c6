from __future__ import annotations

from audiokv.streaming.session_options import SessionOptions


def test_defaults_fit_together() -> None:
    options = SessionOptions()
    # A step must fall between the time a segment's last hypothesis may stand and its end.
    assert options.settle_ms + options.step_ms <= options.pause_ms
    # A segment that joins a window must not fill it, and a long one must end before 30 s.
    assert options.context_ms + options.max_segment_ms < 30_000
    assert options.blank_ms < options.max_segment_ms
    assert options.voice.min_silence_ms < options.pause_ms
    assert options.show.guard_ms <= options.commit.guard_ms
