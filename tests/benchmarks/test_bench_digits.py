from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.digit_streams import digit_stream
from benchmarks.digits import copy_with_positions, errors_offline, parse_arguments
from tools.digits_data import DigitBank, Recording

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.recordings import FloatArray


@pytest.mark.parametrize(
    ("settings", "expected"),
    [(None, 4096), ({"prompt": "plain"}, 4096), ({"max_positions": 900}, 900)],
)
def test_a_copy_names_positions_where_the_checkpoint_does_not(
    tmp_path: Path, settings: dict[str, object] | None, expected: int
) -> None:
    checkpoint = tmp_path / "made"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{}")
    if settings is not None:
        (checkpoint / "audiokv.json").write_text(json.dumps(settings))
    copy = copy_with_positions(checkpoint, 4096, tmp_path / "copy")
    assert (copy / "config.json").read_text() == "{}"
    found = json.loads((copy / "audiokv.json").read_text())
    assert found == {**(settings or {}), "max_positions": expected}
    assert (checkpoint / "audiokv.json").exists() is (settings is not None)


def test_strings_of_a_stream_are_decoded_one_by_one() -> None:
    bank = DigitBank([Recording(digit, "x", np.full(1600, 0.1, np.float32)) for digit in range(10)])
    stream = digit_stream(bank, 20_000, 1)
    heard: list[int] = []

    class Offline:
        def text(self, samples: FloatArray) -> str:
            heard.append(samples.size)
            return stream.strings[len(heard) - 1].text if len(heard) > 1 else ""

    found = errors_offline(stream, Offline())  # type: ignore[arg-type]
    assert [one.total for one in found] == [
        len(stream.strings[0].words),
        *[0] * (len(stream.strings) - 1),
    ]
    assert heard == [round((one.end_ms - one.start_ms) * 16) for one in stream.strings]


def test_the_hour_is_the_default() -> None:
    args = parse_arguments([])
    assert (args.minutes, args.budget_slots, args.policy) == (60.0, 256, "audiokv")
    assert 3 * args.digits_a_group >= 600
