"""Both Dockerfiles and the scripts they copy, as far as this can be told without an engine."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.running import running_server

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FILES = ["Dockerfile", "docker-compose.yml", ".dockerignore", *map(str, DEPLOY.rglob("*"))]


def instructions(file: Path) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile, continuation lines joined, comments left out."""
    lines = [line for line in file.read_text("utf-8").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    pairs = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, _, rest in pairs]


MAIN = instructions(ROOT / "Dockerfile")
ASTERISK = instructions(DEPLOY / "asterisk" / "Dockerfile")


def values(found: list[tuple[str, str]], name: str) -> list[str]:
    return [value for instruction, value in found if instruction == name]


def test_the_image_is_built_in_stages_and_runs_without_root() -> None:
    assert len(values(MAIN, "FROM")) == 2
    last = max(index for index, (name, _) in enumerate(MAIN) if name == "FROM")
    final = MAIN[last:]
    assert values(final, "USER") == ["audiokv"]
    assert not any("pip install" in value for value in values(final, "RUN"))
    assert len(values(final, "HEALTHCHECK")) == 1
    assert values(final, "VOLUME") == ["/models"]
    assert values(final, "ENTRYPOINT") == ['["audiokv"]']
    assert values(ASTERISK, "USER") == ["asterisk"]


def test_cpu_is_the_default_and_the_device_is_checked() -> None:
    assert "DEVICE=cpu" in values(MAIN, "ARG")
    assert any('check_torch.py "$DEVICE"' in value for value in values(MAIN, "RUN"))


def test_what_is_copied_exists_and_reaches_the_engine() -> None:
    ignore = (ROOT / ".dockerignore").read_text("utf-8").split()
    allowed = [line[1:] for line in ignore if line.startswith("!")]
    for value in values(MAIN, "COPY"):
        if value.startswith("--from"):
            continue
        *sources, _ = value.split()
        for source in sources:
            assert (ROOT / source).exists(), source
            assert any(fnmatch.fnmatch(source, pattern) for pattern in allowed), source
    for value in values(ASTERISK, "COPY"):
        assert (DEPLOY / "asterisk" / value.split()[0]).exists()


def test_no_registry_is_named() -> None:
    pattern = re.compile(r"https?://|\b[\w-]+\.(?:io|com|org|net)\b", re.IGNORECASE)
    for name in FILES:
        path = ROOT / name
        if path.is_file():
            found = pattern.search(path.read_text("utf-8"))
            assert found is None, f"{path.name} names {found and found[0]}"


def run_check(device: str, cuda: str | None) -> subprocess.CompletedProcess[str]:
    """Run the check of the build with a stand-in for PyTorch."""
    program = (
        "import sys, types, runpy\n"
        f"torch = types.SimpleNamespace(version=types.SimpleNamespace(cuda={cuda!r}))\n"
        "sys.modules['torch'] = torch\n"
        f"sys.argv = ['check_torch.py', {device!r}]\n"
        f"runpy.run_path({str(DEPLOY / 'check_torch.py')!r}, run_name='__main__')\n"
    )
    return subprocess.run(  # noqa: S603  our own interpreter and text
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("device", "cuda", "status", "says"),
    [
        ("cpu", None, 0, "for the CPU"),
        ("cuda", "12.8", 0, "for 12.8"),
        ("cpu", "12.8", 1, "TORCH_INDEX"),
        ("cuda", None, 1, "TORCH_INDEX"),
        ("tpu", None, 2, "cpu or cuda"),
    ],
)
def test_a_build_for_another_device_ends_the_build(
    device: str, cuda: str | None, status: int, says: str
) -> None:
    done = run_check(device, cuda)
    assert done.returncode == status
    assert says in done.stderr


async def health_status(port: int) -> int:
    process = await asyncio.create_subprocess_exec(
        sys.executable, DEPLOY / "healthcheck.py", str(port)
    )
    return await process.wait()


async def test_the_health_check_asks_the_server() -> None:
    async with running_server() as server:
        port = server.port
        assert await health_status(port) == 0
    assert await health_status(port) == 1  # nobody listens any more


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"status":"ok"}', 0),
        (b'{"status":"overloaded"}', 0),
        (b'{"status":"failed"}', 1),
        (b"[]", 1),
        (b"nonsense", 1),
    ],
)
async def test_the_health_check_reads_the_status(body: bytes, status: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        assert request.startswith(b"GET /health ")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        assert await health_status(server.sockets[0].getsockname()[1]) == status


# Asterisk


def start_asterisk(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the start script with a stand-in for the PBX that tells how it was called."""
    program = folder / "asterisk"
    program.write_text('#!/bin/sh\necho "asterisk $*"\n')
    program.chmod(0o755)
    return subprocess.run(  # noqa: S603  the script is ours
        ["/bin/sh", DEPLOY / "asterisk" / "start.sh"],
        env={
            "PATH": f"{folder}:{os.environ['PATH']}",
            "ASTERISK_SECRETS": str(folder / "secrets"),
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
    )


CALL = {"SIP_PASSWORD": "sip", "ARI_PASSWORD": "ari", "AUDIOKV_URL": "wss://captions:8765"}


def test_every_include_of_the_pbx_is_written_by_its_start(tmp_path: Path) -> None:
    done = start_asterisk(tmp_path, AUDIOKV_TOKEN="correct-horse", **CALL)  # noqa: S106  of a test
    assert (done.returncode, done.stdout) == (0, "asterisk -f\n")
    included = {
        line.split()[1]
        for file in (DEPLOY / "asterisk" / "etc").iterdir()
        for line in file.read_text("utf-8").splitlines()
        if line.startswith("#include")
    }
    written = {path.name: path.read_text("utf-8") for path in (tmp_path / "secrets").iterdir()}
    assert included == {f"/run/asterisk/secrets/{name}" for name in written}
    assert "password=sip" in written["pjsip.conf"]
    assert "password=ari" in written["ari.conf"]
    client = written["websocket_client.conf"]
    assert "uri=wss://captions:8765/v1/call/asterisk\n" in client
    assert "password=correct-horse\n" in client
    assert "tls_enabled=yes\n" in client
    for path in (tmp_path / "secrets").iterdir():
        assert path.stat().st_mode & 0o077 == 0


def test_the_pbx_uses_tls_where_the_address_says_so(tmp_path: Path) -> None:
    start_asterisk(tmp_path, **{**CALL, "AUDIOKV_URL": "ws://h"})
    client = (tmp_path / "secrets" / "websocket_client.conf").read_text("utf-8")
    assert "tls_enabled=no\n" in client


@pytest.mark.parametrize("missing", list(CALL))
def test_the_pbx_does_not_start_without_its_settings(tmp_path: Path, missing: str) -> None:
    done = start_asterisk(tmp_path, **{**CALL, missing: ""})
    assert done.returncode != 0
    assert missing in done.stderr


def test_the_pbx_calls_the_server_where_it_listens() -> None:
    etc = DEPLOY / "asterisk" / "etc"
    dialplan = (etc / "extensions.conf").read_text("utf-8")
    assert "AudioSocket/127.0.0.1:9092/" in dialplan  # the port of docker-compose.yml
    dialled = re.findall(r"Dial\(WebSocket/(\w+)/(\S+)\)\n", dialplan)
    assert [client for client, _ in dialled] == ["captions", "captions"]
    assert all("v(call=" in options for _, options in dialled)  # or calls inherit from each other
    modules = re.findall(r"^load=(\S+)$", (etc / "modules.conf").read_text("utf-8"), re.MULTILINE)
    assert sorted(modules) == sorted(set(modules))
    needed = {"chan_websocket.so", "chan_audiosocket.so", "res_websocket_client.so", "func_uuid.so"}
    assert needed <= set(modules)
