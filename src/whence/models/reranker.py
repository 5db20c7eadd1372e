"""What reads a question and what may answer it together, and says how well it does: slower than to compare vectors, and
better where the words differ. Two of them: a cross-encoder in a folder, and one that somebody hosts."""

import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from whence.models.embedder import bounded
from whence.models.graphs import Batch, Files, Graph, find_folder, read_files

RERANK_SECONDS = 5.0
"""That a model may take for one question."""

_ANSWERS: Final = frozenset({"1", "label_1", "relevant", "yes", "true", "positive"})
"""What the class of texts that answer is called, where there are two."""


class Reranker(Protocol):
    @property
    def name(self) -> str: ...

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """How well each text answers; higher is better, and nothing else is said of the number. Called in a thread.
        TimeoutError where it would take longer than it may."""
        ...

    def close(self) -> None:
        """Nothing is scored afterwards."""
        ...


class _Loaded(NamedTuple):
    graph: Graph
    output: str


class OnnxReranker:
    """A cross-encoder that is an ONNX file in a folder. Loaded when it is first used."""

    def __init__(self, which: str, caches: Sequence[Path], seconds: float = RERANK_SECONDS) -> None:
        folder, self._label = find_folder("reranker", which, caches)
        self._files = read_files("reranker", folder)
        self._usage = _usage(self._files)
        self._seconds = seconds
        self._loading = Lock()
        self._loaded: _Loaded | None = None
        self._name: str | None = None

    @property
    def name(self) -> str:
        """The first time, the files are read as a whole."""
        with self._loading:
            if self._name is None:
                digest = self._files.digest((*self._usage, self._files.tokens))
                self._name = f"onnx:{self._label}:{digest}"
            return self._name

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        deadline = time.monotonic() + self._seconds
        graph, output = self._model()
        scores = np.zeros(len(texts), np.float64)
        question = bounded(query)
        for batch in graph.run([(question, bounded(text)) for text in texts], output, deadline):
            scores[batch.numbers] = self._scores(batch)
        return scores.tolist()

    def close(self) -> None:
        with self._loading:
            self._loaded = None

    def _scores(self, batch: Batch) -> npt.NDArray[np.float64]:
        """Between 0 and 1, unless the files want the number as it is."""
        rows = batch.answer[:, np.newaxis] if batch.answer.ndim == 1 else batch.answer
        if rows.shape not in ((len(batch.numbers), 1), (len(batch.numbers), 2)) or not np.isfinite(rows).all():
            raise self._files.refused(f"{self._files.graph} does not give one or two finite numbers for each text")
        if rows.shape[1] == 2:
            return _sigmoid(rows[:, self._usage.answers] - rows[:, 1 - self._usage.answers])
        return rows[:, 0] if self._usage.is_plain else _sigmoid(rows[:, 0])

    def _model(self) -> _Loaded:
        with self._loading:
            if self._loaded is None:
                graph = Graph(self._files)
                self._loaded = _Loaded(graph, _output(self._files, graph))
            return self._loaded


def _output(files: Files, graph: Graph) -> str:
    for name, shape in graph.outputs:
        if name == "logits" or len(graph.outputs) == 1:
            if len(shape) == 1 or (len(shape) == 2 and not (isinstance(shape[1], int) and shape[1] > 2)):
                return name
            raise files.refused(f"{files.graph} does not score: it gives more than one or two numbers for each text")
    raise files.refused(f"{files.graph} does not say which of its outputs is the score: none is called logits")


class _Newer(msgspec.Struct):
    activation_fn: str | None = None


class _Config(msgspec.Struct):
    id2label: dict[str, str] | None = None
    sentence_transformers: _Newer | None = None
    sbert_ce_default_activation_function: str | None = None


class _Usage(NamedTuple):
    """What the number or the two numbers of a text mean."""

    answers: int
    """Which of two classes is that of texts that answer: the second, unless the names say otherwise."""
    is_plain: bool
    """Whether one number is taken as it is, as sentence-transformers would, and not brought between 0 and 1."""


def _usage(files: Files) -> _Usage:
    try:
        said = msgspec.convert(files.config, _Config)
    except msgspec.ValidationError as error:
        raise files.refused(f"{files.folder / 'config.json'} is not that of a model that scores: {error}") from error
    labels = said.id2label or {}
    first, second = (labels.get(place, "").lower() in _ANSWERS for place in ("0", "1"))
    newer = said.sentence_transformers and said.sentence_transformers.activation_fn
    activation = newer or said.sbert_ce_default_activation_function or ""
    return _Usage(0 if first and not second else 1, activation.endswith("Identity"))


def _sigmoid(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return 0.5 * (1.0 + np.tanh(0.5 * values))
