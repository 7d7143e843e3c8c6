"""What a Deepgram client asks for in the address of ``/v1/listen``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from audiokv.server.protocols.dialect import Begin, base_language
from audiokv.server.protocols.options import Options
from audiokv.streaming.audio_format import (
    MAX_SAMPLE_RATE_HZ,
    MIN_SAMPLE_RATE_HZ,
    AudioFormat,
    Encoding,
)
from audiokv.streaming.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from audiokv.server.protocols.dialect import Opening

ENCODINGS = {
    "linear16": Encoding.PCM_S16LE,
    "linear32": Encoding.PCM_F32LE,
    "mulaw": Encoding.MULAW,
    "alaw": Encoding.ALAW,
}
MIN_UTTERANCE_END_MS = 1_000
MAX_GAP_MS = 60_000
DEFAULT_ENDPOINTING_MS = 10
# Which model, which price list, whose bill: nothing here depends on them. Nor is anything held back
# that is heard, such as fillers.
_NAMES = ("model", "version", "tier", "mip_opt_out", "no_delay", "filler_words")
_AUTOMATIC = frozenset({"multi", "auto"})
_OFF = frozenset({"false", "0", ""})


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """What one connection asks for.

    Attributes:
        begin: The stream to open.
        n_channels: Channels with results of their own.
        is_interim: Whether revisable results are wanted.
        is_punctuated: Whether transcripts have punctuation and capitals.
        endpointing_ms: Silence after which a result is marked as the end of speech, or None.
        utterance_end_ms: Gap after a final word that is told, or None.
        has_vad_events: Whether the start of speech is told.
        has_speakers: Whether words have the number of their speaker.
        is_multilingual: Whether results name their language.
        is_masked: Whether profane English words are masked.
    """

    begin: Begin
    n_channels: int = 1
    is_interim: bool = False
    is_punctuated: bool = False
    endpointing_ms: int | None = DEFAULT_ENDPOINTING_MS
    utterance_end_ms: int | None = None
    has_vad_events: bool = False
    has_speakers: bool = False
    is_multilingual: bool = False
    is_masked: bool = False


def read_options(opening: Opening, *, can_tell_speakers: bool) -> ListenOptions:
    """Return what the address asks for.

    Args:
        opening: How the connection was opened.
        can_tell_speakers: Whether the server tells speakers apart.

    Raises:
        MessageError: An option is not supported, or has a value that is not.
    """
    query = opening.query
    options = Options(opening.path or "the address", _single(query))
    options.drop(*_NAMES)
    fmt = _format(options)
    language = options.text("language")
    is_multilingual = language in _AUTOMATIC
    options.flag("detect_language", default=True)  # it is detected unless it is given
    is_multichannel = options.flag("multichannel", default=False) and fmt.channels > 1
    is_interim = options.flag("interim_results", default=False)
    punctuate = options.flag("punctuate", default=False)
    smart = options.flag("smart_format", default=False)
    read = ListenOptions(
        begin=Begin(
            fmt,
            language=None if is_multilingual or not language else base_language(language),
            prompt=_prompt(query),
            channel_labels=("0", "1") if is_multichannel else (),
            metadata=_metadata(query),
        ),
        n_channels=fmt.channels if is_multichannel else 1,
        is_interim=is_interim,
        is_punctuated=punctuate or smart,
        endpointing_ms=_endpointing_ms(options, opening, is_multichannel=is_multichannel),
        utterance_end_ms=_utterance_end_ms(options, is_interim=is_interim),
        has_vad_events=options.flag("vad_events", default=False),
        has_speakers=_has_speakers(options, can_tell_speakers=can_tell_speakers),
        is_multilingual=is_multilingual,
        is_masked=options.flag("profanity_filter", default=False),
    )
    options.whole("alternatives", default=1, low=1, high=1)
    options.finish()
    return read


_LISTS = ("keyterm", "keywords", "tag", "extra")


def _single(query: Mapping[str, tuple[str, ...]]) -> dict[str, object]:
    """Return the options with one value, without those that are switched off anyway."""
    named = {name: values[-1] for name, values in query.items() if name not in _LISTS}
    return {
        name: value
        for name, value in named.items()
        if value.lower() not in _OFF or name in {"endpointing", "encoding", "sample_rate"}
    }


def _format(options: Options) -> AudioFormat:
    if not options.has("encoding"):
        raise MessageError(
            "missing_option",
            "The address says no encoding; audio in containers cannot be decoded here.",
            f"Add encoding={'|'.join(ENCODINGS)} and sample_rate, and send raw audio.",
        )
    encoding = ENCODINGS[options.choice("encoding", ENCODINGS, default="")]
    is_g711 = encoding in (Encoding.MULAW, Encoding.ALAW)
    return AudioFormat(
        encoding,
        options.whole(
            "sample_rate",
            default=MIN_SAMPLE_RATE_HZ if is_g711 else 0,
            low=MIN_SAMPLE_RATE_HZ,
            high=MAX_SAMPLE_RATE_HZ,
        ),
        options.whole("channels", default=1, low=1, high=2),
    )


def _prompt(query: Mapping[str, tuple[str, ...]]) -> str:
    terms = [*query.get("keyterm", ()), *query.get("keywords", ())]
    return ", ".join(term.partition(":")[0] for term in terms)


def _metadata(query: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: ", ".join(query[name]) for name in ("tag", "extra") if name in query}


def _endpointing_ms(options: Options, opening: Opening, *, is_multichannel: bool) -> int | None:
    if options.is_text("endpointing", "false", "true"):
        is_off = options.is_text("endpointing", "false")
        options.drop("endpointing")
        return None if is_off else DEFAULT_ENDPOINTING_MS
    pause_ms = options.whole("endpointing", default=DEFAULT_ENDPOINTING_MS, high=MAX_GAP_MS)
    if is_multichannel and pause_ms > opening.pause_ms:
        options.refuse("endpointing", pause_ms, f"at most {opening.pause_ms} with multichannel")
    return pause_ms


def _utterance_end_ms(options: Options, *, is_interim: bool) -> int | None:
    if not options.has("utterance_end_ms"):
        return None
    gap_ms = options.whole("utterance_end_ms", default=0, low=MIN_UTTERANCE_END_MS, high=MAX_GAP_MS)
    if not is_interim:
        raise MessageError(
            "bad_option",
            "utterance_end_ms came without interim_results.",
            "Add interim_results=true.",
        )
    return gap_ms


def _has_speakers(options: Options, *, can_tell_speakers: bool) -> bool:
    is_wanted = options.flag("diarize", default=options.has("diarize_model"))
    options.choice("diarize_model", ("latest", "v1"), default="latest")
    if is_wanted and not can_tell_speakers:
        raise MessageError(
            "unsupported_option",
            "The option 'diarize' came, and this server does not tell speakers apart.",
            "Leave it out, or start the server with --speakers.",
        )
    return is_wanted
