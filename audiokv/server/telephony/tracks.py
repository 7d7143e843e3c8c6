"""Two legs of a call that come as separate packets, woven into the two channels of one stream."""

from __future__ import annotations

MAX_APART_MS = 500  # a leg that is silent for longer than this is filled up with silence


class TrackWeaver:
    """Joins two legs by their time; what one leg does not send is silence in its channel.

    Args:
        rate_hz: Samples per second of each leg.
        silence: Encoded sample of silence.
    """

    def __init__(self, rate_hz: int, silence: bytes) -> None:
        self._silence = silence
        self._sample_bytes = len(silence)
        self._max_apart_bytes = rate_hz * MAX_APART_MS // 1000 * self._sample_bytes
        self._held = (bytearray(), bytearray())
        self._skip_bytes = [0, 0]

    def push(self, track: int, audio: bytes) -> bytes:
        """Return the samples of both legs that are complete now, interleaved.

        Args:
            track: 0 or 1.
            audio: Whole samples that follow what the leg sent before.
        """
        n_left = self._less_filled(track, len(audio))
        self._held[track].extend(audio[len(audio) - n_left :])
        apart = len(self._held[track]) - len(self._held[1 - track])
        if apart > self._max_apart_bytes:
            self._fill(1 - track, apart - self._max_apart_bytes)
        return self._take()

    def leap(self, track: int, n_samples: int) -> tuple[bytes, int]:
        """Let one leg go on over samples that it did not send.

        What was stood in for them already counts. A short rest is silence in the leg's channel;
        over one longer than the legs may be apart, both leap, for neither sent anything then.

        Args:
            track: 0 or 1.
            n_samples: How many are missing.

        Returns:
            What is complete now, interleaved, and how many samples the whole stream then leaps.
        """
        missing = self._less_filled(track, n_samples * self._sample_bytes)
        if missing <= self._max_apart_bytes:
            return self.push(track, self._silence * (missing // self._sample_bytes)), 0
        woven = self.flush()
        missing = self._less_filled(track, missing)
        self._skip_bytes[1 - track] += missing
        return woven, missing // self._sample_bytes

    def _less_filled(self, track: int, n_bytes: int) -> int:
        """Return how many bytes of a leg are left once those stood in for are taken off."""
        n_filled = min(self._skip_bytes[track], n_bytes)
        self._skip_bytes[track] -= n_filled
        return n_bytes - n_filled

    def flush(self) -> bytes:
        """Return the rest, the shorter leg filled up."""
        longest = max(len(held) for held in self._held)
        for track, held in enumerate(self._held):
            self._fill(track, longest - len(held))
        return self._take()

    def _fill(self, track: int, n_bytes: int) -> None:
        """Stand silence in for what is late; the leg's own samples for it are left out."""
        whole = -(-n_bytes // self._sample_bytes)
        self._held[track].extend(self._silence * whole)
        self._skip_bytes[track] += whole * self._sample_bytes

    def _take(self) -> bytes:
        size = self._sample_bytes
        n_samples = min(len(held) for held in self._held) // size
        woven = bytearray(2 * n_samples * size)
        for track, held in enumerate(self._held):
            for byte in range(size):
                woven[track * size + byte :: 2 * size] = held[byte : n_samples * size : size]
            del held[: n_samples * size]
        return bytes(woven)
