"""Tells text in another language than the one asked for, from letters and function words."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from audiokv.models.gemma3n.prompt_layout import LANGUAGE_NAMES

# First words of the Unicode names of letters. Those of LANGUAGE_NAMES that are not listed are
# written in Latin; of any other language the letters are not known.
_SCRIPTS: dict[str, frozenset[str]] = {
    "ar": frozenset({"ARABIC"}),
    "bg": frozenset({"CYRILLIC"}),
    "bn": frozenset({"BENGALI"}),
    "el": frozenset({"GREEK"}),
    "fa": frozenset({"ARABIC"}),
    "he": frozenset({"HEBREW"}),
    "hi": frozenset({"DEVANAGARI"}),
    "ja": frozenset({"HIRAGANA", "KATAKANA", "CJK", "KATAKANA-HIRAGANA"}),
    "ko": frozenset({"HANGUL"}),
    "ru": frozenset({"CYRILLIC"}),
    "sr": frozenset({"CYRILLIC", "LATIN"}),
    "ta": frozenset({"TAMIL"}),
    "te": frozenset({"TELUGU"}),
    "th": frozenset({"THAI"}),
    "uk": frozenset({"CYRILLIC"}),
    "ur": frozenset({"ARABIC"}),
    "zh": frozenset({"CJK", "BOPOMOFO"}),
}
_LATIN = frozenset({"LATIN"})
# Names and borrowed words come in other letters; a text that is mostly in them is no longer speech
# in the language asked for. Letters of a short text say too little.
_MIN_LETTERS = 8
_MAX_FOREIGN_SHARE = 0.8

# Frequent words that say nothing but which language they are of. Some belong to two languages, so
# a text counts as another language's only where its own has hardly any.
_FUNCTION_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the and of to in is that you it this with have are for was not they what from there "
        "would which your been their because about these could should it's don't i'm we're where "
        "when how but she he we my our his her i a be do can will",
        "de": "der die das und nicht ist ich du wir sie er es ein eine einen einem einer mit auf "
        "für von zu im den dem des auch aber wie was wenn noch nur schon sich sind haben wird kann",
        "fr": "le la les et de des du un une est que qui ne pas je tu il elle nous vous ils dans "
        "pour avec sur ce cette mais ou où c'est j'ai au aux en plus se son sa ses",
        "es": "el la los las y de del que no es un una en por para con se lo su al como más pero "
        "sus le ya o este sí porque esta entre cuando muy sin sobre yo me mi te tu está hay",
        "it": "il lo la i gli le e di del della che non è un una in per con si da come più ma "
        "anche sono ho ha io mi ti ci questo questa nel al alla se perché",
        "pt": "o a os as e de do da dos das que não é um uma em por para com se no na como mais "
        "mas ao eu você ele ela isso este esta seu sua já também quando muito está",
        "nl": "de het een en van ik te dat die in is niet zijn op aan met voor er maar om hem ook "
        "als dan naar was heb je we wat wel nog bij uit deze dit hebben",
    }.items()
}
# Frequent words of languages without a list that are spelled like English ones: Polish "i do to",
# Danish "i for her have", Hungarian "is be", Turkish "on her", Slovenian "in", Romanian "are".
_NOT_ONLY_ENGLISH = frozenset(
    {"a", "i", "do", "to", "on", "for", "her", "he", "be", "is", "was", "we", "in", "my"}
    | {"are", "have"}
)
_ONLY_ENGLISH = _FUNCTION_WORDS["en"] - _NOT_ONLY_ENGLISH
_MIN_ONLY_ENGLISH = 2  # distinct ones; a single one may be a title or a word like Danish "and"
_MIN_WORDS = 6
_MIN_DISTINCT_HITS = 3  # "no no no no" is not Spanish
_MIN_SHARE = 0.3  # of all words, in running text of the other language about a half
_MAX_OWN_PART = 0.34  # of its own function words, measured by those of the other language
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")


def drifts(text: str, language: str) -> bool:
    """Tell whether a text is most likely not in a language.

    Languages that share letters are told apart by function words: English, German, French, Spanish,
    Italian, Portuguese and Dutch from each other, and English from every other one, there by words
    that only English has. The Romance languages have many of these words in common, so they pass
    for one another more easily than they should; Chinese characters alone do not tell Chinese from
    Japanese. Letters say nothing where it is not known which ones the language is written in.

    Args:
        text: Running text.
        language: ISO 639-1 code that was asked for.
    """
    return _in_other_letters(text, language) or _in_other_words(text, language)


def _in_other_letters(text: str, language: str) -> bool:
    if language not in _SCRIPTS and language not in LANGUAGE_NAMES:
        return False
    own = _SCRIPTS.get(language, _LATIN)
    scripts = Counter(
        unicodedata.name(letter, "NONE").split(maxsplit=1)[0] for letter in text if letter.isalpha()
    )
    n_letters = scripts.total()
    n_own = sum(scripts[script] for script in own)
    return n_letters >= _MIN_LETTERS and n_letters - n_own > _MAX_FOREIGN_SHARE * n_letters


def _in_other_words(text: str, language: str) -> bool:
    words = [word.replace("\u2019", "'").casefold() for word in _WORD.findall(text)]
    if len(words) < _MIN_WORDS or not _LATIN & _SCRIPTS.get(language, _LATIN):
        return False
    hits = {
        other: [word for word in words if word in known] for other, known in _FUNCTION_WORDS.items()
    }
    if language not in hits and len(_ONLY_ENGLISH & set(words)) < _MIN_ONLY_ENGLISH:
        return False
    others = set(hits) - {language} if language in hits else {"en"}
    most = max((hits[other] for other in sorted(others)), key=len)
    return (
        len(set(most)) >= _MIN_DISTINCT_HITS
        and len(most) >= _MIN_SHARE * len(words)
        and len(hits.get(language, [])) <= _MAX_OWN_PART * len(most)
    )
