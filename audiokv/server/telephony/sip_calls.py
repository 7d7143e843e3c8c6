"""What the SIP library keeps of its calls, and does not tell or let go by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiosipua import SipUAS
    from aiosipua.incoming_call import IncomingCall


def is_awaiting_ack(call: IncomingCall) -> bool:
    """Whether a call's answer is still repeated, as nobody acknowledged it."""
    return call._retrans_task is not None  # noqa: SLF001  the library tells it nowhere else


def forget(uas: SipUAS, call: IncomingCall) -> None:
    """Let the library forget a call: it keeps those that were refused or that we ended.

    Another call that has the same Call-ID by now is left alone.

    Args:
        uas: The library's side of all calls.
        call: The call that is over.
    """
    call._stop_retransmissions()  # noqa: SLF001  public only as part of a BYE's handling
    kept = uas._calls  # noqa: SLF001  the library removes only what the caller ended
    if kept.get(call.call_id) is call:
        del kept[call.call_id]
        uas._remove_invite_transaction(call.invite)  # noqa: SLF001  as above
