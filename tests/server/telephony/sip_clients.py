"""Real telephones, unmodified: sipp and baresip, as Debian packages them, playing a recording."""

from __future__ import annotations

import asyncio
import shutil
import socket
from typing import TYPE_CHECKING

import numpy as np
import soundfile

from audiokv.streaming.g711 import encode_mulaw

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

RATE_HZ = 8_000
SPARE_MS = 300  # the call lasts so much longer than its recording

_HEADERS = """Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: sipp <sip:sipp@[local_ip]:[local_port]>;tag=[pid]T[call_number]
Call-ID: [call_id]
Contact: <sip:sipp@[local_ip]:[local_port]>
Max-Forwards: 70
"""
_SCENARIO = """<?xml version="1.0" encoding="UTF-8"?>
<scenario name="a call that plays a recording">
  <send retrans="500"><![CDATA[
INVITE sip:[service]@[remote_ip]:[remote_port] SIP/2.0
{headers}To: <sip:[service]@[remote_ip]:[remote_port]>
CSeq: 1 INVITE
Content-Type: application/sdp
Content-Length: [len]

v=0
o=sipp 1 1 IN IP[local_ip_type] [local_ip]
s=-
c=IN IP[media_ip_type] [media_ip]
t=0 0
m=audio [rtpstream_audio_port] RTP/AVP 0
a=rtpmap:0 PCMU/8000
]]></send>
  <recv response="100" optional="true"/>
  <recv response="200" rrs="true"/>
  <send><![CDATA[
ACK [next_url] SIP/2.0
{headers}To: <sip:[service]@[remote_ip]:[remote_port]>[peer_tag_param]
CSeq: 1 ACK
Content-Length: 0

]]></send>
  <nop><action><exec rtp_stream="{audio},1,0,PCMU/8000"/></action></nop>
  <pause milliseconds="{pause_ms}"/>
  <send retrans="500"><![CDATA[
BYE [next_url] SIP/2.0
{headers}To: <sip:[service]@[remote_ip]:[remote_port]>[peer_tag_param]
CSeq: 2 BYE
Content-Length: 0

]]></send>
  <recv response="200"/>
</scenario>
"""
_BARESIP = """poll_method epoll
sip_listen 127.0.0.1:{sip_port}
audio_player aufile,{folder}/played.wav
audio_source aufile,{folder}/said.wav
audio_alert aufile,{folder}/said.wav
ausrc_srate {rate_hz}
auplay_srate {rate_hz}
rtp_ports 23000-23100
module_path /usr/lib/baresip/modules
module stdio.so
module g711.so
module g722.so
module opus.so
module auconv.so
module auresamp.so
module aufile.so
module_tmp account.so
module_app menu.so
net_interface 127.0.0.1
"""
_ACCOUNT = "<sip:alice@127.0.0.1>;regint=0;audio_codecs={codec}\n"


def free_port() -> int:
    """Return a UDP port that was free a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def program(name: str, package: str) -> str:
    """Return the path of a program.

    Raises:
        AssertionError: Its package is not installed.
    """
    path = shutil.which(name)
    assert path, f"{name} is missing. Run: apt-get install --no-install-recommends {package}"
    return path


async def run_sipp(
    folder: Path, target: str, samples: NDArray[np.int16], n_calls: int = 1, service: str = "100"
) -> int:
    """Let sipp make calls at a time, each playing the samples at 8 kHz; return its exit status."""
    audio, scenario = folder / "said.ul", folder / "call.xml"
    audio.write_bytes(encode_mulaw(samples))
    pause_ms = len(samples) * 1000 // RATE_HZ + SPARE_MS
    scenario.write_text(_SCENARIO.format(headers=_HEADERS, audio=audio, pause_ms=pause_ms))
    process = await asyncio.create_subprocess_exec(
        *(program("sipp", "sip-tester"), "-sf", str(scenario), "-s", service),
        *("-m", str(n_calls), "-l", str(n_calls), "-r", "50", "-nostdin"),
        *("-i", "127.0.0.1", "-p", str(free_port()), "-mi", "127.0.0.1", target),
        cwd=folder,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()


async def run_baresip(
    folder: Path,
    uri: str,
    samples: NDArray[np.int16],
    *,
    codec: str = "PCMA/8000/1",
    rate_hz: int = RATE_HZ,
) -> None:
    """Let baresip call and play samples; it hangs up at their end.

    Args:
        folder: For its configuration.
        uri: Whom it calls.
        samples: Mono.
        codec: As baresip names it; the only one it offers.
        rate_hz: Rate of the samples.
    """
    n_channels = int(codec.rpartition("/")[2])  # baresip plays only files that have as many
    played = np.repeat(samples[:, None], n_channels, axis=1)
    soundfile.write(folder / "said.wav", played, rate_hz, subtype="PCM_16")
    config = _BARESIP.format(folder=folder, sip_port=free_port(), rate_hz=rate_hz)
    (folder / "config").write_text(config)
    (folder / "accounts").write_text(_ACCOUNT.format(codec=codec))
    seconds = len(samples) // rate_hz + 3
    process = await asyncio.create_subprocess_exec(
        *(program("baresip", "baresip-core"), "-f", str(folder)),
        *("-e", f"/dial {uri}", "-t", str(seconds)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    await process.wait()
