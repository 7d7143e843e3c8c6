"""``audiokv serve``: reads the settings, loads the model, and runs the server until a signal."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from audiokv.server.app import open_server
from audiokv.server.config import ServerConfig
from audiokv.server.config_loading import load_config
from audiokv.server.sessions import speaker_opener
from audiokv.streaming.errors import AudioKVError
from audiokv.streaming.policy.dialect_files import dialect_folder, find_prior

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Coroutine

    from audiokv.models.base import Recognizer, WeightOptions
    from audiokv.server.sessions import OpenDetector, OpenSpeaker
    from audiokv.streaming.audio_cache import CacheOptions
    from audiokv.streaming.speakers import Embed

logger = logging.getLogger(__name__)

# Where torchao is installed, importing it warns of GPU kernels that are not there and not needed.
_CHATTY_LOGGERS = ("torchao", "torch.utils._pytree")

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130


def add_arguments(parser: ArgumentParser) -> None:
    """Add a flag for every setting, and ``--config``."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
    for setting in fields(ServerConfig):
        flag = "--" + setting.name.replace("_", "-")
        text = f"{setting.metadata['help']} (default: {_shown(setting.default)})"
        if setting.type == "bool":
            parser.add_argument(flag, action="store_true", default=None, help=text)
        else:
            parser.add_argument(flag, default=None, metavar="VALUE", help=text)


def _shown(default: object) -> str:
    if isinstance(default, tuple):
        return ", ".join(default) or "none"
    return "none" if default is None else str(default)


def run(
    args: Namespace,
    load_recognizer: Callable[[str, CacheOptions, WeightOptions], Recognizer],
    load_detector: Callable[[], OpenDetector],
    load_encoder: Callable[[], Embed],
) -> int:
    """Serve until SIGINT or SIGTERM.

    Args:
        args: The parsed flags.
        load_recognizer: Loads a model by name or folder, with a bound of its audio cache and the
            way to load its weights.
        load_detector: Loads the voice detector; gives a function that opens one for a stream.
        load_encoder: Loads what tells voices apart; called only where that is wanted.

    Returns:
        The exit status: 0 after a signal, 2 after an error, which is shown.
    """
    try:
        flags = {setting.name: getattr(args, setting.name) for setting in fields(ServerConfig)}
        loaded = load_config(flags, os.environ, args.config)
        config = loaded.config
        logging.basicConfig(
            level=config.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s"
        )
        for name in _CHATTY_LOGGERS:
            logging.getLogger(name).setLevel(logging.ERROR)
        _say(*loaded.lines())
        prior = None
        if config.dialect is not None:
            prior = find_prior(config.dialect, dialect_folder(os.environ))
        recognizer = load_recognizer(
            config.model, config.cache_options(prior), config.weight_options()
        )
        open_detector = load_detector()
        open_speaker = speaker_opener(load_encoder() if config.speakers else None)
        _run_loop(_serve(config, recognizer, open_detector, open_speaker))
    except AudioKVError as error:
        sys.stderr.write(f"audiokv: {error.message}\n{error.remedy}\n")
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _run_loop(main: Coroutine[None, None, None]) -> None:
    if sys.platform == "win32":
        asyncio.run(main)
    else:
        import uvloop  # noqa: PLC0415  does not exist on Windows

        uvloop.run(main)


async def _serve(
    config: ServerConfig,
    recognizer: Recognizer,
    open_detector: OpenDetector,
    open_speaker: OpenSpeaker,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        stop.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)  # a second signal ends the process at once

    async with open_server(
        config, recognizer=recognizer, open_detector=open_detector, open_speaker=open_speaker
    ) as server:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal)
        _say(f"Captions with {recognizer.info.name} at {server.page_url}")
        for setting, port in server.other_ports.items():
            _say(f"{setting.removesuffix('_port')} clients at {config.host}:{port}")
        if not config.is_loopback and config.tls_cert is None:
            _say("Browsers on other machines give the microphone to https pages only: set TLS.")
        await _first_of(stop.wait(), server.worker_death())
        logger.info("stopping")
    if not stop.is_set():
        raise AudioKVError(
            "worker_died",
            "The thread that computes captions died; the server ended.",
            "Start the server again, and report what the log says about the worker.",
        )


async def _first_of(*waits: Coroutine[None, None, object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
