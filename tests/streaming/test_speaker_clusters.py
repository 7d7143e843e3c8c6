from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from audiokv.streaming.speaker_clusters import SpeakerClusters


def at(degrees: float) -> np.ndarray:
    angle = np.radians(degrees)
    point: np.ndarray = np.array([np.cos(angle), np.sin(angle)], np.float32)
    return point


def match(clusters: SpeakerClusters, degrees: float, threshold: float = 0.9) -> int | None:
    return clusters.match(at(degrees), threshold)


def learn(clusters: SpeakerClusters, degrees: float, threshold: float = 0.9) -> int:
    return clusters.learn(at(degrees), match(clusters, degrees, threshold), 1.0)


def test_the_first_voice_is_new_and_one_like_it_is_not() -> None:
    clusters = SpeakerClusters(max_speakers=5)
    assert match(clusters, 0) is None
    assert learn(clusters, 0) == 0
    assert match(clusters, 20) == 0  # cosine 0.94
    assert match(clusters, 30) is None  # 0.87
    assert len(clusters) == 1


def test_asking_changes_nothing() -> None:
    clusters = SpeakerClusters(max_speakers=5)
    learn(clusters, 0)
    assert [match(clusters, 40) for _ in range(3)] == [None] * 3
    assert len(clusters) == 1


def test_the_nearest_voice_is_taken() -> None:
    clusters = SpeakerClusters(max_speakers=5)
    assert [learn(clusters, degrees, 0.5) for degrees in (0, 90, 20, 70)] == [0, 1, 0, 1]
    assert match(clusters, 50, 0.5) == 1


def test_a_voice_follows_what_it_learns_by_weight() -> None:
    light, heavy = (SpeakerClusters(max_speakers=5) for _ in range(2))
    for clusters, weight in ((light, 0.1), (heavy, 10.0)):
        clusters.learn(at(0), None, 1.0)
        clusters.learn(at(24), 0, weight)
    assert match(light, 45) is None
    assert match(heavy, 45) == 0
    assert match(light, -20) == 0
    assert match(heavy, -20) is None


def test_a_voice_heard_in_many_ways_does_not_take_others_in() -> None:
    clusters = SpeakerClusters(max_speakers=5)
    clusters.learn(at(-40), None, 1.0)
    clusters.learn(at(40), 0, 1.0)
    # In the direction of the mean (cosine 1), yet no more like its members than they say.
    assert match(clusters, 0, 0.77) is None
    assert match(clusters, 0, 0.76) == 0


def test_a_voice_is_not_changed_from_outside() -> None:
    clusters = SpeakerClusters(max_speakers=5)
    embedding = at(0)
    clusters.learn(embedding, None, 1.0)
    clusters.learn(at(20), 0, 1.0)
    assert embedding.tolist() == at(0).tolist()


def test_past_the_limit_the_nearest_is_taken_however_far() -> None:
    clusters = SpeakerClusters(max_speakers=2)
    assert [learn(clusters, degrees) for degrees in (0, 90)] == [0, 1]
    assert match(clusters, 130) == 1
    assert match(clusters, -80) == 0


@given(st.lists(st.floats(0, 360), max_size=40), st.integers(1, 4))
def test_voices_are_numbered_as_they_come(angles: list[float], max_speakers: int) -> None:
    clusters = SpeakerClusters(max_speakers=max_speakers)
    seen: list[int] = []
    for angle in angles:
        number = learn(clusters, angle, 0.8)
        assert number <= len(set(seen))
        seen.append(number)
    assert len(clusters) == len(set(seen)) <= max_speakers
