"""The command line, and the only place that joins a concrete model to a server."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from typing import TYPE_CHECKING

from audiokv.streaming.errors import AudioKVError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from audiokv.models.base import Recognizer, WeightOptions
    from audiokv.streaming.audio_cache import CacheOptions
    from audiokv.streaming.speakers import Embed
    from audiokv.streaming.voice_activity import VoiceDetector

    Run = Callable[[argparse.Namespace], int]

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130


def load_recognizer(name: str, cache: CacheOptions, weights: WeightOptions) -> Recognizer:
    """Load a recogniser; its libraries are imported no earlier.

    Args:
        name: A name ``audiokv.models.weights.resolve_model`` knows.
        cache: Bound of each stream's audio cache.
        weights: How to load the weights, where the model has a choice.

    Raises:
        ConfigError: The model has no such choice.
        WeightsError: Its weights are missing or damaged.
    """
    from audiokv.models import load  # noqa: PLC0415  torch takes seconds to import

    return load.load_recognizer(name, cache, weights)


def load_detector() -> Callable[[], VoiceDetector]:
    """Load the voice detector's weights once; the result opens a detector for each stream.

    Raises:
        WeightsError: Its weights are missing or damaged.
    """
    from audiokv.models.silero import SileroModel  # noqa: PLC0415  a client needs no onnxruntime

    return SileroModel.load().open


def load_speaker_encoder() -> Embed:
    """Load what tells voices apart; the result embeds a stretch of voice.

    Raises:
        WeightsError: Its weights are missing or damaged.
    """
    from audiokv.models.speaker_encoder import SpeakerEncoder  # noqa: PLC0415  imports torch

    return SpeakerEncoder.load().embed


def _set_up_serve(parser: argparse.ArgumentParser) -> Run:
    from audiokv.server import command  # noqa: PLC0415  the other commands need no server

    command.add_arguments(parser)
    return lambda arguments: command.run(
        arguments, load_recognizer, load_detector, load_speaker_encoder
    )


def _set_up_send(parser: argparse.ArgumentParser) -> Run:
    from audiokv.client import command  # noqa: PLC0415  the server needs no client

    command.add_send_arguments(parser)
    return command.run_send


def _set_up_mic(parser: argparse.ArgumentParser) -> Run:
    from audiokv.client import command  # noqa: PLC0415  the server needs no client

    command.add_mic_arguments(parser)
    return command.run_mic


def _set_up_model(parser: argparse.ArgumentParser) -> Run:
    parser.add_argument("action", choices=["prepare"], help="convert the weights where needed")
    parser.add_argument(
        "name",
        nargs="?",
        default="whisper-base",
        help="whisper-base, whisper-tiny.en, a folder or a hub name (default: %(default)s)",
    )
    return _prepare_model


def _prepare_model(arguments: argparse.Namespace) -> int:
    from audiokv.models.weights import resolve_model  # noqa: PLC0415  a client has no models

    sys.stdout.write(f"{resolve_model(arguments.name).folder}\n")
    return 0


def _set_up_calibrate(parser: argparse.ArgumentParser) -> Run:
    from audiokv.models import calibrate  # noqa: PLC0415  a client has no models

    calibrate.add_arguments(parser)
    return calibrate.run


def _set_up_dialect(parser: argparse.ArgumentParser) -> Run:
    from audiokv.models import build_dialect  # noqa: PLC0415  a client has no models

    build_dialect.add_arguments(parser)
    return build_dialect.run


COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], Run]]] = {
    "serve": ("start the caption server and its page", _set_up_serve),
    "send": ("caption audio files through a running server", _set_up_send),
    "mic": ("caption a local microphone in the terminal", _set_up_mic),
    "model": ("verify and convert a model's weights, and print their folder", _set_up_model),
    "calibrate": ("measure which attention heads of a model follow speech", _set_up_calibrate),
    "dialect": ("make a prior of a way of speaking from labelled recordings", _set_up_dialect),
}


def _top_level_parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:{width}}  {text}" for name, (text, _) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="audiokv",
        description="Live captions from real speech.",
        epilog=f"commands:\n{listing}\n\naudiokv COMMAND --help says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = importlib.metadata.version("audiokv")
    parser.add_argument("--version", action="version", version=f"audiokv {version}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="what to do")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def run(words: Sequence[str]) -> int:
    """Run one command; only the chosen command's code is imported.

    Args:
        words: The command line without the program's name.

    Returns:
        Exit code of the command.

    Raises:
        AudioKVError: The command could not do what was asked.
    """
    top_level = _top_level_parser().parse_args(words)
    text, set_up = COMMANDS[top_level.command]
    parser = argparse.ArgumentParser(prog=f"audiokv {top_level.command}", description=text)
    chosen = set_up(parser)
    return chosen(parser.parse_args(top_level.rest))


def main() -> None:
    """Run the command line and exit: 2 after an error, 130 after Ctrl-C."""
    try:
        sys.exit(run(sys.argv[1:]))
    except AudioKVError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(EXIT_ERROR)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in {"", "audiokv"}:  # a fault of this program, not of the installation
            raise
        sys.stderr.write(
            f"error: The Python package {package} is not installed. "
            "Run: pip install 'audiokv[whisper-base,mic]'\n"
        )
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
