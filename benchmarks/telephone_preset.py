"""The policy's telephony preset against its defaults, on calls whose audio cache has a budget.

English recordings as mu-law, through the server's receiver, in live sessions in virtual time; the
budget is a share of each recording's longest window. Writes ``telephone_preset.json``.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from audiokv.models.base import StreamOptions
from audiokv.models.load import load_recognizer
from audiokv.models.silero import SileroModel
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.policy.profiles import PROFILES
from benchmarks.long_stream import HeldLog, Watched
from benchmarks.measures import Errors, errors, final_text
from benchmarks.recordings import add_recording_arguments, chosen_recordings
from benchmarks.results_file import RESULTS, provenance, write_results
from benchmarks.scoring import errors_as_json
from benchmarks.telephone import paired_points
from benchmarks.telephone_conditions import CONDITIONS, MULAW, utterances
from benchmarks.virtual_stream import VirtualListener, one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from audiokv.models.base import Recognizer
    from audiokv.streaming.voice_activity import VoiceDetector
    from benchmarks.telephone_conditions import Utterance

    # Gives the model with its audio cache in a budget of slots.
    OpenRecognizer = Callable[[int], Recognizer]

POLICY = "audiokv"
REFERENCE = "default"
NO_BOUND_SLOTS = 1_500  # of Whisper: as many as a window can have
RETENTIONS = (20, 10)


def parse_arguments(arguments: Sequence[str] | None = None) -> Namespace:
    """Return what the command line asks for."""
    parser = ArgumentParser(description=__doc__)
    add_recording_arguments(parser)
    parser.add_argument("--model", default="whisper-base", help="name or folder of the model")
    parser.add_argument(
        "--profiles", nargs="+", choices=list(PROFILES), default=[REFERENCE, "telephony"]
    )
    parser.add_argument(
        "--retention", nargs="+", type=int, default=list(RETENTIONS), help="per cent of the slots"
    )
    parser.add_argument(
        "--out", type=Path, default=RESULTS, metavar="DIR", help="default: %(default)s"
    )
    return parser.parse_args(arguments)


class PresetRunner:
    """Runs calls under budgets and presets.

    Args:
        open_recognizer: Gives the model with a budget.
        open_detector: Gives a voice detector with its own state.
    """

    def __init__(
        self, open_recognizer: OpenRecognizer, open_detector: Callable[[], VoiceDetector]
    ) -> None:
        self._open_recognizer = open_recognizer
        self._open_detector = open_detector

    def hear(self, utterance: Utterance, budget_slots: int, profile: str) -> tuple[Errors, int]:
        """Return the errors of a call, and the most slots its cache held."""
        log = HeldLog()
        watched = Watched(self._open_recognizer(budget_slots), log, makes_room_ahead=True)
        listener = VirtualListener(watched, self._open_detector)
        recording = utterance.recording
        wishes = StreamOptions(language=recording.language, profile=profile)
        run = listener.listen_to(CONDITIONS[MULAW](utterance), wishes)
        counted = errors(recording.text, final_text(run.arrivals), recording.language)
        return counted, max(log.held_slots, default=0)

    def table(
        self, spoken: Sequence[Utterance], profiles: Sequence[str], percents: Sequence[int]
    ) -> dict[str, dict[str, Errors]]:
        """Return the errors by recording, of the full cache and of each budget and preset."""
        found: dict[str, dict[str, Errors]] = {}
        for utterance in spoken:
            name = utterance.recording.name
            counted, full_slots = self.hear(utterance, NO_BOUND_SLOTS, REFERENCE)
            found.setdefault("full", {})[name] = counted
            for percent in percents:
                for profile in profiles:
                    budget_slots = max(1, round(full_slots * percent / 100))
                    counted, _ = self.hear(utterance, budget_slots, profile)
                    found.setdefault(row_name(percent, profile), {})[name] = counted
            print(name, {row: counted[name].total for row, counted in found.items()}, flush=True)
        return found


def row_name(percent: int, profile: str) -> str:
    """Return what a row of the table is called."""
    return f"{percent} %, {profile}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Listen and write."""
    args = parse_arguments(arguments)
    origin = provenance()
    english = [one for one in chosen_recordings(args) if one.language == "en"]
    open_detector = SileroModel.load().open
    one_thread()
    runner = PresetRunner(
        lambda slots: load_recognizer(args.model, CacheOptions(slots, POLICY)), open_detector
    )
    found = runner.table(utterances(english), args.profiles, args.retention)
    against = {
        row_name(percent, profile): paired_points(
            found[row_name(percent, profile)], found[row_name(percent, REFERENCE)]
        )
        for percent in args.retention
        for profile in args.profiles
        if profile != REFERENCE and REFERENCE in args.profiles
    }
    content = {
        "settings": {"model": args.model, "policy": POLICY},
        "rows": {
            row: errors_as_json(sum(counted.values(), Errors())) for row, counted in found.items()
        },
        "points_over_default": against,
    }
    write_results("telephone_preset", content, origin, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
