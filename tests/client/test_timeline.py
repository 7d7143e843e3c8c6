from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from audiokv.client.timeline import Timeline


def test_at_first_both_clocks_are_one() -> None:
    timeline = Timeline(16_000)
    assert timeline.source_sample(123) == 123
    assert timeline.start_ms(500) == timeline.end_ms(500) == 500


def test_a_restarted_stream_counts_on_from_where_it_began() -> None:
    timeline = Timeline(16_000)
    timeline.restart(32_000)
    assert timeline.source_sample(10) == 32_010
    assert timeline.start_ms(0) == 2_000
    assert timeline.end_ms(100) == 2_100


def test_what_ends_at_a_jump_belongs_to_before_and_what_begins_there_to_after() -> None:
    timeline = Timeline(16_000)
    timeline.jump(16_000, 48_000)
    assert timeline.end_ms(1_000) == 1_000
    assert timeline.start_ms(1_000) == 3_000
    assert timeline.end_ms(1_001) == 3_001
    assert timeline.source_sample(15_999) == 15_999
    assert timeline.source_sample(16_000) == 48_000


def test_a_jump_the_server_never_reached_is_forgotten() -> None:
    timeline = Timeline(16_000)
    timeline.jump(100, 200)
    timeline.jump(300, 600)
    timeline.cut_back(299)
    assert timeline.source_sample(400) == 500
    timeline.jump(100, 900)
    assert timeline.source_sample(100) == 900


def test_a_jump_at_the_very_start_replaces_the_first_position() -> None:
    timeline = Timeline(16_000)
    timeline.jump(0, 160)
    assert timeline.source_sample(0) == 160
    timeline.cut_back(0)
    assert timeline.source_sample(5) == 165


def test_memory_is_bounded() -> None:
    timeline = Timeline(16_000)
    for i in range(1, 1_000):
        timeline.jump(i * 10, i * 20)
    assert timeline.source_sample(9_995) == 19_985
    assert len(timeline._jumps) == 256
    timeline.cut_back(0)
    assert len(timeline._jumps) == 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 500)), max_size=20))
def test_the_source_never_runs_back(jumps: list[tuple[int, int]]) -> None:
    timeline = Timeline(8_000)
    stream = source = 0
    for step, gap in jumps:
        stream += step
        source += step + gap
        timeline.jump(stream, source)
    positions = [timeline.source_sample(i) for i in range(stream + 10)]
    assert positions == sorted(positions)
    assert all(timeline.end_ms(ms) <= timeline.start_ms(ms) for ms in range(stream // 8 + 2))
