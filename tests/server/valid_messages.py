"""What well-behaved clients of each protocol send, in a possible order: what attacks begin with."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

from audiokv.server.protocols.wyoming_events import write_event
from audiokv.server.telephony.audiosocket import frame
from audiokv.streaming.messages import (
    Caption,
    Done,
    ErrorReport,
    Finalize,
    Keepalive,
    Limits,
    Notice,
    Progress,
    Ready,
    Resume,
    SpeechChange,
    Start,
    Stop,
    Update,
    Word,
    encode,
)
from tests.server.doubles import COUNTERS

_PCM = bytes(range(64)) * 5  # 320 bytes
_BASE64 = base64.b64encode(_PCM[:160]).decode()


def _text(**values: Any) -> str:
    return json.dumps(values)


def _media(number: int, **more: Any) -> str:
    chunk = {"chunk": str(number), "timestamp": str(20 * number), "payload": _BASE64, **more}
    return _text(event="media", sequenceNumber=str(number + 1), media=chunk)


def wyoming(kind: str, payload: bytes = b"", **data: Any) -> bytes:
    """Return an event of Wyoming whose data is in its first line."""
    values = {"type": kind, "data": data, "payload_length": len(payload)}
    return json.dumps(values).encode() + b"\n" + payload


def rtp(number: int, payload_type: int = 0) -> bytes:
    """Return a packet of 20 ms of G.711."""
    return struct.pack(">BBHII", 0x80, payload_type, number, 160 * number, 7) + _PCM[:160]


def wav(audio: bytes = _PCM, *, rate_hz: int = 16_000, bits: int = 16, channels: int = 1) -> bytes:
    """Return a WAV file, written without help."""
    frame_bytes = channels * bits // 8
    fmt = struct.pack("<HHIIHH", 1, channels, rate_hz, rate_hz * frame_bytes, frame_bytes, bits)
    chunks = b"WAVEfmt " + struct.pack("<I", 16) + fmt + b"data" + struct.pack("<I", len(audio))
    return b"RIFF" + struct.pack("<I", len(chunks) + len(audio)) + chunks + audio


_TWILIO_START = _text(
    event="start",
    sequenceNumber="1",
    streamSid="MZ1",
    start={
        "accountSid": "AC1",
        "callSid": "CA1",
        "tracks": ["inbound", "outbound"],
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
        "customParameters": {"language": "en", "prompt": "AudioKV", "caller": "+15550100"},
    },
)
_SNAKE_START = _text(
    event="start",
    sequence_number="1",
    stream_sid="MZ1",
    start={
        "call_sid": "CA1",
        "from": "+1",
        "to": "+2",
        "media_format": {"encoding": "PCMU", "sample_rate": 8000, "channels": 1},
        "custom_parameters": {"language": "en"},
    },
)
_TWILIO_REST = (
    *(_media(1, track="inbound"), _media(2, track="outbound"), _media(4, track="inbound")),
    _text(event="dtmf", dtmf={"track": "inbound", "digit": "1"}),
    *(_text(event="mark", mark={"name": "m"}), _text(event="stop", stop={"callSid": "CA1"})),
)
_SNAKE_REST = (*_TWILIO_REST[:3], _text(event="clear", stream_sid="MZ1"), _TWILIO_REST[-1])
_HOOK = {"version": "2", "id": "30b0e395-84d3-4570-ac13-9a62d8f514c0", "serverseq": 0}
_HOOK_OPEN = _text(
    **_HOOK,
    type="open",
    seq=1,
    position="PT0S",
    parameters={
        "organizationId": "o",
        "conversationId": "c",
        "participant": {"id": "p", "ani": "+1", "aniName": "Zo\u00eb", "dnis": "+2"},
        "language": "en-US",
        "media": [
            {"type": "audio", "format": "PCMU", "channels": ["external", "internal"], "rate": 8000},
            {"type": "audio", "format": "PCMU", "channels": ["external"], "rate": 8000},
        ],
    },
)
_HOOK_REST = (
    _PCM,
    _text(**_HOOK, type="ping", seq=2, position="PT1.5S", parameters={"rtt": "PT0.1S"}),
    _text(**_HOOK, type="discarded", seq=3, parameters={"start": "PT1S", "discarded": "PT1.25S"}),
    _text(**_HOOK, type="update", seq=4, parameters={"language": "de"}),
    _text(**_HOOK, type="close", seq=5, parameters={"reason": "end"}),
)
_OPENAI_INPUT = {
    "format": {"type": "audio/pcm", "rate": 24000},
    "transcription": {"model": "whisper-1", "language": "en", "prompt": "AudioKV"},
    "turn_detection": {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 500},
    "noise_reduction": None,
}
_OPENAI_BETA = {
    "input_audio_format": "pcm16",
    "input_audio_transcription": {"model": "whisper-1", "language": "de"},
    "turn_detection": None,
    "input_audio_noise_reduction": None,
}
_OPENAI = (
    _text(
        type="session.update",
        event_id="e1",
        session={"type": "transcription", "audio": {"input": _OPENAI_INPUT}, "include": []},
    ),
    _text(type="transcription_session.update", session=_OPENAI_BETA),
    _text(type="input_audio_buffer.append", audio=_BASE64, event_id="e2"),
    *(_text(type=f"input_audio_buffer.{verb}") for verb in ("commit", "clear")),
    _text(type="input_audio_buffer.append", audio=_BASE64),
)
_WHISPERLIVE = _text(
    uid="u",
    language="en",
    task="transcribe",
    model="small",
    use_vad=True,
    send_last_n_segments=10,
    no_speech_thresh=0.45,
    clip_audio=False,
    same_output_threshold=10,
    initial_prompt="AudioKV",
    audio_format="int16",
)
_PLAIN_START = "MEDIA_START connection_id:c channel:W/c channel_id:1.2 format:ulaw ptime:20"
_JSON_START = _text(
    event="MEDIA_START",
    channel_id="1.2",
    format="slin16",
    optimal_frame_size=640,
    channel_variables={"language": "en", "prompt": "AudioKV"},
)
_LISTEN = {
    "callSid": "c",
    "direction": "inbound",
    "from": "+1",
    "to": "+2",
    "callId": "d",
    "sampleRate": 8000,
    "mixType": "stereo",
    "metadata": {"language": "en"},
}
_SPEECH = _text(
    type="start",
    language="en-US",
    format="raw",
    encoding="LINEAR16",
    interimResults=True,
    sampleRateHz=8000,
    options={"hints": ["AudioKV", {"phrase": "Whisper"}]},
)
_SINCH = _text(
    command="connect",
    callId="c",
    codec="PCM",
    sampleRate=16000,
    callHeaders={"language": "en"},
)
_VONAGE = _text(
    **{"event": "websocket:connected", "content-type": "audio/l16;rate=16000", "language": "en"}
)
_START = Start("pcm_s16le", 16_000, prompt="AudioKV", channel_labels=("a",))
_CAPTION = Caption(
    seq=3,
    segment=2,
    revision=1,
    is_final=True,
    start_ms=1_000,
    end_ms=1_400,
    text="one",
    language="en",
    speaker="a",
    words=(Word("one", 1_000, 1_400, 0.9),),
)
NATIVE_CLIENT = tuple(
    encode(message)
    for message in (
        *(_START, Start("mulaw", 8_000, resume=Resume("r-1", 41)), Update("de", "x", "default")),
        *(Finalize(), Keepalive(), Stop()),
    )
)
NATIVE_SERVER = tuple(
    encode(message)
    for message in (
        Ready("s-1", "scripted", ("de", "en"), Limits(65_536, 60, 60, 10_000), "r-1"),
        _CAPTION,
        *(
            Progress(1, 16, 0, 1, COUNTERS),
            SpeechChange(is_on=True, at_ms=5),
            Notice("a", "b", "c"),
        ),
        *(ErrorReport("full", "a", "b", 10.0), Done(5, 2)),
    )
)
HERMES = _text(siteId="kitchen", sessionId="1", lang="en", stopOnSilence=False)
EVENTS = (
    wyoming("transcribe", language="en", transcript_names=["AudioKV"]),
    wyoming("audio-start", rate=16000, width=2, channels=1, timestamp=0),
    wyoming("audio-chunk", _PCM, rate=16000, width=2, channels=1),
    write_event("audio-chunk", {"rate": 16000, "width": 2, "channels": 1}),
    *(wyoming("describe"), wyoming("ping", text="here"), wyoming("audio-stop", timestamp=20)),
)
_BOTH_JSON_AND_AUDIO = {
    "/v1/call/asterisk": (_JSON_START, _PCM, _PLAIN_START, _text(event="DTMF_END", digit="1")),
    "/v1/call/freeswitch": (_text(caller="7", rate=16000, channels=2, language="en"), _PCM),
    "/v1/call/jambonz": (json.dumps(_LISTEN), _PCM, _text(event="dtmf", dtmf="2")),
    "/v1/call/jambonz-stt": (_SPEECH, _PCM, '{"type":"stop"}'),
    "/v1/call/vonage": (_VONAGE, _PCM, _text(event="websocket:dtmf", digit="1", duration=260)),
    "/v1/call/sinch": (_SINCH, _PCM, '{"command":"heartbeat"}', '{"command":"clear"}'),
    "/v1/call/audiohook": (_HOOK_OPEN, *_HOOK_REST),
}
# By path, or by the setting of its port; each begins as its protocol does.
MESSAGES: dict[str, tuple[str | bytes, ...]] = {
    "/v1/listen": (_PCM, *(f'{{"type":"{kind}"}}' for kind in ("KeepAlive", "Finalize")), b""),
    "/v1/realtime": _OPENAI,
    "/v1/call/twilio": (_TWILIO_START, '{"event":"connected"}', *_TWILIO_REST),
    "/v1/call/plivo": (_TWILIO_START.replace("x-mulaw", "x-l16"), *_TWILIO_REST),
    "/v1/call/telnyx": (_SNAKE_START, *_SNAKE_REST),
    "/v1/call/exotel": (_SNAKE_START.replace("PCMU", "audio/x-raw"), *_SNAKE_REST),
    **_BOTH_JSON_AND_AUDIO,
    "vosk_port": (
        _text(config={"sample_rate": 8000, "words": 1, "max_alternatives": 0}),
        *(_PCM, '{"reset" : 1}', '{"eof" : 1}'),
    ),
    "whisperlive_port": (_WHISPERLIVE, _PCM, b"END_OF_AUDIO"),
    "wyoming_port": EVENTS,
    "audiosocket_port": (
        *(frame(1, bytes(range(16))), frame(0x10, _PCM), frame(3, b"7"), frame(0x10, _PCM)),
        *(frame(0x12, _PCM), frame(0)),
    ),
}
_SIGNED_PARTS = (
    '"@request-target" "@authority" "audiohook-organization-id" "audiohook-session-id" '
    '"audiohook-correlation-id" "x-api-key"'
)
OPENINGS = (
    _text(
        query={
            "encoding": "linear16",
            "sample_rate": "16000",
            "channels": "2",
            "multichannel": "true",
            "language": "en-US",
            "interim_results": "true",
            "endpointing": "300",
            "utterance_end_ms": "1000",
            "vad_events": "true",
            "keyterm": "AudioKV",
            "keywords": "AudioKV:2",
            "diarize": "true",
            "smart_format": "1",
        },
        headers={"host": "a", "authorization": "Token correct-horse", "origin": "http://a"},
    ),
    _text(
        query={"language": "en", "prompt": "x", "tracks": "both", "rate": "16000", "channels": "2"},
        headers={
            "host": "a",
            "x-twilio-signature": "AAAA",
            "x-plivo-signature-v3": "AAAA,BBBB",
            "x-plivo-signature-v3-nonce": "1",
            "authorization": "Basic YTpjb3JyZWN0LWhvcnNl",
        },
    ),
    _text(
        query={"intent": "transcription", "model": "m", "interim": "1"},
        headers={
            "host": "a",
            "x-api-key": "key",
            "signature": "sig1=:AAAA:",
            "signature-input": f'sig1=({_SIGNED_PARTS});keyid="key";nonce="VGhpcyBpcyBhIG5vbmNlIQ";'
            'alg="hmac-sha256";created=1;expires=9999999999',
            "sec-websocket-protocol": "audiokv.v1, bearer.correct-horse",
            "openai-beta": "realtime=v1",
            "origin": "https://a:8765",
        },
    ),
    b"encoding=mulaw&sample_rate=8000&language=de&keyterm=a&keyterm=b",
)
