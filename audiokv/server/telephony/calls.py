"""How each call protocol is made from the server's settings, and who may connect with it.

A provider that signs its requests is known by its signature where its secret is set; else it must
present the server's token, as everyone.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from audiokv.server.access import AccessRules, Credentials, offered_subprotocols
from audiokv.server.telephony.audiohook import AudioHookDialect
from audiokv.server.telephony.audiohook_signature import AudioHookKey, check_audiohook
from audiokv.server.telephony.plivo import PlivoDialect
from audiokv.server.telephony.signatures import check_plivo, check_twilio
from audiokv.server.telephony.twilio import TwilioDialect

if TYPE_CHECKING:
    from collections.abc import Callable

    from audiokv.server.config import ServerConfig
    from audiokv.server.protocols.dialect import Opening

    Check = Callable[[Opening], None]


def make_twilio(config: ServerConfig) -> TwilioDialect:
    """Return the state of one connection of Twilio or SignalWire."""
    secret = config.twilio_auth_token
    if secret is None:
        return TwilioDialect(_token_check(config))
    return TwilioDialect(partial(check_twilio, secret=secret, public_url=config.public_url))


def make_plivo(config: ServerConfig) -> PlivoDialect:
    """Return the state of one connection of Plivo."""
    secret = config.plivo_auth_token
    if secret is None:
        return PlivoDialect(_token_check(config))
    return PlivoDialect(partial(check_plivo, secret=secret, public_url=config.public_url))


def make_audiohook(config: ServerConfig) -> AudioHookDialect:
    """Return the state of one connection of Genesys AudioHook."""
    if config.audiohook_api_key is None:
        return AudioHookDialect(_token_check(config))
    key = AudioHookKey(config.audiohook_api_key, config.audiohook_client_secret or "")

    def check(opening: Opening) -> None:
        check_audiohook(opening, key, now_s=time.time(), public_url=config.public_url)

    return AudioHookDialect(check)


def _token_check(config: ServerConfig) -> Check:
    """Return what asks for the server's token, or for nothing where there is none."""
    rules = AccessRules(config)

    def check(opening: Opening) -> None:
        headers = opening.headers
        subprotocols = offered_subprotocols([headers.get("sec-websocket-protocol", "")])
        rules.check(
            Credentials(
                authorization=headers.get("authorization"),
                subprotocols=subprotocols,
                origin=headers.get("origin"),
                host=headers.get("host"),
            )
        )

    return check
