"""Vectors: the same text gives the same one, wherever and with whatever it is embedded."""

import hashlib
import math
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from whence.errors import SetupError
from whence.models.embedder import (
    MAX_DIMENSION,
    MAX_EMBEDDED_CHARACTERS,
    WORD_DIMENSION,
    Embedder,
    Vectors,
    WordLlamaEmbedder,
    _installed,  # pyright: ignore[reportPrivateUsage]
    quantised,
    similarity,
)

TEXTS = [
    "Weather in Paris?",
    "How warm is it in Paris today?",
    "The invoice is overdue",
    "",
    "漢字 🙂 \x00",
    "x" * 9000,
]


@pytest.fixture(scope="module")
def embedder() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_a_fresh_embedder_works_without_a_network(no_network: None) -> None:
    fresh: Embedder = WordLlamaEmbedder()
    assert fresh.embed(["Weather in Paris?"]).shape == (1, fresh.dimension)


def test_the_package_whose_weights_are_used_is_not_imported() -> None:
    program = (
        "import logging, sys; from whence.models.embedder import WordLlamaEmbedder;"
        "WordLlamaEmbedder().embed(['x']);"
        "sys.exit('wordllama' in sys.modules or bool(logging.getLogger().handlers))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_the_vectors_are_those_that_were_always_made(embedder: WordLlamaEmbedder) -> None:
    """Stored vectors are compared with new ones. If this fails, give the embedder another name."""
    digest = hashlib.sha256(embedder.embed(TEXTS).tobytes()).hexdigest()
    assert (embedder.name, digest[:16]) == ("wordllama-l2-supercat-256", "0e7c468b83dd7bcc")


@settings(max_examples=50, deadline=None)
@given(texts=st.lists(st.text(max_size=200), min_size=1, max_size=12), data=st.data())
def test_neither_the_batch_nor_the_order_changes_a_vector(
    embedder: WordLlamaEmbedder, texts: list[str], data: st.DataObject
) -> None:
    together = embedder.embed(texts)
    order = data.draw(st.permutations(range(len(texts))))
    assert np.array_equal(embedder.embed([texts[index] for index in order]), together[list(order)])
    for text, vector in zip(texts, together, strict=True):
        assert np.array_equal(embedder.embed([text])[0], vector)


def test_threads_may_share_an_embedder_that_is_not_loaded_yet() -> None:
    shared = WordLlamaEmbedder()
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: shared.embed(TEXTS).tobytes(), range(16)))
    assert set(made) == {WordLlamaEmbedder().embed(TEXTS).tobytes()}


def test_the_precision_and_order_of_a_sum_do_not_matter(embedder: WordLlamaEmbedder) -> None:
    rows = embedder._weights().vectors[:4000]
    exact = rows.astype(np.float64).sum(axis=0)
    assert np.array_equal(rows[::-1].astype(np.float64).sum(axis=0), exact)
    assert np.array_equal(rows.astype(np.longdouble).sum(axis=0).astype(np.float64), exact)
    assert np.array_equal(rows.astype(np.float16).sum(axis=0, dtype=np.float64), exact)


def test_an_empty_text_has_a_vector_of_zeros(embedder: WordLlamaEmbedder) -> None:
    assert not embedder.embed([""]).any()
    assert embedder.embed([]).shape == (0, embedder.dimension)


def test_what_comes_after_the_limit_does_not_count(embedder: WordLlamaEmbedder) -> None:
    text = "word " * (MAX_EMBEDDED_CHARACTERS // 5)
    assert np.array_equal(*embedder.embed([text, text + "and something else"]))


def test_half_a_surrogate_pair_is_a_question_mark(embedder: WordLlamaEmbedder) -> None:
    assert np.array_equal(*embedder.embed(["a \ud800", "a ?"]))


def test_what_means_the_same_is_more_alike(embedder: WordLlamaEmbedder) -> None:
    vectors = embedder.embed(TEXTS)
    alike = similarity(vectors, vectors)
    assert alike[0, 1] > 0.5 > alike[0, 2]


def test_missing_weights_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="install wordllama again"):
        WordLlamaEmbedder(tmp_path).embed(["x"])


def test_other_weights_under_the_same_name_are_refused(tmp_path: Path) -> None:
    shutil.copytree(_installed() / "tokenizers", tmp_path / "tokenizers")
    shutil.copytree(_installed() / "weights", tmp_path / "weights")
    assert WordLlamaEmbedder(tmp_path).embed(["x"]).any()
    with (tmp_path / "weights" / "l2_supercat_256.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    with pytest.raises(SetupError, match="other weights"):
        WordLlamaEmbedder(tmp_path).embed(["x"])


def test_a_package_that_is_not_there_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.models.embedder.find_spec", lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(SetupError, match="not installed"):
        WordLlamaEmbedder().embed(["x"])


VECTORS = arrays.arrays(np.int8, st.tuples(st.integers(1, 5), st.just(16)), elements=st.integers(-127, 127))


@given(one=VECTORS, other=VECTORS)
def test_similarity_is_the_cosine_of_whole_numbers(one: Vectors, other: Vectors) -> None:
    alike = similarity(one, other)
    assert np.array_equal(similarity(other, one).T, alike)
    for row, vector in enumerate(one.astype(int).tolist()):
        for column, counter in enumerate(other.astype(int).tolist()):
            dot = sum(a * b for a, b in zip(vector, counter, strict=True))
            squares = sum(a * a for a in vector) * sum(b * b for b in counter)
            assert alike[row, column] == (dot / math.sqrt(squares) if squares else 0)


@given(vectors=VECTORS)
def test_equal_vectors_are_exactly_one_and_zeros_are_like_nothing(vectors: Vectors) -> None:
    diagonal = np.diag(similarity(vectors, vectors))
    assert np.array_equal(diagonal, vectors.any(axis=1).astype(float))


def test_the_longest_vectors_are_still_exact() -> None:
    full = np.full((1, MAX_DIMENSION), -128, np.int8)
    assert similarity(full, full)[0, 0] == 1
    assert similarity(full, np.full((1, MAX_DIMENSION), 127, np.int8))[0, 0] == -1
    with pytest.raises(AssertionError):
        similarity(*[np.ones((1, MAX_DIMENSION + 1), np.int8)] * 2)


@given(arrays.arrays(np.float64, (3, 8), elements=st.floats(-100, 100, allow_subnormal=False)))
def test_the_largest_component_becomes_127(vectors: np.ndarray) -> None:
    largest = np.abs(quantised(vectors).astype(int)).max(axis=1)
    assert largest.tolist() == [127 if row.any() else 0 for row in vectors]


def test_words_are_of_unit_length_and_the_same_in_any_company(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.models.embedder.MAX_KNOWN_WORDS", 5)
    words = ["bread", "heron", "Paris", "漢字", "bread", "", "pond", "warm"]
    alone = [WordLlamaEmbedder().word_vectors([word])[0] for word in words]
    shared = WordLlamaEmbedder()
    for part in (words[:3], words[2:7], words[5:], words):
        # More than are kept, some of them twice.
        for word, row in zip(part, shared.word_vectors(part), strict=True):
            assert np.array_equal(row, alone[words.index(word)])
    assert np.allclose([np.linalg.norm(row) for row in alone if row.any()], 1)
    assert shared.word_vectors([]).shape == (0, WORD_DIMENSION)


def test_words_that_are_asked_for_by_several_threads_are_not_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.models.embedder.MAX_KNOWN_WORDS", 50)
    shared, alone = WordLlamaEmbedder(), WordLlamaEmbedder()
    words = [f"word{number}" for number in range(200)]
    expected = {word: alone.word_vectors([word])[0] for word in words}
    parts = [words[start : start + 30] for start in range(0, 170, 5)] * 5
    with ThreadPoolExecutor(8) as threads:
        for part, rows in zip(parts, threads.map(shared.word_vectors, parts), strict=True):
            assert all(np.array_equal(row, expected[word]) for word, row in zip(part, rows, strict=True))
