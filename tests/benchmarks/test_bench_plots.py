from __future__ import annotations

from pathlib import Path

from benchmarks.plots import plot_captions
from benchmarks.recordings import Recording
from benchmarks.scoring import Heard, Summary, score
from tests.benchmarks.making import arrival

WAIT = Recording("wait.wav", Path("wait.wav"), "en", "he could wait")


def test_a_plot_is_drawn_also_of_a_column_that_heard_nothing(tmp_path: Path) -> None:
    ends = (("he", 200.0), ("could", 400.0), ("wait", 700.0))
    one = score(Heard(WAIT, [arrival(900, "he could", is_final=True)], ends, "he could wait"))
    deaf = score(Heard(WAIT, [], ends, "he could wait"))
    path = tmp_path / "captions.png"
    plot_captions({"a": Summary([one]), "b": Summary([deaf])}, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000
