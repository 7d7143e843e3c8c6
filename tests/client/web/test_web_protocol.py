"""The page reads what docs/protocol.md shows, and writes what the server reads."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from audiokv.streaming.messages import Resume, Start, decode_client

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.async_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

SERVER_TYPES = {"ready", "caption", "speech", "progress", "warning", "error", "done"}

PARSE = """async (text) => {
  const { parseMessage } = await import("./js/protocol.js");
  try { return parseMessage(text); } catch (error) { return error.name; }
}"""


async def test_every_server_example_of_the_specification_is_read(
    blank_page: Page, repository: Path
) -> None:
    text = (repository / "docs" / "protocol.md").read_text()
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)\n```", text, re.DOTALL)]
    examples = [block for block in blocks if block["type"] in SERVER_TYPES]
    assert {example["type"] for example in examples} == SERVER_TYPES
    for example in examples:
        assert await blank_page.evaluate(PARSE, json.dumps(example)) == example


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ('{"type": "something_new"}', None),
        ("[]", None),
        ("{", "SyntaxError"),
        ('{"type": "caption", "seq": "1"}', "TypeError"),
        ('{"type": "progress", "received_samples": 1}', "TypeError"),
    ],
)
async def test_what_is_new_is_passed_over_and_what_is_broken_is_told(
    blank_page: Page, text: str, outcome: str | None
) -> None:
    assert await blank_page.evaluate(PARSE, text) == outcome


async def test_a_caption_without_words_has_its_text_as_a_word(blank_page: Page) -> None:
    caption = {"type": "caption", "seq": 1, "segment": 0, "final": True, "text": "all of it"}
    got = await blank_page.evaluate(PARSE, json.dumps({**caption, "start_ms": 5, "end_ms": 9}))
    [word] = got["words"]
    assert (word["text"], word["start_ms"], word["final"]) == ("all of it", 5, True)


async def test_the_server_reads_the_first_message(blank_page: Page) -> None:
    plain, full = await blank_page.evaluate("""async () => {
      const { startMessage } = await import("./js/protocol.js");
      return [
        startMessage({ sampleRateHz: 44100 }),
        startMessage({ sampleRateHz: 16000, language: "de", prompt: "Siobhán" },
                     { token: "r-1", last_seq: 41 }),
      ];
    }""")
    assert decode_client(plain) == Start(encoding="pcm_s16le", sample_rate=44100, language="auto")
    assert decode_client(full) == Start(
        encoding="pcm_s16le",
        sample_rate=16000,
        language="de",
        prompt="Siobhán",
        resume=Resume("r-1", 41),
    )


@pytest.mark.parametrize("message", ['{"type":"stop"}', '{"type":"keepalive"}'])
async def test_the_server_reads_what_the_link_sends(
    message: str, blank_page: Page, repository: Path
) -> None:
    source = (repository / "audiokv" / "client" / "web" / "js" / "stream_link.js").read_text()
    assert message in source
    decode_client(message)
    await blank_page.evaluate("1")


async def test_subprotocols_and_tokens(blank_page: Page) -> None:
    got = await blank_page.evaluate("""async () => {
      const { subprotocols, isSendableToken } = await import("./js/protocol.js");
      return [subprotocols(""), subprotocols("a.B-9_~"), isSendableToken("a.B-9_~"),
              isSendableToken("with space"), isSendableToken("a/b="), isSendableToken("é")];
    }""")
    assert got == [[], ["audiokv.v1", "bearer.a.B-9_~"], True, False, False, False]


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("http://127.0.0.1:8765/", "ws://127.0.0.1:8765/v1/stream"),
        ("https://host/captions/?watch=1#x", "wss://host/captions/v1/stream"),
    ],
)
async def test_the_socket_is_beside_the_page(blank_page: Page, base: str, address: str) -> None:
    script = """async (base) =>
      (await import("./js/protocol.js")).socketUrl("v1/stream", base)"""
    assert await blank_page.evaluate(script, base) == address


async def test_words_are_joined_as_their_language_spaces_them(blank_page: Page) -> None:
    words = [("日本", True), ("語", False), ("and", True), ("more", True)]
    got = await blank_page.evaluate(
        """async (words) => (await import("./js/protocol.js")).joinWords(words)""",
        [{"text": text, "space_before": space} for text, space in words],
    )
    assert got == "日本語 and more"
