from __future__ import annotations

from typing import TYPE_CHECKING

from aiosipua import SipUAS
from aiosipua.message import SipRequest
from aiosipua.sdp import parse_sdp
from aiosipua.transport import UdpSipTransport

from audiokv.server.telephony.sip_calls import forget, is_awaiting_ack

if TYPE_CHECKING:
    from aiosipua.incoming_call import IncomingCall


class Deaf(UdpSipTransport):
    """Sends nothing."""

    def send_reply(self, *_: object) -> None:
        pass


def invite(call_id: str, number: int = 1) -> SipRequest:
    lines = [
        "INVITE sip:captions@192.0.2.1 SIP/2.0",
        f"Via: SIP/2.0/UDP 192.0.2.7:5060;branch=z9hG4bK{call_id}{number}",
        "From: <sip:alice@192.0.2.7>;tag=a1",
        "To: <sip:captions@192.0.2.1>",
        f"Call-ID: {call_id}",
        f"CSeq: {number} INVITE",
        "Contact: <sip:alice@192.0.2.7>",
        "Content-Length: 0",
    ]
    request = SipRequest.parse(("\r\n".join(lines) + "\r\n\r\n").encode())
    assert isinstance(request, SipRequest)
    return request


def called(uas: SipUAS, *requests: SipRequest) -> list[IncomingCall]:
    calls: list[IncomingCall] = []
    uas.on_invite = calls.append
    for request in requests:
        uas._handle_invite(request, ("192.0.2.7", 5_060))
    return calls


async def test_an_answer_is_repeated_until_it_is_acknowledged_or_the_call_forgotten() -> None:
    uas = SipUAS(Deaf(("192.0.2.1", 5_060)))
    first, second = called(uas, invite("one"), invite("two"))
    for call in (first, second):
        assert not is_awaiting_ack(call)
        call.accept(parse_sdp("v=0\r\n"))
        assert is_awaiting_ack(call)
    forget(uas, first)
    assert not is_awaiting_ack(first)
    assert is_awaiting_ack(second)
    forget(uas, second)


async def test_a_call_is_forgotten_with_its_transaction_and_no_other() -> None:
    uas = SipUAS(Deaf(("192.0.2.1", 5_060)))
    first, second = called(uas, invite("one"), invite("two"))
    forget(uas, first)
    assert list(uas._calls.values()) == [second]
    assert [kept.request for kept in uas.transactions._server.values()] == [second.invite]
    forget(uas, first)  # again is nothing
    assert uas.get_call("two") is second


async def test_a_later_call_of_the_same_name_is_left_alone() -> None:
    uas = SipUAS(Deaf(("192.0.2.1", 5_060)))
    first, later = called(uas, invite("one"), invite("one", number=2))
    forget(uas, first)
    assert uas.get_call("one") is later
    forget(uas, later)
    assert uas._calls == {}
