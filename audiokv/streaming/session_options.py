"""How a stream is cut into steps and segments."""

from __future__ import annotations

from dataclasses import dataclass, field

from audiokv.streaming.stabilizer import CommitOptions, ShowOptions
from audiokv.streaming.voice_activity import VoiceOptions


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a stream is cut into steps and segments; all on the sample clock.

    Attributes:
        step_ms: Audio between two recognition steps while someone speaks.
        pause_ms: Silence that ends a segment.
        settle_ms: Silence a hypothesis must have heard to stand as a segment's last.
        pre_roll_ms: Audio before the detected voice that is recognised too.
        context_gap_ms: How much of the silence before a segment is recognised too; over a shorter
            one a window goes on. 0 opens a fresh window for each segment, the pre-roll before it;
            None: as the recogniser states.
        context_ms: Longest window that the next segment still joins.
        max_segment_ms: Length at which a segment ends even without a pause.
        blank_ms: Voice without any text after which the window is restarted.
        restart_ms: How much of that voice the restarted window hears again.
        short_voice_ms: Voice this short may be a click or a breath.
        short_confidence: Mean confidence that words heard in so short a voice must have.
        max_lag_ms: How far behind real time steps are merged.
    """

    step_ms: int = 200
    pause_ms: int = 450
    settle_ms: int = 150
    pre_roll_ms: int = 300
    context_gap_ms: int | None = None
    context_ms: int = 8000
    max_segment_ms: int = 15_000
    blank_ms: int = 8000
    restart_ms: int = 2000
    short_voice_ms: int = 400
    short_confidence: float = 0.5
    max_lag_ms: int = 10_000
    voice: VoiceOptions = field(default_factory=VoiceOptions)
    commit: CommitOptions = field(default_factory=CommitOptions)
    show: ShowOptions = field(default_factory=ShowOptions)
