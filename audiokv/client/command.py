"""The commands ``audiokv send`` and ``audiokv mic``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from audiokv.client.cache_line import CacheLine
from audiokv.client.file import AudioFile, send_fast, send_in_real_time
from audiokv.client.link import ReconnectingLink
from audiokv.client.mic import Microphone, list_devices, load_sounddevice
from audiokv.client.outputs import Outputs, check_outputs
from audiokv.client.settings import DEFAULT_URL, LinkSettings
from audiokv.client.terminal import open_view
from audiokv.client.timing import LoopClock
from audiokv.streaming.captions import Caption, Notice
from audiokv.streaming.errors import AudioKVError
from audiokv.streaming.messages import AUTO_LANGUAGE, Done, Progress

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Awaitable, Callable, Coroutine

    from audiokv.client.terminal import View
    from audiokv.streaming.audio_format import AudioFormat

    Pace = Callable[[ReconnectingLink, AudioFile], Awaitable[None]]

TOKEN_VARIABLE = "AUDIOKV_TOKEN"  # noqa: S105  the name of a variable, not a token
EXIT_BROKEN_PIPE = 1

_OUTPUTS = {
    "srt": "SubRip subtitles",
    "vtt": "WebVTT subtitles",
    "txt": "plain text, a line a segment",
    "jsonl": "final captions with word times, one JSON object a line",
}


def _add_common_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--url", default=DEFAULT_URL, help="the server (default: %(default)s)")
    parser.add_argument(
        "--token", help=f"bearer token of the server (default: ${TOKEN_VARIABLE})", metavar="TOKEN"
    )
    parser.add_argument(
        "--language",
        default=AUTO_LANGUAGE,
        help="two-letter code of the language, or auto (default: %(default)s)",
    )
    parser.add_argument("--prompt", default="", help="names and jargon to expect")
    parser.add_argument(
        "--channel-labels",
        default=(),
        type=lambda text: tuple(text.split(",")),
        metavar="NAME[,NAME]",
        help="who speaks on which channel; two are then recognised apart, not mixed",
    )
    parser.add_argument("--profile", default="default", help="acoustic profile")
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long to try to get a lost connection back (default: %(default)s)",
    )
    parser.add_argument(
        "--show-cache",
        action="store_true",
        help="show in one more line what the audio cache holds, what left it and why",
    )


def _add_output_arguments(parser: ArgumentParser, note: str) -> None:
    group = parser.add_argument_group("outputs", note)
    for kind, content in _OUTPUTS.items():
        group.add_argument(f"--{kind}", metavar="FILE", help=f"write {content}")


def add_send_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``audiokv send``."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", type=Path, help="WAV, FLAC, MP3, Ogg, AIFF and others"
    )
    _add_common_arguments(parser)
    parser.add_argument(
        "--fast",
        action="store_true",
        help="send as fast as the server takes it, not in real time",
    )
    _add_output_arguments(
        parser,
        "A name with {stem} gives one file for each recording: --srt '{stem}.srt'. A name "
        "without it gives one file for all, each recording's captions after the one before, "
        "with times shifted by the length of the recordings before it.",
    )


def add_mic_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``audiokv mic``."""
    parser.add_argument(
        "--list-devices", action="store_true", help="list the devices that record, and end"
    )
    parser.add_argument("--device", help="number or part of the name of a device")
    _add_common_arguments(parser)
    _add_output_arguments(parser, "Written as one speaks; Ctrl-C ends and completes them.")


def run_send(args: Namespace) -> int:
    """Send recordings and show their captions; return the exit code.

    Raises:
        AudioKVError: A recording, an output, the server or the way to it is at fault.
    """
    return _run(_send(args))


def run_mic(args: Namespace) -> int:
    """Caption the microphone until interrupted; return the exit code.

    Raises:
        AudioKVError: The microphone, an output, the server or the way to it is at fault.
    """
    return _run(_mic(args))


def _run(command: Coroutine[None, None, None]) -> int:
    try:
        asyncio.run(command)
    except BrokenPipeError:
        # Whoever read the text has gone; what is left in the buffer must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    return 0


def _output_names(args: Namespace) -> dict[str, str]:
    return {kind: name for kind in _OUTPUTS if (name := getattr(args, kind)) is not None}


def _settings(args: Namespace, audio_format: AudioFormat) -> LinkSettings:
    return LinkSettings(
        url=args.url,
        audio_format=audio_format,
        language=args.language,
        profile=args.profile,
        prompt=args.prompt,
        channel_labels=args.channel_labels,
        token=args.token or os.environ.get(TOKEN_VARIABLE) or None,
        patience_s=args.patience,
    )


def _open_outputs(args: Namespace, stack: ExitStack) -> Outputs:
    language = None if args.language == AUTO_LANGUAGE else args.language
    outputs = Outputs(_output_names(args), language)
    stack.callback(outputs.close)
    return outputs


def _open_view(args: Namespace, stack: ExitStack) -> View:
    view = open_view(sys.stdout, sys.stderr, CacheLine() if args.show_cache else None)
    stack.callback(view.close)
    return view


async def _show(link: ReconnectingLink, view: View, outputs: Outputs) -> None:
    async for event in link:
        match event:
            case Caption():
                outputs.add(event)
                view.caption(event)
            case Notice():
                view.notice(event)
            case Progress():
                view.progress(event.processed_ms)
                view.cache(event.cache)


async def _together(showing: Awaitable[None], speaking: Awaitable[Done]) -> Done:
    """Run both to their end; the first failure ends both."""
    show, speak = asyncio.ensure_future(showing), asyncio.ensure_future(speaking)
    try:
        await asyncio.wait([show, speak], return_when=asyncio.FIRST_EXCEPTION)
        for task in (show, speak):
            if task.done():
                task.result()
        return await speak
    finally:
        show.cancel()
        speak.cancel()
        await asyncio.gather(show, speak, return_exceptions=True)


async def _send(args: Namespace) -> None:
    check_outputs(_output_names(args), args.files)
    for path in args.files:  # a misspelt last name is found before the first hour is sent
        with AudioFile(path):
            pass
    pace: Pace = send_fast if args.fast else partial(_paced, clock=LoopClock())
    with ExitStack() as stack:
        outputs = _open_outputs(args, stack)
        view = _open_view(args, stack)
        for path in args.files:
            with AudioFile(path) as file:
                view.begin(path.name, file.duration_ms)
                outputs.begin(path.stem)
                settings = _settings(args, file.audio_format)
                async with ReconnectingLink(settings) as link:
                    done = await _together(_show(link, view, outputs), _send_file(link, file, pace))
                view.progress(done.received_ms)
                outputs.end(done.received_ms)


async def _paced(link: ReconnectingLink, file: AudioFile, clock: LoopClock) -> None:
    await send_in_real_time(link, file, clock)


async def _send_file(link: ReconnectingLink, file: AudioFile, pace: Pace) -> Done:
    await pace(link, file)
    return await link.stop()


async def _mic(args: Namespace) -> None:
    sounddevice = load_sounddevice()
    if args.list_devices:
        for device in list_devices(sounddevice):
            mark = "*" if device.is_default else " "
            sys.stdout.write(f"{mark} {device.index:2} {device.name} ({device.rate_hz} Hz)\n")
        return
    check_outputs(_output_names(args), [])
    microphone = Microphone(args.device, sounddevice)
    with ExitStack() as stack:
        outputs = _open_outputs(args, stack)
        view = _open_view(args, stack)
        outputs.begin("microphone")
        settings = _settings(args, microphone.audio_format)
        async with ReconnectingLink(settings) as link:
            await _together(_show(link, view, outputs), _speak(link, microphone, view))
        if microphone.n_overflows:
            view.notice(
                Notice(
                    "audio_lost",
                    f"The microphone lost audio {microphone.n_overflows} times.",
                    "Close programs that keep the processor busy.",
                )
            )


async def _speak(link: ReconnectingLink, microphone: Microphone, view: View) -> Done:
    is_listening = False

    def hear(block: bytes) -> None:
        nonlocal is_listening
        if not is_listening:  # some devices take seconds to start; what is said before is lost
            is_listening = True
            view.notice(Notice("listening", "Listening; Ctrl-C ends."))
        with suppress(AudioKVError):  # whoever reads the events gets it raised
            link.offer(block)

    interrupted = asyncio.ensure_future(_interruption())
    watching = asyncio.ensure_future(microphone.watch(LoopClock()))
    try:
        with microphone.recording(hear):
            await asyncio.wait([interrupted, watching], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)  # blocks handed over by the sound thread are still to be heard
        done = await link.stop()
        if watching.done():
            watching.result()
        return done
    finally:
        interrupted.cancel()
        watching.cancel()


async def _interruption() -> None:
    """Return at the first Ctrl-C or termination; a second one is not held back any more."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        with suppress(NotImplementedError):  # Windows: Ctrl-C then ends without the last words
            loop.add_signal_handler(number, stopped.set)
    try:
        await stopped.wait()
    finally:
        for number in signals:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)
