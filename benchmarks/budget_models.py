"""The latency budgets of the models: their parts put together in the order in which they happen."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from audiokv.models.audio_llm.text_part import TextPart
from audiokv.models.cache.slot_cache import SlotCache
from audiokv.models.gemma3n.mel import IncrementalMel, MelFrontEnd
from audiokv.models.gemma3n.prefix import Prefix
from audiokv.models.gemma3n.tower import StreamingTower
from audiokv.models.load import load_recognizer
from audiokv.models.silero import SileroModel
from audiokv.models.whisper.decoding import DraftDecoder
from audiokv.models.whisper.features import IncrementalLogMel
from audiokv.models.whisper.network import WhisperNetwork
from audiokv.streaming.audio_cache import CacheOptions
from audiokv.streaming.policy.driver import PolicyDriver
from audiokv.streaming.session_options import SessionOptions
from benchmarks.budget_layers import LayerBench, StepShape
from benchmarks.budget_parts import Budget, Check, Known, Part
from benchmarks.budget_streams import (
    SESSION,
    known_arrivals,
    listen_to_streams,
    shown_after_true_ends,
)
from benchmarks.budget_transport import (
    display_part,
    frame_part,
    handover_part,
    listening_part,
    packing_part,
    wire_parts,
)
from benchmarks.budget_waits import AtOnce, SlotGrid, find_waits
from benchmarks.digit_streams import digit_stream
from benchmarks.gemma3n_sizes import build_model, real_config
from benchmarks.measures import percentiles
from benchmarks.recordings import SAMPLES_PER_MS, near_silence, to_pcm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.budget_streams import Said, StepCosts
    from benchmarks.budget_waits import Waits
    from benchmarks.recordings import Recording
    from tools.digits_data import DigitBank

TAIL_MS = 2000
CAPTIONS_COLUMN = "audiokv, real server, language given"
REACH_MEL_FRAMES = 6  # slot j reads mel frames up to 16 j + 6
MEL_PER_SLOT = 16
TOWER_NOTE = "slots of 160 ms; those that are not whole are read as if the audio ended here"
_SLOW_SHARE = 0.9  # of a step; above it steps wait for each other

WHISPER_PARTS = (
    (IncrementalLogMel, "append", "mel"),
    (IncrementalLogMel, "features", "mel"),
    (WhisperNetwork, "encode", "encoder"),
    (WhisperNetwork, "cross_cache", "keys and values of the audio"),
    (DraftDecoder, "decode", "decoder: draft and new tokens"),
)
WHISPER_NOTES = {
    "mel": "of the new audio",
    "encoder": "the window heard so far and 2 s of padding",
    "keys and values of the audio": "",
    "decoder: draft and new tokens": "one pass for the draft, one for each new token",
}
GEMMA_PARTS = (
    (IncrementalMel, "push", "mel"),
    (StreamingTower, "advance", "audio tower"),
    (StreamingTower, "finish", "audio tower"),
    (Prefix, "run", "new slots into the cache"),
    (Prefix, "run_in_tail", "tail: end of audio, text, draft, new tokens"),
    (TextPart, "logits", "output layer"),
    (PolicyDriver, "plan", "eviction in the step"),
    (PolicyDriver, "apply", "eviction in the step"),
    (SlotCache, "keep", "eviction in the step"),
)
GEMMA_NOTES = {
    "mel": "of the new audio",
    "audio tower": "the new audio, and the slots that are not whole",
    "new slots into the cache": "",
    "tail: end of audio, text, draft, new tokens": "one pass, and one for each new token",
    "output layer": "",
    "eviction in the step": "what was not done ahead",
}


@dataclass(frozen=True, slots=True)
class Around:
    """What lies before and behind the recogniser, the same for every model.

    Attributes:
        before: From the microphone to the inference thread.
        after: From there to the client.
        page: From the client to the eye.
    """

    before: tuple[Part, ...]
    after: tuple[Part, ...]
    page: tuple[Part, ...]

    @classmethod
    def measured(cls, detector: SileroModel) -> Around:
        """Measure it on this machine."""
        frame_wire, caption_wire = wire_parts()
        noise = np.random.default_rng(0).normal(0.0, 0.1, (400, 160)).astype(np.float32)
        return cls(
            before=(
                frame_part(),
                frame_wire,
                handover_part(),
                listening_part(detector.open(), to_pcm(noise)),
            ),
            after=(packing_part(), caption_wire),
            page=(display_part(),),
        )

    @property
    def typical_ms(self) -> float:
        """Sum of it without the page."""
        return sum(part.typical_ms for part in (*self.before, *self.after))


def whisper_budget(
    recordings: Sequence[Recording], model: str, around: Around, captions_file: Path
) -> Budget:
    """Measure Whisper on recordings and hold the sum against latencies measured elsewhere.

    Args:
        recordings: What is heard, one stream each; the language is told.
        model: Name or folder of the model.
        around: What lies around it.
        captions_file: Results of ``captions.py``, which need not be there.
    """
    said: list[Said] = [
        (np.concatenate([one.samples(), near_silence(TAIL_MS * SAMPLES_PER_MS)]), one.language)
        for one in recordings
    ]
    recognizer = load_recognizer(model)
    torch.set_num_threads(1)
    costs = listen_to_streams(
        recognizer, SileroModel.load().open, said, WHISPER_PARTS, SessionOptions()
    )
    waits = find_waits(AtOnce(), SessionOptions(), is_aligned=recognizer.info.aligns)
    measured = _measured_budget(
        model,
        around,
        _Found(costs, waits, "the window is encoded anew at each step"),
        WHISPER_NOTES,
    )
    served = served_latency(captions_file, CAPTIONS_COLUMN)
    if served is None:
        return measured
    check = Check(
        f"captions.json, {CAPTIONS_COLUMN!r}, on the machine and under the load named there",
        waits.median_ms + _compute_ms(costs) + around.typical_ms,
        served,
    )
    return replace(measured, checks=(*measured.checks, check))


def digits_budget(folder: Path, bank: DigitBank, seconds: float, around: Around) -> Budget:
    """Measure the small Gemma-3n on a stream of spoken digits."""
    recognizer = load_recognizer(str(folder), CacheOptions(256, "audiokv"))
    torch.set_num_threads(1)
    stream, options = digit_stream(bank, seconds * 1e3, seed=0), SessionOptions()
    open_detector = SileroModel.load().open
    costs = listen_to_streams(
        recognizer, open_detector, [(stream.samples, "en")], GEMMA_PARTS, options
    )
    words = [word for string in stream.strings for word in string.words]
    ends_ms = [end_ms for string in stream.strings for end_ms in string.ends_ms]
    costs.shown_ms = shown_after_true_ends(costs.arrivals[0], words, ends_ms)
    known = known_arrivals(recognizer, open_detector, stream.samples, "en", options)
    front_end = MelFrontEnd.from_folder(folder)
    waits = _slot_waits(front_end, is_aligned=recognizer.info.aligns)
    ahead = _ahead_part(shown_after_true_ends(known, words, ends_ms), waits)
    found = _Found(costs, waits, TOWER_NOTE, "the words' true ends", ahead)
    budget = _measured_budget(folder.name, around, found, GEMMA_NOTES)
    rest = Part(
        "eviction",
        float(np.median(costs.beside_ms)),
        max(costs.beside_ms),
        Known.MEASURED,
        "in the pause after the caption",
        is_on_the_way=False,
    )
    notes = (*budget.notes, final_slots_note(front_end))
    return replace(budget, parts=(*budget.parts, rest), notes=notes)


def _ahead_part(known_ms: Sequence[float], waits: Waits) -> Part:
    """Return by how much a model knows words earlier than once it has heard them whole."""
    awaited_ms = float(np.median(waits.audio_ms + waits.step_ms))
    early_ms = float(np.median(known_ms)) - awaited_ms
    note = f"first hypothesis with the word p50 {np.median(known_ms):.0f} ms after its end"
    return Part("word known before it is heard whole", early_ms, 0.0, Known.MEASURED, note)


def size_budget(  # noqa: PLR0913  each is one decision
    size: str,
    device: torch.device,
    dtype: torch.dtype,
    shape: StepShape,
    around: Around,
    *,
    repeats: int,
    is_whole: bool,
) -> Budget:
    """Add up what a published size would take on a device, with random weights."""
    from transformers import Gemma3nAudioFeatureExtractor  # noqa: PLC0415  slow to import

    cut = build_model(real_config(size), device, dtype, is_whole=is_whole)
    bench = LayerBench(cut, shape, repeats)
    computed = (*bench.parts(), bench.eviction_part())
    front_end = MelFrontEnd(Gemma3nAudioFeatureExtractor())
    waits = _slot_waits(front_end, is_aligned=False)
    compute_ms = sum(part.typical_ms for part in computed if part.is_on_the_way)
    notes = [
        final_slots_note(front_end),
        "random weights: what it would say is unknown",
        "words and their times from attention are not in it (see the digits' rest)",
    ]
    if compute_ms > _SLOW_SHARE * shape.step_ms:
        notes.append(
            f"a step takes {compute_ms:.0f} ms for {shape.step_ms} ms of audio: this device "
            "cannot keep up, so captions would come later and later and the sum does not hold"
        )
    return Budget(
        f"Gemma-3n {size}",
        f"{_device_name(device)}, {str(dtype).removeprefix('torch.')}",
        (*around.before, *waits.parts(TOWER_NOTE), *computed, *around.after, *around.page),
        (waits.commit_part(),),
        notes=tuple(notes),
    )


def _slot_waits(front_end: MelFrontEnd, *, is_aligned: bool) -> Waits:
    grid = SlotGrid.of(front_end, MEL_PER_SLOT, REACH_MEL_FRAMES, is_final=False)
    return find_waits(grid, SessionOptions(), is_aligned=is_aligned)


def final_slots_note(front_end: MelFrontEnd) -> str:
    """Return what a reader would wait for that takes no slot before it is final."""
    grid = SlotGrid.of(front_end, MEL_PER_SLOT, REACH_MEL_FRAMES, is_final=True)
    final_ms = find_waits(grid, SessionOptions(), is_aligned=False).audio_ms
    return (
        f"if only whole slots and their 92 ms of look-ahead were read, the audio would be waited "
        f"for {final_ms.mean():.0f} ms (at worst {final_ms.max():.0f})"
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found about one model.

    Attributes:
        costs: Its computing, and when it showed words.
        waits: By the rules.
        audio_note: What it waits for.
        ends: Whose word ends latencies count from.
        ahead: By how much it knows words before their end, where that was measured.
    """

    costs: StepCosts
    waits: Waits
    audio_note: str
    ends: str = "the recogniser's own word ends"
    ahead: Part | None = None


def _measured_budget(
    model: str, around: Around, measured: _Found, notes: Mapping[str, str]
) -> Budget:
    costs, waits = measured.costs, measured.waits
    ahead = [] if measured.ahead is None else [measured.ahead]
    found = percentiles(costs.shown_ms)
    check = Check(
        f"first shown in the virtual-time run that was timed, by {measured.ends}",
        waits.median_ms + _compute_ms(costs) + sum(part.typical_ms for part in ahead),
        found["p50"],
    )
    computed = costs.parts({**notes, "rest of the recogniser": "", SESSION: ""})
    return Budget(
        model,
        f"{_device_name(torch.device('cpu'))}, one thread",
        (
            *around.before,
            *waits.parts(measured.audio_note),
            *ahead,
            *computed,
            *around.after,
            *around.page,
        ),
        (waits.commit_part(),),
        (check,),
        (f"{found['n']:.0f} words, {len(costs.step_ms)} steps that brought a caption",),
    )


def _compute_ms(costs: StepCosts) -> float:
    return float(np.median(costs.step_ms))


def served_latency(file: Path, column: str) -> float | None:
    """Return the median first-shown latency of a column of ``captions.json``; None without it."""
    if not file.is_file():
        return None
    found = json.loads(file.read_text("utf-8"))["columns"].get(column)
    return None if found is None else float(found["shown_latency_ms"]["p50"])


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
