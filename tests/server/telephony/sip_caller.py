"""A telephone of a few lines, written from RFC 3261, that knows nothing of the server's library."""

from __future__ import annotations

import asyncio
import re

REFUSED = 300  # the least status that is
PATIENCE_S = 5  # a limit for tests that hang, never a wait


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: object) -> None:
        del addr
        self.heard.put_nowait(data)


class SipCaller:
    """One call, from INVITE to BYE.

    Attributes:
        answer: The final answer that is in force.
        n_requests: Number of the latest request but ACK and CANCEL.
    """

    def __init__(self, port: int, call_id: str = "call-1") -> None:
        self._peer = ("127.0.0.1", port)
        self._call_id = call_id
        self.n_requests = 0
        self._to_tag = ""
        self.answer = ""

    async def open(self) -> None:
        """Open the sockets for signalling and audio."""
        loop = asyncio.get_running_loop()
        self._signals, self._heard = await loop.create_datagram_endpoint(
            _Datagrams, local_addr=("127.0.0.1", 0)
        )
        self._audio, _ = await loop.create_datagram_endpoint(
            _Datagrams, local_addr=("127.0.0.1", 0)
        )

    def close(self) -> None:
        self._signals.close()
        self._audio.close()

    def _port(self, transport: asyncio.BaseTransport) -> int:
        return int(transport.get_extra_info("sockname")[1])

    def send(self, method: str, body: str = "", *, number: int | None = None) -> None:
        """Send a request of the call; another number than its own repeats an earlier one."""
        if number is None and method not in ("ACK", "CANCEL"):
            self.n_requests += 1
        me = f"127.0.0.1:{self._port(self._signals)}"
        sequence = number or self.n_requests
        branch = "INVITE" if method == "CANCEL" else method  # that of what it cancels
        lines = [
            f"{method} sip:captions@127.0.0.1 SIP/2.0",
            f"Via: SIP/2.0/UDP {me};branch=z9hG4bK{self._call_id}{sequence}{branch}",
            f"From: <sip:alice@{me}>;tag=a1",
            f"To: <sip:captions@127.0.0.1>{self._to_tag}",
            f"Call-ID: {self._call_id}",
            f"CSeq: {sequence} {method}",
            f"Contact: <sip:alice@{me}>",
            "Max-Forwards: 70",
            *(["Content-Type: application/sdp"] if body else []),
            f"Content-Length: {len(body)}",
        ]
        self._signals.sendto(("\r\n".join(lines) + "\r\n\r\n" + body).encode(), self._peer)

    async def response(self, wanted: str) -> str:
        """Return the next final response to a method."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                text = (await self._heard.heard.get()).decode()
                status = int(text.split()[1]) if text.startswith("SIP/2.0") else 0
                if status >= 200 and re.search(rf"(?im)^cseq: *\d+ {wanted}\r?$", text):
                    return text

    async def request(self) -> str:
        """Return the next request the server sends."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                text = (await self._heard.heard.get()).decode()
                if not text.startswith("SIP/2.0"):
                    return text

    def offer(self, *codecs: int, direction: str = "sendrecv", maps: tuple[str, ...] = ()) -> str:
        return "\r\n".join(
            [
                "v=0",
                "o=- 1 1 IN IP4 127.0.0.1",
                "s=-",
                "c=IN IP4 127.0.0.1",
                "t=0 0",
                f"m=audio {self._port(self._audio)} RTP/AVP {' '.join(map(str, codecs))}",
                *(f"a=rtpmap:{entry}" for entry in maps),
                f"a={direction}",
                "",
            ]
        )

    async def invite(
        self, *codecs: int, direction: str = "sendrecv", maps: tuple[str, ...] = ()
    ) -> int:
        """Offer codecs; return the status of the answer, acknowledged."""
        return await self.invite_with(self.offer(*codecs, direction=direction, maps=maps))

    async def invite_with(self, offer: str) -> int:
        """Make an offer; return the status of the answer, acknowledged.

        One that is refused within a call leaves the answer before in force.
        """
        self.send("INVITE", offer)
        answer = await self.response("INVITE")
        status = int(answer.split()[1])
        if status < REFUSED or not self._to_tag:
            self.answer = answer
        found = re.search(r"(?im)^to:.*(;tag=[^;\r\n]+)", answer)
        self._to_tag = found[1] if found else ""
        self.send("ACK")
        return status

    @property
    def audio_port(self) -> int:
        """The port that the answer names for audio."""
        found = re.search(r"(?m)^m=audio (\d+)", self.answer)
        assert found
        return int(found[1])

    def send_audio(self, packet: bytes) -> None:
        self._audio.sendto(packet, ("127.0.0.1", self.audio_port))

    async def hang_up(self) -> int:
        """End the call; return the status of the answer."""
        self.send("BYE")
        return int((await self.response("BYE")).split()[1])
