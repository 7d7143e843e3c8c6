"""Who is let in by a real mosquitto, and what is told of who is not."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.server.doubles import until
from tests.server.mqtt.linking import linked
from tests.server.mqtt.mosquitto import running_broker

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def closed_lines(tmp_path: Path) -> str:
    """Let in only the user ``me`` with the password ``secret``."""
    file = tmp_path / "passwords"
    subprocess.run(["mosquitto_passwd", "-b", "-c", file, "me", "secret"], check=True)  # noqa: S603, S607  Debian's
    return f"allow_anonymous false\npassword_file {file}"


async def test_the_right_login_is_let_in(tmp_path: Path, closed_lines: str) -> None:
    async with (
        running_broker(tmp_path, closed_lines) as broker,
        linked(broker.port, login=("me", "secret")) as link,
    ):
        await link.connected.wait()


@pytest.mark.parametrize(
    ("login", "who"),
    [((None, None), "an anonymous client"), (("me", "wrong"), "the login of 'me'")],
)
async def test_a_refused_login_is_told(
    tmp_path: Path,
    closed_lines: str,
    caplog: pytest.LogCaptureFixture,
    login: tuple[str | None, str | None],
    who: str,
) -> None:
    async with (
        running_broker(tmp_path, closed_lines) as broker,
        linked(broker.port, login=login),
    ):
        await until(lambda: "refused" in caplog.text)
    assert f"The broker {broker.url} refused {who}. Check mqtt_user" in caplog.text
    assert "wrong" not in caplog.text
