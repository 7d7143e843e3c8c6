"""A real Asterisk from a folder that `install_asterisk` filled, for as long as a test lasts."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import socket
import tempfile
import urllib.parse
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.server.telephony.sip_clients import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from audiokv.server.app import CaptionServer

START_TIMEOUT_S = 30
_MODULES = [
    "pbx_config",
    "res_timing_timerfd",
    "res_sorcery_config",
    "res_sorcery_memory",
    "res_sorcery_astdb",
    "res_pjproject",
    "res_pjsip",
    "res_pjsip_session",
    "res_pjsip_sdp_rtp",
    "res_pjsip_endpoint_identifier_user",
    "res_pjsip_endpoint_identifier_anonymous",
    "res_pjsip_caller_id",
    "res_rtp_asterisk",
    "res_pjsip_pubsub",
    "chan_pjsip",
    "res_audiosocket",
    "app_audiosocket",
    "chan_audiosocket",
    "res_http_websocket",
    "res_websocket_client",
    "chan_websocket",
    "res_rtp_multicast",
    "chan_rtp",
    "app_dial",
    "app_echo",
    "bridge_simple",
    "bridge_softmix",
    "codec_ulaw",
    "codec_alaw",
    "codec_resample",
    "func_uuid",
    "func_uri",
    "func_callerid",
    "res_ari",
    "res_ari_model",
    "res_ari_channels",
    "res_ari_bridges",
    "res_ari_events",
    "res_stasis",
    "res_stasis_answer",
    "res_stasis_playback",
    "res_stasis_snoop",
    "res_stasis_recording",
    "app_stasis",
]


class Asterisk:
    """One running exchange.

    Attributes:
        sip_port: Where telephones call it.
        http_port: Where its REST interface is.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder
        self.sip_port = free_port()
        self.http_port = _free_tcp_port()

    def configure(self, server: CaptionServer) -> None:
        """Write the configuration for a server."""
        audiosocket = f"127.0.0.1:{server.other_ports['audiosocket_port']}"
        told = "language=en,from=${URIENCODE(${CALLERID(num)})}"
        inside = "/" + str(self._folder.relative_to(self._root))
        directories = {
            "astetcdir": inside,
            "astmoddir": "/usr/lib/x86_64-linux-gnu/asterisk/modules",
            "astvarlibdir": "/var/lib/asterisk",
            "astdbdir": inside,
            "astkeydir": "/var/lib/asterisk",
            "astdatadir": "/usr/share/asterisk",
            "astagidir": "/usr/share/asterisk/agi-bin",
            "astspooldir": inside,
            "astrundir": inside,
            "astlogdir": inside,
        }
        files = {
            "asterisk.conf": ["[directories]", *(f"{k} => {v}" for k, v in directories.items())],
            "modules.conf": ["[modules]", "autoload=no", *(f"load={m}.so" for m in _MODULES)],
            "logger.conf": ["[general]", "[logfiles]", "messages => notice,warning,error,verbose"],
            "rtp.conf": ["[general]", "rtpstart=22000", "rtpend=22200"],
            "http.conf": [
                "[general]",
                "enabled=yes",
                "bindaddr=127.0.0.1",
                f"bindport={self.http_port}",
            ],
            "ari.conf": ["[general]", "enabled=yes", "[demo]", "type=user", "password=demo"],
            "chan_websocket.conf": ["[global]", "control_message_format=json"],
            "pjsip.conf": [
                "[global]",
                "type=global",
                "endpoint_identifier_order=username,anonymous",
                "[udp]",
                "type=transport",
                "protocol=udp",
                f"bind=127.0.0.1:{self.sip_port}",
                "[anonymous]",
                "type=endpoint",
                "context=in",
                "disallow=all",
                "allow=ulaw",
                "allow=alaw",
                "direct_media=no",
            ],
            "websocket_client.conf": [
                "[captions]",
                "type=websocket_client",
                f"uri=ws://127.0.0.1:{server.port}/v1/call/asterisk",
                "protocols=media",
                "connection_type=per_call_config",
                "username=asterisk",
                "password=correct-horse",
            ],
            "extensions.conf": [
                "[in]",
                "exten => 100,1,Answer()",
                f" same => n,AudioSocket(${{UUID()}},{audiosocket})",
                "exten => 101,1,Answer()",
                f" same => n,Dial(AudioSocket/{audiosocket}/${{UUID()}}/c(slin16))",
                "exten => 102,1,Answer()",
                f" same => n,Dial(WebSocket/captions/c(slin16)f(json)d(in)v({told}))",
                "exten => 103,1,Answer()",
                " same => n,Dial(WebSocket/captions/c(ulaw)f(plain-text)d(in)v(language=en))",
                "exten => 110,1,Answer()",
                " same => n,Stasis(captions)",
            ],
        }
        for name, lines in files.items():
            (self._folder / name).write_text("\n".join(lines) + "\n")

    async def command(self, *arguments: str) -> bytes:
        """Run the program inside its folder; return what it printed."""
        inside = "/" + str(self._folder.relative_to(self._root))
        process = await asyncio.create_subprocess_exec(
            *("chroot", str(self._root), "asterisk", "-C", f"{inside}/asterisk.conf", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        return (await process.communicate())[0]

    async def ask(self, path: str, *, method: str = "POST", **fields: str) -> None:
        """Send a request to the REST interface."""
        url = f"http://127.0.0.1:{self.http_port}/ari/{path}?{urllib.parse.urlencode(fields)}"
        request = urllib.request.Request(url, method=method)
        request.add_header("Authorization", f"Basic {base64.b64encode(b'demo:demo').decode()}")
        await asyncio.to_thread(urllib.request.urlopen, request, timeout=10)


def _installed() -> Path:
    """Return the folder that `install_asterisk` filled.

    Raises:
        AssertionError: It did not.
    """
    named = os.environ.get("AUDIOKV_ASTERISK", "/var/tmp/audiokv-asterisk")  # noqa: S108
    root = Path(named).resolve()
    assert (root / "usr/sbin/asterisk").is_file(), (
        f"No Asterisk in {root}. Run tests/pbx/install_asterisk FOLDER as root, and set "
        "AUDIOKV_ASTERISK to the folder."
    )
    return root


def _free_tcp_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def running_asterisk(server: CaptionServer) -> AsyncIterator[Asterisk]:
    """Run an exchange whose calls go to a server.

    Raises:
        AssertionError: There is no Asterisk, or it did not start.
    """
    root = _installed()
    folder = Path(tempfile.mkdtemp(prefix="pbx-", dir=root / "tmp"))
    exchange = Asterisk(root, folder)
    exchange.configure(server)
    running = asyncio.create_task(exchange.command("-f"))
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while b"fully booted" not in await exchange.command("-rx", "core waitfullybooted"):
                assert not running.done(), running.result().decode()
                await asyncio.sleep(0.2)
        yield exchange
    finally:
        await exchange.command("-rx", "core stop now")
        await running
        shutil.rmtree(folder)
