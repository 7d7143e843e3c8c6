"""What was measured of one clip in one cell, and the files it is kept in.

One file for each mode, model and speech, a JSON object a line: either a run with its provenance or
a row that names its run. Rows are only ever appended, one write each, so that several processes can
fill one table and a run that was broken off goes on where it stopped. Where a cell was measured
more than once, the last one counts.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measures import scored_units
from benchmarks.results_file import RESULTS
from benchmarks.retention_held import Held

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.retention_speech import Clip

FOLDER = RESULTS / "retention"
FULL = "full"
FULL_PERCENT = 100
_PHRASE_UNITS = 4
_MIN_REPEATS = 3


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One clip under one policy.

    Attributes:
        clip: Name of the clip.
        policy: Name of the policy or of a variant of it.
        seed: Of a policy that draws lots, else 0.
        retention_percent: Budget as a share of what the full cache holds at the most.
    """

    clip: str
    policy: str
    seed: int
    retention_percent: int


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one cell.

    Attributes:
        cell: Where it belongs.
        cluster: What it is resampled with.
        language: Of the clip.
        text: What was heard.
        substitutions: Errors of this kind; likewise the next two.
        deletions: See above.
        insertions: See above.
        n_reference: Units that were said.
        is_looping: Whether a phrase of four units stands there again and again.
        held: What the cache held.
        run: Number of the run.
    """

    cell: Cell
    cluster: str
    language: str
    text: str
    substitutions: int
    deletions: int
    insertions: int
    n_reference: int
    is_looping: bool
    held: Held
    run: str = ""

    @property
    def n_errors(self) -> int:
        """All errors."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def is_collapsed(self) -> bool:
        """Whether there are more errors than units, a loop, or a text that was cut off."""
        return self.n_errors > self.n_reference or self.is_looping or self._is_cut

    @property
    def _is_cut(self) -> bool:
        # A clip that is decoded once has no later step that could mend it.
        return bool(self.held.n_cut) and self.held.n_cut == self.held.n_steps

    @classmethod
    def of(cls, clip: Clip, cell: Cell, text: str, held: Held) -> Row:
        """Return what was heard of a clip, scored."""
        counted = clip.errors(text)
        return cls(
            cell=cell,
            cluster=clip.cluster,
            language=clip.language,
            text=text,
            substitutions=counted.substitutions,
            deletions=counted.deletions,
            insertions=counted.insertions,
            n_reference=counted.n_reference,
            is_looping=is_looping(clip.text, text, clip.language),
            held=held,
        )

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Row:
        """Read what ``as_json`` wrote."""
        cell = Cell(**entry["cell"])
        held = Held(**entry["held"])
        rest = {key: value for key, value in entry.items() if key not in {"cell", "held"}}
        return cls(cell=cell, held=held, **rest)

    def as_json(self) -> dict[str, object]:
        """Return it for a file."""
        return asdict(self)


@dataclass(slots=True)
class Table:
    """The rows of one mode, model and speech, on disk.

    Attributes:
        path: The file; it need not exist yet.
        run: Name of the run under way, which new rows carry.
        rows: What is there.
        runs: Provenance by run.
    """

    path: Path
    run: str = ""
    rows: dict[Cell, Row] = field(default_factory=dict)
    runs: dict[str, dict[str, object]] = field(default_factory=dict)

    @classmethod
    def open(cls, mode: str, model: str, speech: str, folder: Path = FOLDER) -> Table:
        """Read the table of a mode, a model and a speech.

        Args:
            mode: One of P, D and S.
            model: Name of the model, or its folder.
            speech: Name of the speech.
            folder: Where it lies.
        """
        table = cls(folder / f"{mode}_{Path(model).name}_{speech}.jsonl")
        if table.path.is_file():
            for line in table.path.read_text("utf-8").splitlines():
                table._take(json.loads(line))
        return table

    def begin(self, origin: Mapping[str, object], settings: Mapping[str, object]) -> None:
        """Begin a run, which the rows that follow belong to."""
        self.run = f"{origin['date']}-{os.getpid()}"
        self._append({"run": self.run, "origin": dict(origin), "settings": dict(settings)})

    def add(self, row: Row) -> None:
        """Add a row and write it."""
        self._append({**row.as_json(), "run": self.run})

    def missing(self, cells: Sequence[Cell], again: Sequence[str] = ()) -> list[Cell]:
        """Return the cells that this run still has to measure.

        Args:
            cells: What is wanted.
            again: Policies whose rows of other runs do not count.
        """
        return [
            cell
            for cell in cells
            if cell not in self.rows or (cell.policy in again and self.rows[cell].run != self.run)
        ]

    def _append(self, entry: dict[str, object]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(entry, ensure_ascii=False) + "\n"
        with self.path.open("ab", buffering=0) as file:
            file.write(line.encode())
        self._take(entry)

    def _take(self, entry: dict[str, object]) -> None:
        if "cell" in entry:
            row = Row.from_json(entry)
            self.rows[row.cell] = row
        else:
            self.runs[str(entry["run"])] = entry


def is_looping(said: str, heard: str, language: str) -> bool:
    """Tell whether a phrase of four units is heard three times or more, and more than it was said.

    Args:
        said: The true text.
        heard: The hypothesis.
        language: ISO 639-1 code; decides what a unit is.
    """
    true = _phrases(scored_units(said, language))
    return any(
        n >= _MIN_REPEATS and n > true.get(phrase, 0)
        for phrase, n in _phrases(scored_units(heard, language)).items()
    )


def _phrases(units: Sequence[str]) -> dict[tuple[str, ...], int]:
    found: dict[tuple[str, ...], int] = defaultdict(int)
    for first in range(len(units) - _PHRASE_UNITS + 1):
        found[tuple(units[first : first + _PHRASE_UNITS])] += 1
    return found
