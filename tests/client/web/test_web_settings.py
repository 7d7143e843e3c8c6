"""Settings: valid whatever was stored, remembered, and never sent anywhere by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

READ = """async ([stored, query]) => {
  const { Settings } = await import("./js/settings.js");
  localStorage.clear();
  if (stored !== null) localStorage.setItem("audiokv.settings", stored);
  return new Settings(localStorage, new URLSearchParams(query)).values;
}"""


@pytest.mark.parametrize(
    ("stored", "query", "expected"),
    [
        (None, "", {"sizePercent": 100, "lines": 2, "theme": "system"}),
        ("{broken", "", {"sizePercent": 100}),
        ("null", "", {"lines": 2}),
        ('{"lines": 99, "sizePercent": "x", "theme": "pink", "prompt": 3}', "", {
            "lines": 5, "sizePercent": 100, "theme": "system", "prompt": ""}),
        ('{"lines": 3, "isAnnounced": false}', "", {"lines": 3, "isAnnounced": False}),
        ('{"lines": 3}', "lines=4&size=150&theme=light&colours=yellow&font=mono", {
            "lines": 4, "sizePercent": 150, "theme": "light", "colours": "yellow",
            "font": "mono"}),
        (None, "size=", {"sizePercent": 100}),
    ],
)  # fmt: skip
async def test_values_are_usable_whatever_was_stored(
    blank_page: Page, stored: str | None, query: str, expected: dict[str, object]
) -> None:
    values = await blank_page.evaluate(READ, [stored, query])
    assert {name: values[name] for name in expected} == expected


async def test_a_change_is_remembered_and_told_once(blank_page: Page) -> None:
    names, again = await blank_page.evaluate("""async () => {
      const { Settings } = await import("./js/settings.js");
      localStorage.clear();
      const settings = new Settings(localStorage);
      const told = [];
      settings.addEventListener("change", (event) => told.push(event.detail.names));
      settings.set({ lines: 3, font: "mono" });
      settings.set({ lines: 3 });
      return [told, new Settings(localStorage).values.lines];
    }""")
    assert names == [["font", "lines"]]
    assert again == 3


async def test_a_full_storage_does_not_stop_the_page(blank_page: Page) -> None:
    lines = await blank_page.evaluate("""async () => {
      const { Settings } = await import("./js/settings.js");
      const full = {
        getItem: () => { throw new DOMException("no", "SecurityError"); },
        setItem: () => { throw new DOMException("full", "QuotaExceededError"); },
      };
      const settings = new Settings(full);
      settings.set({ lines: 4 });
      return settings.values.lines;
    }""")
    assert lines == 4


async def test_a_token_of_the_address_leaves_it_and_ends_with_the_tab(blank_page: Page) -> None:
    token, address, stored = await blank_page.evaluate("""async () => {
      const { readToken } = await import("./js/settings.js");
      history.replaceState(null, "", "?watch=s-1#token=secret");
      const token = readToken(location);
      const found = [token, location.href, Object.values(localStorage).join()];
      history.replaceState(null, "", location.pathname);
      sessionStorage.clear();
      return found;
    }""")
    assert [token] == ["secret"]
    assert address.endswith("?watch=s-1")
    assert "secret" not in stored


async def test_languages_have_names_and_unknown_codes_stay(blank_page: Page) -> None:
    choices = await blank_page.evaluate("""async () =>
      (await import("./js/languages.js")).languageChoices(["de", "haw", "not a code", "ar"])""")
    assert [(choice["value"], choice["label"]) for choice in choices] == [
        ("auto", "Detect automatically"),
        ("ar", "Arabic"),
        ("de", "German"),
        ("haw", "Hawaiian"),
        ("not a code", "not a code"),
    ]
