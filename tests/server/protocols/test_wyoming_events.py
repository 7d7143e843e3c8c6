from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audiokv.server.protocols.wyoming_events import (
    MAX_LINE_BYTES,
    EventReader,
    WyomingEvent,
    write_event,
)
from audiokv.streaming.errors import MessageError
from tests.server.protocols.fuzzing import FUZZED


def framed(kind: str, data: dict[str, object], payload: bytes, *, is_inline: bool) -> bytes:
    """Return an event as either version of the protocol writes it."""
    header: dict[str, object] = {"type": kind, "version": "1.10"}
    body = b""
    if is_inline:
        header["data"] = data
    elif data:
        body = json.dumps(data).encode()
        header["data_length"] = len(body)
    if payload:
        header["payload_length"] = len(payload)
    return json.dumps(header).encode() + b"\n" + body + payload


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["describe", "audio-chunk", "ä"]),
        st.dictionaries(st.text(max_size=5), st.integers(0, 9) | st.text(max_size=5), max_size=2),
        st.binary(max_size=20),
        st.booleans(),
    ),
    max_size=4,
)


@given(EVENTS, st.lists(st.integers(0, 400), max_size=8))
def test_events_are_the_same_however_the_stream_is_cut(
    events: list[tuple[str, dict[str, object], bytes, bool]], cuts: list[int]
) -> None:
    stream = b"".join(
        framed(kind, data, payload, is_inline=is_inline)
        for kind, data, payload, is_inline in events
    )
    reader = EventReader()
    edges = [0, *sorted(cuts), len(stream)]
    read = [event for start, end in pairwise(edges) for event in reader.push(stream[start:end])]
    assert read == [WyomingEvent(kind, data, payload) for kind, data, payload, _ in events]


def test_empty_lines_between_events_are_passed_over() -> None:
    assert EventReader().push(b'\n \n{"type":"describe"}\n') == [WyomingEvent("describe")]


@pytest.mark.parametrize(
    "stream",
    [
        b"GET / HTTP/1.1\n",
        b"\xff\xfe\n",
        b"[]\n",
        b"{}\n",
        b'{"type":1}\n',
        b'{"type":"x","data":[]}\n',
        b'{"type":"x","data_length":-1}\n',
        b'{"type":"x","data_length":99999999}\n',
        b'{"type":"x","payload_length":99999999}\n',
        b'{"type":"x","payload_length":"many"}\n',
        b'{"type":"x","data_length":2}\n[]',
        b"x" * MAX_LINE_BYTES,
    ],
)
def test_what_is_not_an_event_is_refused(stream: bytes) -> None:
    with pytest.raises(MessageError):
        EventReader().push(stream)


def test_a_line_that_goes_on_is_waited_for() -> None:
    assert EventReader().push(b"x" * (MAX_LINE_BYTES - 1)) == []


def test_what_is_written_can_be_read() -> None:
    stream = write_event("transcript", {"text": "größer"}) + write_event("transcript-stop")
    assert EventReader().push(stream) == [
        WyomingEvent("transcript", {"text": "größer"}),
        WyomingEvent("transcript-stop"),
    ]


@FUZZED
@given(
    st.lists(
        st.binary(max_size=60)
        | st.sampled_from(
            [b'{"type":"audio-chunk","payload_length":2}\n', b"\n", b'{"type":', b'"x"}\n', b"ab"]
        ),
        min_size=2,
        max_size=8,
    )
)
def test_any_bytes_are_events_or_refused(pieces: list[bytes]) -> None:
    reader = EventReader()
    with suppress(MessageError):
        for piece in pieces:
            reader.push(piece)
