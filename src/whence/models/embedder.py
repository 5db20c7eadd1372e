"""Text as vectors of small integers, and the embedder that gives equal ones on every machine.

A projection is compared with its rebuild by digests, so a vector of the built-in embedder may depend on its text and on
nothing else: not on the batch, the order, the number of threads or the width of the processor's registers. Those of
others may, and `is_exact` says so.
"""

from collections.abc import Sequence
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from whence.errors import SetupError

MAX_EMBEDDED_CHARACTERS = 8_000
"""Of one text; what comes later does not count."""

MAX_DIMENSION = 1_024
"""The longest vector whose dot products are exact in float32: 1,024 x 128 x 128 is 2^24, where its integers end."""

LARGEST_COMPONENT = 127

WORD_DIMENSION = 128
"""Of the vectors of single words: enough to tell near ones from others."""

MAX_KNOWN_WORDS = 50_000
"""Whose vectors are kept, half a kilobyte each."""

FEW_TEXTS = 16
"""That are taken apart one by one."""

Vectors = npt.NDArray[np.int8]
"""A row for each text."""


class Embedder(Protocol):
    """Makes vectors of texts. The same name means the same vectors, so a name is never given to other weights."""

    @property
    def name(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    @property
    def is_quick(self) -> bool:
        """Whether the event loop can wait for one text; others are called in a thread."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether a text has the same vector on every machine, and whatever it is embedded with."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Of what is kept to be found."""
        ...

    def embed_query(self, text: str) -> Vectors:
        """Of a question, which some models want to be told apart from what answers it. A row, without a second axis."""
        ...

    def close(self) -> None:
        """Nothing is embedded afterwards."""
        ...


class _Weights(NamedTuple):
    tokenizer: Any  # the library describes its types only in part
    vectors: npt.NDArray[np.float32]


class WordLlamaEmbedder:
    """The embedder that needs no network and no key: its weights are files inside the `wordllama` wheel.

    Only the files are used. Importing that package sets up logging for the whole process, and its loader looks for the
    tokenizer in a folder that the wheel does not have, and then on the network.
    """

    name = "wordllama-l2-supercat-256"
    dimension = 256
    is_quick = True
    is_exact = True

    def __init__(self, package: Path | None = None) -> None:
        """`package` is the folder with the weights, for those who keep them elsewhere."""
        self._package = package
        self._lock = Lock()
        self._loaded: _Weights | None = None
        self._words: dict[str, int] = {}
        """Where their vectors stand."""
        self._word_rows: npt.NDArray[np.float32] = np.zeros((0, WORD_DIMENSION), np.float32)
        self._word_lock = Lock()

    def embed(self, texts: Sequence[str]) -> Vectors:
        if not texts:
            return np.zeros((0, self.dimension), np.int8)
        weights = self._weights()
        texts = [bounded(text) for text in texts]
        if len(texts) <= FEW_TEXTS:
            # A batch wakes other threads, which takes longer than these do.
            encoded = [weights.tokenizer.encode(text, add_special_tokens=False) for text in texts]
        else:
            encoded = weights.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return quantised(np.stack([_sum(weights.vectors, tokens.ids) for tokens in encoded]))

    def word_vectors(self, words: Sequence[str]) -> npt.NDArray[np.float32]:
        """What single words are like, of unit length, in the first dimensions: the weights were trained so that these
        say most. A word that is not known is like nothing."""
        with self._word_lock:
            new = [word for word in dict.fromkeys(words) if word not in self._words]
            if not new:
                return self._word_rows[[self._words[word] for word in words]]
            kept = [word for word in words if word in self._words]
            found = dict(zip(kept, self._word_rows[[self._words[word] for word in kept]], strict=True))
        # Without the lock: of many words it takes a while, and the event loop asks for some too.
        made = self._made(new)
        self._keep(new, made)
        found.update(zip(new, made, strict=True))
        return np.stack([found[word] for word in words])

    def _made(self, words: Sequence[str]) -> npt.NDArray[np.float32]:
        weights = self._weights()
        tokens = (weights.tokenizer.encode(f" {bounded(word)}", add_special_tokens=False).ids for word in words)
        return unit_rows(np.stack([weights.vectors[ids, :WORD_DIMENSION].sum(axis=0) for ids in tokens]))

    def _keep(self, words: Sequence[str], rows: npt.NDArray[np.float32]) -> None:
        """As many as may be kept: where there is no room, those before them go."""
        words, rows = words[:MAX_KNOWN_WORDS], rows[:MAX_KNOWN_WORDS]
        with self._word_lock:
            if len(self._words) + len(words) > MAX_KNOWN_WORDS:
                self._words.clear()
            before = len(self._words)
            # Others may have kept some of them meanwhile; they are the same.
            places = [self._words.setdefault(word, len(self._words)) for word in words]
            if len(self._words) > len(self._word_rows):
                grown = np.zeros((min(2 * len(self._words), MAX_KNOWN_WORDS), WORD_DIMENSION), np.float32)
                grown[:before] = self._word_rows[:before]
                self._word_rows = grown
            self._word_rows[places] = rows

    def embed_query(self, text: str) -> Vectors:
        return self.embed([text])[0]

    def close(self) -> None: ...

    def _weights(self) -> _Weights:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._package or _installed(), self.dimension)
            return self._loaded


def quantised(vectors: npt.NDArray[np.float64]) -> Vectors:
    """Rows scaled so that their largest component is 127, then rounded. Only the direction counts, so no row needs a
    norm, which would be rounded once more; a row of zeros stays one."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    scaled = np.divide(LARGEST_COMPONENT * vectors, largest, out=np.zeros_like(vectors), where=largest > 0)
    return np.rint(scaled).astype(np.int8)


def unit_rows(rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Of unit length, but for rows of zeros."""
    vectors = rows.astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    return np.divide(vectors, lengths, out=vectors, where=lengths > 0)


def similarity(one: Vectors, other: Vectors) -> npt.NDArray[np.float64]:
    """The cosine of every row of `one` with every row of `other`; a row of zeros is like nothing.

    Dot products and squares are whole numbers that float32 and float64 hold exactly, whatever the order of summation.
    What is rounded is one square root and one division, so equal vectors give exactly 1.
    """
    assert one.shape[1] <= MAX_DIMENSION
    dots = one.astype(np.float32) @ other.astype(np.float32).T
    norms = np.sqrt(np.outer(_squares(one), _squares(other)))
    return np.divide(dots, norms, out=np.zeros_like(norms), where=norms > 0)


def _squares(vectors: Vectors) -> npt.NDArray[np.float64]:
    return np.square(vectors, dtype=np.int32).sum(axis=1, dtype=np.int64).astype(np.float64)


def bounded(text: str) -> str:
    """The text that is embedded. Half a surrogate pair cannot be written as UTF-8, and becomes a question mark."""
    return text[:MAX_EMBEDDED_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


def _sum(vectors: npt.NDArray[np.float32], ids: list[int]) -> npt.NDArray[np.float64]:
    """The sum of the tokens' vectors.

    The weights are half-precision numbers: multiples of 2^-24 below 2^4. A text has fewer than 2^16 tokens, so every
    partial sum fits into the 53 bits of a float64, and no order rounds differently from another.
    """
    total: npt.NDArray[np.float64] = vectors[ids].sum(axis=0, dtype=np.float64)
    return total


_DIGEST = "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"
"""Vectors that were stored are compared with new ones, so other weights under the same name must be noticed."""


def _installed() -> Path:
    package = find_spec("wordllama")
    if package is None or not package.submodule_search_locations:
        raise SetupError("the package wordllama is not installed: install Whence again")
    return Path(next(iter(package.submodule_search_locations)))


def _load(package: Path, dimension: int) -> _Weights:
    # Imported when they are needed: they take a tenth of a second, and most commands embed nothing.
    files: Any = import_module("safetensors.numpy")
    tokenizers: Any = import_module("tokenizers")
    weights = package / "weights" / f"l2_supercat_{dimension}.safetensors"
    vocabulary = package / "tokenizers" / "l2_supercat_tokenizer_config.json"
    for file in (weights, vocabulary):
        if not file.is_file():
            raise SetupError(f"{file} is missing: install wordllama again")
    if sha256(weights.read_bytes()).hexdigest() != _DIGEST:
        raise SetupError(f"{weights} holds other weights than vectors were made with: install wordllama 0.4 again")
    tokenizer = tokenizers.Tokenizer.from_file(str(vocabulary))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    # Single precision holds the same numbers; gathering rows of it takes less than half the time.
    return _Weights(tokenizer, files.load_file(weights)["embedding.weight"].astype(np.float32))
