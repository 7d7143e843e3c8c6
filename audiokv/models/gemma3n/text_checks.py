"""Signs that a text is not what was said: refusals, remarks about the audio, other languages.

A sign is a doubt, not a verdict: people say "I'm sorry, but I cannot come" and speak about audio.
What is done about a doubt is decided by evidence, see ``text_guard``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from audiokv.models.gemma3n.language_drift import drifts


class Fault(StrEnum):
    """What is wrong with a text.

    Attributes:
        REFUSAL: The model says what it cannot or will not do.
        META: The model speaks about the audio or its task, or formats its text.
        DRIFT: Another language than the one asked for.
        CROWDED: More text than can be spoken in the time.
        UNHEARD: The heads that follow the audio did not look at it.
        REPEAT: The text repeats itself faster than speech.
    """

    REFUSAL = "refusal"
    META = "meta"
    DRIFT = "drift"
    CROWDED = "crowded"
    UNHEARD = "unheard"
    REPEAT = "repeat"


@dataclass(frozen=True, slots=True)
class Doubt:
    """A fault that a text shows.

    Attributes:
        fault: Its kind.
        sign: What shows it; the same sign is not doubted twice.
        is_strong: Whether hardly anybody but a model would say that.
    """

    fault: Fault
    sign: str
    is_strong: bool = False


def _either(*phrases: str) -> str:
    return f"(?:{'|'.join(phrases)})"


_SORRY = _either(
    r"(?:i'm|i am|we're|we are) (?:very |so |really |truly )?sorry",
    "sorry",
    "i apologi[sz]e",
    "my apologies",
    "unfortunately",
)
_CANNOT = _either(
    r"(?:i|we) (?:can ?not|can't|won't be able to)",
    r"(?:i'm|i am|we're|we are) (?:not able|unable) to",
)
_TASK = _either(
    r"transcribe|process|hear|listen|access|fulfil+|comply|assist|analy[sz]e",
    r"help (?:you )?with (?:this|that)",
    r"provide (?:a|an|any|the)",
    r"understand (?:this|the) (?:audio|recording|request)",
)
_TRANSCRIPT = _either(
    r"(?:transcri|transkri|trascri|транскри|расшифров)\w*", "文字起こし", "转录", "轉錄", "전사"
)
_MODEL = r"an? (?:ai|artificial intelligence|(?:large )?language model)\b"
_AUDIO = (
    r"(?:the|this|your) (?:provided |given |following )?(?:audio|recording|sound)"
    r"(?: clip| file| recording| sample)?"
)
_SAYS = _either("contains?", "consists?", "features?", "seems?", "appears?", "is", "has", "starts?")
_SURE = r"(?:sure|okay|ok|certainly|of course)[,.!]*"

# Tried where a sentence begins. The first that fits names the doubt.
_OPENINGS: tuple[tuple[Fault, bool, re.Pattern[str]], ...] = tuple(
    (fault, is_strong, re.compile(pattern))
    for fault, is_strong, pattern in (
        (Fault.REFUSAL, True, rf"as {_MODEL}[\w -]*, (?:i|my)\b"),
        (Fault.REFUSAL, True, rf"(?:i am|i'm) (?:just |only )?{_MODEL}"),
        (Fault.REFUSAL, True, rf"(?:{_SORRY},? (?:but )?)?{_CANNOT} (?:\w+ )?{_TASK}"),
        (Fault.REFUSAL, True, r"i (?:do not|don't) have the (?:ability|capability)\b"),
        (
            Fault.REFUSAL,
            True,
            r"(?:please )?(?:provide|upload|share) (?:me )?(?:the|an|your) audio",
        ),
        (Fault.REFUSAL, False, rf"{_SORRY},? (?:but )?(?:i|we)\b"),
        (Fault.REFUSAL, False, rf"as {_MODEL}"),
        (Fault.REFUSAL, False, _CANNOT),
        (Fault.META, True, rf"{_AUDIO} {_SAYS}\b"),
        (Fault.META, True, rf"(?:{_SURE} )?here(?:'s| is| are) \w+ (?:\w+ )?{_TRANSCRIPT}"),
        (
            Fault.META,
            True,
            rf"(?:[\w'-]+ ){{0,4}}{_TRANSCRIPT}(?: [\w'-]+){{0,4}}\W{{0,3}}[:\uff1a]",
        ),
        (Fault.META, False, r"the (?:speaker|person|voice) (?:says|said|is saying|speaks)\b"),
        (Fault.META, False, rf"{_SURE} (?:here|i)\b"),
    )
)
_CLOSING_QUOTES = {'"': '"', "“": "”", "„": "“", "«": "»", "「": "」"}
_FORMATTING = re.compile(r"\*\*|```|^#{1,6} |\n\s*\n|\n\s*(?:[-*•]|\d+[.)])\s")
_SENTENCE_END = re.compile(r"(?<=[.!?。\uff01\uff1f…])[\"'”»)]*\s+|\n+")
_MARKS_BEFORE_TEXT = " \"'*#_`([“„«「"
_MIN_QUOTED_CHARS = 3


def find_doubt(text: str, language: str | None, *, is_sentence_start: bool) -> Doubt | None:
    """Return what is to be doubted about a text, or None.

    Args:
        text: What the model wrote behind the committed text.
        language: ISO 639-1 code that was asked for, or None where any will do.
        is_sentence_start: Whether it begins a sentence.
    """
    said = text.strip()
    plain = said.replace("\u2019", "'").casefold()
    for number, sentence in enumerate(_SENTENCE_END.split(plain)):
        if number or is_sentence_start:
            doubt = _doubt_opening(sentence.lstrip(_MARKS_BEFORE_TEXT))
            if doubt is not None:
                return doubt
    formatting = _FORMATTING.search(said)
    if formatting:
        return Doubt(Fault.META, formatting[0])
    if len(said) >= _MIN_QUOTED_CHARS and _CLOSING_QUOTES.get(said[0]) == said[-1]:
        return Doubt(Fault.META, said[0])
    if language is not None and drifts(said, language):
        return Doubt(Fault.DRIFT, plain)
    return None


def _doubt_opening(sentence: str) -> Doubt | None:
    for fault, is_strong, pattern in _OPENINGS:
        found = pattern.match(sentence)
        if found:
            return Doubt(fault, found[0], is_strong)
    return None
