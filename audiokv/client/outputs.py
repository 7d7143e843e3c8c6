"""Caption files: which are written, where, and for which recording."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from audiokv.streaming.errors import ConfigError
from audiokv.streaming.subtitles import JsonLines, PlainText, SubRip, WebVtt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TextIO

    from audiokv.streaming.captions import Caption
    from audiokv.streaming.subtitles import CaptionFormat

STEM = "{stem}"
"""In the name of an output: replaced by the recording's name without folder and ending."""


def formats(language: str | None) -> dict[str, Callable[[], CaptionFormat]]:
    """Return what makes each kind of file, by its ending.

    Args:
        language: ISO 639-1 code the captions were asked for in, or None.
    """
    return {
        "srt": SubRip,
        "vtt": lambda: WebVtt(language),
        "txt": PlainText,
        "jsonl": JsonLines,
    }


class CaptionFile:
    """One file of captions; complete up to the last settled cue at any time.

    Args:
        path: Where to; an existing file is replaced.
        caption_format: What to write.

    Raises:
        ConfigError: The file cannot be written.
    """

    def __init__(self, path: Path, caption_format: CaptionFormat) -> None:
        self.path = path
        self._format = caption_format
        try:
            self._file: TextIO = path.open("w", encoding="utf-8", newline="\n")
        except OSError as error:
            raise _unwritable(path, error) from error

    def add(self, caption: Caption) -> None:
        """Write what a caption settles."""
        self._write(self._format.add(caption))

    def close(self) -> None:
        """Write the rest."""
        try:
            self._write(self._format.finish())
        finally:
            self._close()

    def _close(self) -> None:
        try:
            self._file.close()  # writes what is still buffered
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _write(self, text: str) -> None:
        if not text:
            return
        try:
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            raise _unwritable(self.path, error) from error


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        "cannot_write",
        f"The output {str(path)!r} cannot be written: {error.strerror or error}.",
        "Choose another place.",
    )


@dataclass(slots=True)
class _Shift:
    """How far the recordings before this one moved the captions of a common file."""

    ms: int = 0
    n_captions: int = 0
    n_segments: int = 0


class Outputs:
    """The caption files of a run over one or more recordings.

    A name with ``{stem}`` gives one file a recording. A name without it gives one file for all:
    each recording's captions follow the one before, times and numbers shifted.

    Args:
        names: Names of the wanted files by ending (``srt``, ``vtt``, ``txt``, ``jsonl``).
        language: ISO 639-1 code the captions were asked for in, or None.

    Raises:
        ConfigError: A common file cannot be written.
    """

    def __init__(self, names: Mapping[str, str], language: str | None = None) -> None:
        self._names = dict(names)
        self._formats = formats(language)
        self._common = [
            CaptionFile(Path(name), self._formats[kind]())
            for kind, name in self._names.items()
            if STEM not in name
        ]
        self._own: list[CaptionFile] = []
        self._shift = _Shift()
        self._end_ms = 0
        self._last: Caption | None = None

    def begin(self, stem: str) -> None:
        """Begin a recording.

        Raises:
            ConfigError: One of its files cannot be written.
        """
        self._own = [
            CaptionFile(Path(name.replace(STEM, stem)), self._formats[kind]())
            for kind, name in self._names.items()
            if STEM in name
        ]

    def add(self, caption: Caption) -> None:
        """Write a caption of the current recording; partials are passed over."""
        if not caption.is_final:
            return
        self._last = caption
        for file in self._own:
            file.add(caption)
        moved = _shifted(caption, self._shift)
        for file in self._common:
            file.add(moved)

    def end(self, duration_ms: int) -> None:
        """End a recording of a length."""
        own, self._own = self._own, []
        _close_all(own)
        self._shift.ms += duration_ms
        if self._last is not None:
            self._shift.n_captions += self._last.seq
            self._shift.n_segments += self._last.segment + 1
        self._last = None

    def close(self) -> None:
        """Complete every file."""
        files, self._own, self._common = [*self._own, *self._common], [], []
        _close_all(files)


def _close_all(files: list[CaptionFile]) -> None:
    while files:
        file = files.pop()
        try:
            file.close()
        except BaseException:
            _close_all(files)
            raise


def _shifted(caption: Caption, shift: _Shift) -> Caption:
    return replace(
        caption,
        seq=caption.seq + shift.n_captions,
        segment=caption.segment + shift.n_segments,
        start_ms=caption.start_ms + shift.ms,
        end_ms=caption.end_ms + shift.ms,
        words=tuple(
            replace(word, start_ms=word.start_ms + shift.ms, end_ms=word.end_ms + shift.ms)
            for word in caption.words
        ),
    )


def check_outputs(names: Mapping[str, str], recordings: Sequence[Path]) -> None:
    """Refuse outputs that would overwrite each other or a recording.

    Raises:
        ConfigError: Two outputs are the same file, or one is a recording.
    """
    taken = {path.resolve(): str(path) for path in recordings}
    for name in names.values():
        stems = [path.stem for path in recordings] if STEM in name else [""]
        for stem in stems:
            path = Path(name.replace(STEM, stem))
            if path.resolve() in taken:
                raise ConfigError(
                    "output_clash",
                    f"The output {str(path)!r} would overwrite {taken[path.resolve()]!r}.",
                    "Give every output its own name, and recordings of one name their own run.",
                )
            taken[path.resolve()] = str(path)
