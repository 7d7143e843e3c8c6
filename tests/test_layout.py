"""The layout of the project, kept by tests: imports, mirrored tests, links, sizes, portability."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "audiokv"
TESTS = REPOSITORY / "tests"
SOURCES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 350

# Source files whose mirrored test has another name, with the reason.
TEST_NAMES = {
    "audiokv/__main__.py": "tests/test_main.py",  # underscores are pytest's own
    "audiokv/server/command.py": "tests/server/test_serve_command.py",  # the client has one too
    "audiokv/server/protocols/dialect.py": "tests/server/protocols/test_protocol_dialect.py",
    "audiokv/models/whisper/guards.py": "tests/models/whisper/test_whisper_guards.py",  # policy's
}
# Source files without behaviour of their own: nothing but protocols and plain records.
WITHOUT_TESTS = {"audiokv/models/base.py"}

# What each part may import of AudioKV. The most specific prefix of a module's name counts.
ALLOWED = {
    "audiokv.streaming": {"audiokv.streaming"},
    "audiokv.models": {"audiokv.models", "audiokv.streaming"},
    "audiokv.models.base": {"audiokv.streaming"},  # the seam: the server imports it
    "audiokv.client": {"audiokv.client", "audiokv.streaming"},
    "audiokv.server": {"audiokv.server", "audiokv.streaming", "audiokv.models.base"},
    "audiokv.__main__": {"audiokv"},  # the only place that joins a model to a server
}
# What streaming and the client may name in annotations, without importing it when they run.
TYPES_OF_THE_SEAM = {"audiokv.models.base"}
STREAMING_THIRD_PARTY = {"numpy", "samplerate"}
STREAMING_FORBIDDEN = {  # sockets, clocks and concurrency: streaming is pure
    "asyncio",
    "concurrent",
    "http",
    "multiprocessing",
    "sched",
    "select",
    "selectors",
    "signal",
    "socket",
    "socketserver",
    "ssl",
    "subprocess",
    "threading",
    "time",
    "urllib",
}
MODEL_LIBRARIES = {"torch", "transformers", "safetensors", "huggingface_hub", "tokenizers"}


def module_name(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(f"{prefix}.")


def imported_modules(path: Path) -> tuple[set[str], set[str]]:
    """Return the modules a file imports when it runs, also inside functions, and for types only."""
    tree = ast.parse(path.read_text("utf-8"))
    type_blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    ]
    type_only = {inner for block in type_blocks for part in block.body for inner in ast.walk(part)}
    running = set(ast.walk(tree)) - type_only
    return modules_named(running), modules_named(type_only)


def modules_named(nodes: set[ast.AST]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "absolute imports only"
            base = node.module or ""
            submodules = {f"{base}.{alias.name}" for alias in node.names}
            real = {name for name in submodules if exists(name)}
            found.update(real if real == submodules else {*real, base})
    return found


def exists(module: str) -> bool:
    path = REPOSITORY.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def tracked_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    paths = [REPOSITORY / name for name in listing.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def part_of(module: str) -> str:
    """Return the most specific part with a rule that a module belongs to."""
    if module == "audiokv":  # imported by everything, so bound by the strictest rule
        return "audiokv.streaming"
    return max((part for part in ALLOWED if is_within(module, part)), key=len)


def test_imports_point_one_way() -> None:
    wrong: list[str] = []
    for path in SOURCES:
        module = module_name(path)
        allowed = ALLOWED[part_of(module)]
        running, type_only = imported_modules(path)
        for imported, prefixes in [
            *((name, allowed) for name in running),
            *((name, allowed | TYPES_OF_THE_SEAM) for name in type_only),
        ]:
            if is_within(imported, "audiokv"):
                fits = any(is_within(imported, prefix) for prefix in prefixes)
                wrong.extend([] if fits else [f"{module} imports {imported}"])
    assert not wrong, "\n".join(wrong)


def test_the_rules_would_notice_a_wrong_import() -> None:
    assert part_of("audiokv.models.base") == "audiokv.models.base"
    assert part_of("audiokv.server.protocols.native") == "audiokv.server"
    tree = ast.parse("def f():\n    from audiokv.models import weights, nothing_of_that_name")
    assert modules_named(set(ast.walk(tree))) == {"audiokv.models", "audiokv.models.weights"}


def test_streaming_is_pure() -> None:
    wrong: list[str] = []
    known = sys.stdlib_module_names | STREAMING_THIRD_PARTY | {"audiokv"}
    for path in (PACKAGE / "streaming").rglob("*.py"):
        running, _ = imported_modules(path)
        tops = {imported.partition(".")[0] for imported in running}
        wrong.extend(f"{module_name(path)} imports {top}" for top in tops & STREAMING_FORBIDDEN)
        wrong.extend(f"{module_name(path)} imports {top}" for top in tops - known)
    assert not wrong, "\n".join(wrong)


def test_model_libraries_stay_in_models() -> None:
    wrong: list[str] = []
    for path in SOURCES:
        if not path.is_relative_to(PACKAGE / "models") or path == PACKAGE / "models" / "base.py":
            tops = {imported.partition(".")[0] for imported in imported_modules(path)[0]}
            wrong.extend(f"{module_name(path)} imports {top}" for top in tops & MODEL_LIBRARIES)
    assert not wrong, "\n".join(wrong)


def test_every_source_file_has_its_own_test_file() -> None:
    missing = []
    for path in [*SOURCES, *sorted((REPOSITORY / "tools").rglob("*.py"))]:
        relative = path.relative_to(REPOSITORY)
        inside = relative.relative_to("audiokv") if relative.parts[0] == "audiokv" else relative
        mirrored = Path("tests") / inside.with_name(f"test_{path.name}")
        expected = TEST_NAMES.get(relative.as_posix(), mirrored.as_posix())
        if path.name == "__init__.py" or relative.as_posix() in WITHOUT_TESTS:
            continue
        if not (REPOSITORY / expected).is_file():
            missing.append(f"{relative} needs {expected}")
    assert not missing, "\n".join(missing)


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in TESTS.rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", ["server", "client", "streaming", "models"])
def test_the_four_parts_are_linked_at_the_top(name: str) -> None:
    link = REPOSITORY / name
    assert link.is_symlink()
    assert link.readlink() == Path("audiokv") / name
    assert (link / "__init__.py").is_file()


def test_no_source_file_is_too_long() -> None:
    kinds = {".py", ".js", ".css", ".html"}
    n_lines = {
        path.relative_to(REPOSITORY).as_posix(): len(path.read_text("utf-8").splitlines())
        for path in tracked_files()
        if path.suffix in kinds
    }
    assert {name: n for name, n in n_lines.items() if n > MAX_LINES} == {}


def test_the_client_imports_without_model_libraries_or_server() -> None:
    modules = [module_name(path) for path in SOURCES if path.is_relative_to(PACKAGE / "client")]
    program = (
        "import importlib, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run(  # noqa: S603  our own interpreter and text
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    loaded = json.loads(done.stdout)
    tops = {name.partition(".")[0] for name in loaded}
    assert not tops & (MODEL_LIBRARIES | {"sounddevice"})  # the microphone's library comes late
    assert not [name for name in loaded if is_within(name, "audiokv.server")]
    assert not [name for name in loaded if is_within(name, "audiokv.models")]


def test_no_file_names_a_place_on_one_machine() -> None:
    # Built from halves so that this file does not match itself.
    places = "|".join(
        ["/" + "work/", "/" + "root/", "/" + "home/[a-z]", "/" + "Users/", "/" + "opt/"]
    )
    pattern = re.compile(rf"(?<![\w.]){'(?:' + places + ')'}")
    for path in tracked_files():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        found = pattern.search(text)
        assert not found, f"{path.relative_to(REPOSITORY)} names {found and found[0]}"


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    banned = {"skip", "skipif", "xfail", "importorskip", "skipTest"}
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute | ast.Name):
                name = node.attr if isinstance(node, ast.Attribute) else node.id
                assert name not in banned, f"{path.relative_to(REPOSITORY)}:{node.lineno}"


@pytest.mark.slow
def test_the_wheel_carries_every_file_of_the_package(tmp_path: Path) -> None:
    subprocess.run(  # noqa: S603  our own interpreter
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", tmp_path, REPOSITORY],
        check=True,
    )
    (wheel,) = tmp_path.glob("audiokv-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
        metadata = next(name for name in packed if name.endswith(".dist-info/METADATA"))
        assert "License-Expression: Apache-2.0" in archive.read(metadata).decode()
    files = tracked_files()
    expected = {
        path.relative_to(REPOSITORY).as_posix() for path in files if path.is_relative_to(PACKAGE)
    }
    assert expected <= packed
    assert any(name.startswith("audiokv/client/web/") for name in packed)
    assert any(name.endswith("licenses/LICENSE") for name in packed)
    # Started from the archive itself, so that nothing of the working tree can help it.
    done = subprocess.run(
        [sys.executable, "-c", "import audiokv; print(audiokv.__file__)"],
        env={"PYTHONPATH": str(wheel)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(wheel))
