"""From captions with arrival times to figures, file by file and pooled."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.measures import (
    Arrival,
    Errors,
    changed_commitments,
    errors,
    final_text,
    final_words,
    n_erased_words,
    normalised,
    percentiles,
    reference_ends_ms,
    word_timings,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.recordings import Recording


@dataclass(frozen=True, slots=True)
class Heard:
    """What one way of captioning made of one recording.

    Attributes:
        recording: What was said.
        arrivals: Its captions.
        word_ends: True words with their ends in ms, from the manifest or aligned.
        offline_text: What offline decoding of the same weights makes of it.
        end_lag_ms: Lag when the last audio had come.
    """

    recording: Recording
    arrivals: Sequence[Arrival]
    word_ends: Sequence[tuple[str, float]]
    offline_text: str
    end_lag_ms: float = 0.0


@dataclass(slots=True)
class Score:
    """Figures of one recording.

    Attributes:
        name: The recording.
        language: Its language.
        heard_languages: Languages its captions named.
        text: The final text.
        streaming: Errors of the final text.
        offline: Errors of offline decoding.
        shown_ms: First showing of each final word, less its true end.
        committed_ms: Commitment of each final word, less its true end.
        finalised_ms: Last final caption less the true end of the last word; None without text.
        n_words: Final words.
        n_erased: Displayed words taken back, case and punctuation aside.
        n_erased_strict: Displayed words taken back, in any respect.
        n_changed: Committed words that changed.
        end_lag_ms: Lag when the last audio had come.
    """

    name: str
    language: str
    heard_languages: list[str]
    text: str
    streaming: Errors
    offline: Errors
    shown_ms: list[float] = field(default_factory=list)
    committed_ms: list[float] = field(default_factory=list)
    finalised_ms: float | None = None
    n_words: int = 0
    n_erased: int = 0
    n_erased_strict: int = 0
    n_changed: int = 0
    end_lag_ms: float = 0.0

    def as_json(self) -> dict[str, object]:
        """Return the figures with latencies as percentiles."""
        return {
            "file": self.name,
            "language": self.language,
            "heard_languages": self.heard_languages,
            "text": self.text,
            "streaming": errors_as_json(self.streaming),
            "offline": errors_as_json(self.offline),
            "shown_latency_ms": percentiles(self.shown_ms),
            "commit_latency_ms": percentiles(self.committed_ms),
            "finalisation_latency_ms": _rounded(self.finalised_ms),
            "n_words": self.n_words,
            "n_erased": self.n_erased,
            "n_erased_strict": self.n_erased_strict,
            "n_changed_committed": self.n_changed,
            "end_lag_ms": round(self.end_lag_ms, 1),
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def errors_as_json(counted: Errors) -> dict[str, object]:
    """Return counts and rate in per cent."""
    return {
        "error_percent": round(100 * counted.rate, 2),
        "substitutions": counted.substitutions,
        "deletions": counted.deletions,
        "insertions": counted.insertions,
        "n_reference": counted.n_reference,
    }


def score(heard: Heard) -> Score:
    """Return the figures of one recording."""
    recording, arrivals = heard.recording, heard.arrivals
    timings = word_timings(arrivals)
    ends = reference_ends_ms([t.word.text for t in timings], heard.word_ends, recording.language)
    known = [(t, end) for t, end in zip(timings, ends, strict=True) if end is not None]
    finals = [a.at_ms for a in arrivals if a.caption.is_final and a.caption.words]
    text = final_text(arrivals)
    return Score(
        name=recording.name,
        language=recording.language,
        heard_languages=sorted({a.caption.language for a in arrivals if a.caption.language}),
        text=text,
        streaming=errors(recording.text, text, recording.language),
        offline=errors(recording.text, heard.offline_text, recording.language),
        shown_ms=[t.shown_ms - end for t, end in known],
        committed_ms=[t.committed_ms - end for t, end in known],
        finalised_ms=finals[-1] - heard.word_ends[-1][1] if finals and heard.word_ends else None,
        n_words=len(final_words(arrivals)),
        n_erased=n_erased_words(arrivals, normalised),
        n_erased_strict=n_erased_words(arrivals),
        n_changed=changed_commitments(arrivals),
        end_lag_ms=heard.end_lag_ms,
    )


@dataclass(slots=True)
class Summary:
    """Figures of one way of captioning over all recordings.

    Attributes:
        scores: Its recordings.
    """

    scores: Sequence[Score]

    def errors_by_language(self) -> dict[str, tuple[Errors, Errors]]:
        """Return streaming and offline errors of each language, recordings of one pooled."""
        found: dict[str, tuple[Errors, Errors]] = defaultdict(lambda: (Errors(), Errors()))
        for one in self.scores:
            streaming, offline = found[one.language]
            found[one.language] = (streaming + one.streaming, offline + one.offline)
        return dict(found)

    @property
    def shown(self) -> dict[str, float]:
        """First-shown latency in ms."""
        return percentiles([ms for one in self.scores for ms in one.shown_ms])

    @property
    def committed(self) -> dict[str, float]:
        """Commit latency in ms."""
        return percentiles([ms for one in self.scores for ms in one.committed_ms])

    @property
    def finalised(self) -> dict[str, float]:
        """Finalisation latency in ms."""
        return percentiles(
            [one.finalised_ms for one in self.scores if one.finalised_ms is not None]
        )

    @property
    def erasure(self) -> float:
        """Normalised erasure on words."""
        return self._per_word(sum(one.n_erased for one in self.scores))

    @property
    def strict_erasure(self) -> float:
        """Normalised erasure that counts case and punctuation."""
        return self._per_word(sum(one.n_erased_strict for one in self.scores))

    def _per_word(self, n: int) -> float:
        return n / max(sum(one.n_words for one in self.scores), 1)

    @property
    def n_changed(self) -> int:
        """Committed words that changed."""
        return sum(one.n_changed for one in self.scores)

    def as_json(self) -> dict[str, object]:
        """Return the pooled figures."""
        return {
            "errors": {
                language: {
                    "unit": "characters" if language in {"zh", "ja"} else "words",
                    "streaming": errors_as_json(streaming),
                    "offline": errors_as_json(offline),
                }
                for language, (streaming, offline) in self.errors_by_language().items()
            },
            "shown_latency_ms": self.shown,
            "commit_latency_ms": self.committed,
            "finalisation_latency_ms": self.finalised,
            "n_without_text": sum(not one.text for one in self.scores),
            "normalised_erasure": round(self.erasure, 3),
            "normalised_erasure_strict": round(self.strict_erasure, 3),
            "n_changed_committed": self.n_changed,
            "end_lag_ms": percentiles([one.end_lag_ms for one in self.scores]),
        }
