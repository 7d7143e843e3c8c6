from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.models.gemma3n.language_drift import drifts
from audiokv.models.gemma3n.prompt_layout import LANGUAGE_NAMES

SPOKEN = {
    "en": "the meeting is about what you and I could do with the rest of their money",
    "de": "das ist nicht die Antwort, die ich von dir erwartet habe, aber es geht auch so",
    "fr": "je ne sais pas ce que vous avez dit, mais elle est dans la maison avec son frère",
    "es": "no sé lo que ha dicho, pero la casa de mi hermana está en el centro de la ciudad",
    "it": "non so che cosa ha detto, ma la casa di mia sorella è nel centro della città",
    "pt": "eu não sei o que ele disse, mas a casa da minha irmã é no centro da cidade",
    "nl": "ik weet niet wat je hebt gezegd, maar het huis van de buren is ook te koop",
    "ru": "я не знаю, что он сказал, но дом моей сестры стоит в центре города",
    "ja": "昨日は雨が降っていたので、ずっと家にいました",
    "zh": "昨天下雨了,所以我一直待在家里没有出去",
    "ko": "어제는 비가 와서 하루 종일 집에 있었어요",
    "ar": "لم أخرج من البيت أمس لأن المطر كان شديدا",
    "el": "χθες έβρεχε και έμεινα όλη μέρα στο σπίτι",
    "th": "เมื่อวานฝนตกฉันเลยอยู่บ้านทั้งวัน",
}
WITHOUT_LISTS = {
    "pl": "wczoraj padał deszcz, więc cały dzień siedziałem w domu i czytałem książkę",
    "fi": "eilen satoi koko päivän ja siksi jäin kotiin lukemaan uutta kirjaa",
    "cs": "včera celý den pršelo, a tak jsem zůstal doma a četl novou knihu",
}

# Ordinary sentences whose function words are spelled like English ones.
LIKE_ENGLISH = [
    ("pl", "Co to jest i do kogo to należy a do kogo nie"),
    ("pl", "I to on was do tego i do nas namówił"),
    ("da", "I morgen er han her for os, og i aften i byen"),
    ("da", "Vi skal have mad i aften, og i morgen skal I have fri her"),
    ("no", "Han er her i kveld for å lage mat, og vi er her i morgen"),
    ("hu", "Az is be van zárva, ez is be van zárva, a ház is"),
    ("cs", "A on to i do kina a do divadla nese"),
    ("sk", "A on to i do školy a do mesta vozí"),
    ("hr", "I on i ona to i do sutra a možda i do petka"),
    ("sr", "I on je to i do podne a i do mraka radio"),
    ("sl", "On in ona sta to in to do večera in do jutra"),
    ("tr", "Be abi, her can bir, her can eşit be"),
    ("ro", "Are in plan a merge in oras, are a face"),
]
# Languages whose letters are not known here, in letters of their own and in Latin ones.
ELSEWHERE = {
    "mr": "काल पाऊस पडत होता म्हणून मी दिवसभर घरी बसून पुस्तक वाचले",
    "ne": "हिजो पानी परेकाले म दिनभरि घरमै बसेर किताब पढेँ",
    "mk": "вчера врнеше дожд и затоа цел ден седев дома и читав книга",
    "ka": "გუშინ წვიმდა და მთელი დღე სახლში ვიჯექი და წიგნს ვკითხულობდი",
    "is": "í gær rigndi og þess vegna sat ég heima allan daginn og las bók",
}
TWO_SENTENCES = (
    "I am sorry, but I cannot help you with that recording. "
    "There is no speech in it that could be written down."
)


@pytest.mark.parametrize(("language", "text"), LIKE_ENGLISH)
def test_words_that_are_spelled_like_english_ones_are_no_english(language: str, text: str) -> None:
    assert not drifts(text, language)


@pytest.mark.parametrize(
    "language", sorted({language for language, _ in LIKE_ENGLISH} | {*ELSEWHERE})
)
def test_two_english_sentences_are_noticed_in_languages_without_a_list(language: str) -> None:
    assert drifts(TWO_SENTENCES, language)
    assert drifts(SPOKEN["en"], language)


def test_two_words_that_only_english_has_are_asked_for() -> None:
    shared = "on to i do was we her he my be in"
    assert not drifts(shared, "pl")
    assert not drifts(f"{shared} they they they", "pl")
    assert drifts(f"{shared} they would", "pl")


@pytest.mark.parametrize("language", ELSEWHERE)
def test_letters_are_not_judged_where_they_are_not_known(language: str) -> None:
    assert not drifts(ELSEWHERE[language], language)
    assert drifts(ELSEWHERE["ka"], "pl")


@pytest.mark.parametrize("language", [*SPOKEN, *WITHOUT_LISTS])
def test_text_in_the_language_is_none(language: str) -> None:
    assert not drifts((SPOKEN | WITHOUT_LISTS)[language], language)


@pytest.mark.parametrize("language", [code for code in LANGUAGE_NAMES if code != "en"])
def test_english_is_noticed_wherever_another_language_was_asked_for(language: str) -> None:
    assert drifts(SPOKEN["en"], language)


@pytest.mark.parametrize("asked", SPOKEN)
def test_other_languages_are_noticed(asked: str) -> None:
    related = [{"fr", "es", "it", "pt"}, {"ja", "zh"}]  # these pass for one another
    written = [code for code in SPOKEN if not any({asked, code} <= group for group in related)]
    noticed = [code for code in written if drifts(SPOKEN[code], asked)]
    assert noticed == [code for code in written if code != asked]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("wir nutzen Kubernetes, Docker und GitHub Actions, aber nicht Travis", "de"),
        ("я купил iPhone и MacBook Pro", "ru"),
        ("今日はZoomで会議があります", "ja"),
        ("the show must go on, sagt man", "de"),  # too little to be sure
        ("no no no no no no no", "en"),
        ("OK", "ru"),
        ("17 23 42", "ja"),
        ("", "de"),
        ("Aleksandar je otišao", "sr"),
    ],
)
def test_names_and_borrowed_words_are_none(text: str, language: str) -> None:
    assert not drifts(text, language)


@given(st.text(max_size=80), st.sampled_from(sorted(LANGUAGE_NAMES)))
def test_any_text_gets_an_answer_and_marks_change_none(text: str, language: str) -> None:
    assert drifts(text, language) == drifts(f"{text} ... 123 !", language)


@given(st.lists(st.sampled_from(SPOKEN["en"].split()), min_size=8, max_size=30))
def test_english_words_in_any_order_are_not_german_and_are_english(words: list[str]) -> None:
    text = " ".join(["and", "the", "you", "what", *words])
    assert drifts(text, "de")
    assert not drifts(text, "en")
