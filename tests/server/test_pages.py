from __future__ import annotations

from typing import TYPE_CHECKING

from audiokv.server.pages import SECURITY_HEADERS, Page, load_pages

if TYPE_CHECKING:
    from pathlib import Path


def test_files_are_known_by_path_and_type(tmp_path: Path) -> None:
    (tmp_path / "js").mkdir()
    (tmp_path / "index.html").write_bytes(b"<html>")
    (tmp_path / "js" / "main.js").write_bytes(b"1")
    (tmp_path / "style.css").write_bytes(b"2")
    (tmp_path / "secret.py").write_bytes(b"3")
    (tmp_path / ".hidden").write_bytes(b"4")
    pages = load_pages(tmp_path)
    assert pages == {
        "/": Page("text/html; charset=utf-8", b"<html>"),
        "/index.html": Page("text/html; charset=utf-8", b"<html>"),
        "/js/main.js": Page("text/javascript; charset=utf-8", b"1"),
        "/style.css": Page("text/css; charset=utf-8", b"2"),
    }


def test_a_folder_without_a_page_has_none(tmp_path: Path) -> None:
    assert load_pages(tmp_path) == {}


def test_the_package_brings_its_page() -> None:
    page = load_pages()["/"]
    assert page.content_type.startswith("text/html")
    assert b"<script" in page.body


def test_only_what_the_page_brings_may_run() -> None:
    policy = SECURITY_HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
