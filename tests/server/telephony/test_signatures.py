from __future__ import annotations

from dataclasses import replace

import pytest

from audiokv.server.protocols.dialect import Opening
from audiokv.server.refusals import CloseCode, RefusalError
from audiokv.server.telephony.signatures import (
    addresses,
    check_plivo,
    check_twilio,
    is_any,
    signed,
    wrong_signature,
)


def test_the_published_example_of_twilio() -> None:
    text = (
        "https://mycompany.com/myapp.php?foo=1&bar=2CallSidCA1234567890ABCDE"
        "Caller+14158675309Digits1234From+14158675309To+18005551212"
    )
    assert signed("12345", text, "sha1") == "RSOYDt4T1cUTdK1PDd93/VVr8B8="


def test_the_published_example_of_plivo() -> None:
    text = "https://answer.url12345"
    expected = "ehV3IKhLysWBxC1sy8INm0qGoQYdYsHwuoKjsX7FsXc="
    assert signed("my_auth_token", text, "sha256") == expected


def test_an_address_is_that_of_the_request_or_the_public_one() -> None:
    opening = Opening("/call/twilio", {"a": ("b c",)}, {"host": "inside:8765"})
    assert addresses(opening, None)[0] == "wss://inside:8765/call/twilio?a=b+c"
    assert addresses(opening, "https://outside.example/")[0] == (
        "wss://outside.example/call/twilio?a=b+c"
    )
    assert addresses(Opening("/p"), "wss://x")[0] == "wss://x/p"


def twilio_opening(signature: str) -> Opening:
    return Opening("/call/twilio", {}, {"host": "c.example", "x-twilio-signature": signature})


def test_twilio_with_the_right_signature_comes_in() -> None:
    right = signed("secret", "wss://c.example/call/twilio", "sha1")
    check_twilio(twilio_opening(right), "secret")
    outside = signed("secret", "wss://out.example/call/twilio", "sha1")
    check_twilio(twilio_opening(outside), "secret", "https://out.example")


@pytest.mark.parametrize(
    "signature", ["", "x", "ünsinn", signed("other", "wss://c.example/call/twilio", "sha1")]
)
def test_twilio_with_another_signature_does_not(signature: str) -> None:
    with pytest.raises(RefusalError) as caught:
        check_twilio(twilio_opening(signature), "secret")
    assert caught.value.close_code == CloseCode.NOT_AUTHORIZED


def test_signalwire_signs_alike_under_its_own_name() -> None:
    right = signed("secret", "wss://c.example/call/twilio", "sha1")
    headers = {"host": "c.example", "x-signalwire-signature": right}
    check_twilio(Opening("/call/twilio", {}, headers), "secret")


def plivo_opening(version: str, signature: str, nonce: str = "17") -> Opening:
    headers = {
        "host": "c.example",
        f"x-plivo-signature-{version}": signature,
        f"x-plivo-signature-{version}-nonce": nonce,
    }
    return Opening("/call/plivo", {}, headers)


def test_plivo_signs_address_and_nonce_in_two_versions() -> None:
    url = "wss://c.example/call/plivo"
    v3, v2 = signed("secret", f"{url}.17", "sha256"), signed("secret", f"{url}17", "sha256")
    check_plivo(plivo_opening("v3", f"other, {v3}"), "secret")
    check_plivo(plivo_opening("v2", v2), "secret")
    outside = signed("secret", "wss://out.example/call/plivo.17", "sha256")
    check_plivo(plivo_opening("v3", outside), "secret", "wss://out.example")
    for version, signature, nonce in (
        ("v3", v2, "17"),
        ("v2", v3, "17"),
        ("v3", v3, "18"),
        ("v3", "", "17"),
        ("v3", signed("secret", f"{url}.", "sha256"), ""),
    ):
        with pytest.raises(RefusalError):
            check_plivo(plivo_opening(version, signature, nonce), "secret")


def test_plivo_signs_a_query_in_order_and_decoded() -> None:
    query = {"prompt": ("a b",), "language": ("en",)}
    url = "wss://c.example/call/plivo?language=en&prompt=a b"
    right = signed("secret", f"{url}.17", "sha256")
    check_plivo(replace(plivo_opening("v3", right), query=query), "secret")
    as_sent = signed("secret", "wss://c.example/call/plivo?prompt=a+b&language=en.17", "sha256")
    check_plivo(replace(plivo_opening("v3", as_sent), query=query), "secret")
    with pytest.raises(RefusalError):
        check_plivo(replace(plivo_opening("v3", right), query={"language": ("de",)}), "secret")


def test_version_2_of_plivo_leaves_the_query_out() -> None:
    query = {"language": ("en",)}
    right = signed("secret", "wss://c.example/call/plivo17", "sha256")
    check_plivo(replace(plivo_opening("v2", right), query=query), "secret")
    bare = signed("secret", "wss://c.example/call/plivo.17", "sha256")
    with pytest.raises(RefusalError):
        check_plivo(replace(plivo_opening("v3", bare), query=query), "secret")


def test_plivo_signs_calls_of_a_subaccount_for_the_main_account_too() -> None:
    right = signed("secret", "wss://c.example/call/plivo.17", "sha256")
    headers = {**plivo_opening("v3", "of the subaccount").headers}
    headers["x-plivo-signature-ma-v3"] = right
    check_plivo(Opening("/call/plivo", {}, headers), "secret")


def test_one_of_several_signatures_is_found() -> None:
    assert is_any("b", ["a", "b"])
    assert not is_any("c", ["a", "b"])
    assert not is_any("", [])


def test_the_refusal_names_the_header() -> None:
    assert "X-Twilio-Signature" in wrong_signature("X-Twilio-Signature").message
