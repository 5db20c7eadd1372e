"""Embedders that are an ONNX file in a folder, as sentence-transformers and fastembed keep them.

The folder says how its model wants to be used: what is put before a question, where a text is cut, how the vectors of
tokens become one. What a folder of fastembed leaves out is known here for the models that fastembed lists. Whether the
files ask for vectors of unit length does not matter, because only the direction is kept.
"""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from whence.models.embedder import MAX_DIMENSION, Vectors, bounded, quantised
from whence.models.graphs import Batch, Files, Graph, find_folder, number, read_files

Pooling = Literal["mean", "cls"]


class Usage(NamedTuple):
    """How a model wants to be used."""

    pooling: Pooling | None
    """How the vectors of tokens become one; None where the files do not say."""
    query: str = ""
    """Stands before a question."""
    document: str = ""
    """Stands before what is kept."""


class Model(NamedTuple):
    folder: Path
    label: str
    """What people call it."""
    usage: Usage
    """For what the folder does not say."""


_SEARCH: Final = "Represent this sentence for searching relevant passages: "
_UNKNOWN: Final = Usage(None)
_FASTEMBED: Final[dict[str, tuple[str, Usage]]] = {
    # The name in fastembed: the repository that it downloads, which has none of the files of sentence-transformers.
    "baai/bge-small-en-v1.5": ("Qdrant/bge-small-en-v1.5-onnx-Q", Usage("cls", _SEARCH)),
    "baai/bge-base-en-v1.5": ("Qdrant/bge-base-en-v1.5-onnx-Q", Usage("cls", _SEARCH)),
    "baai/bge-large-en-v1.5": ("Qdrant/bge-large-en-v1.5-onnx", Usage("cls", _SEARCH)),
    "mixedbread-ai/mxbai-embed-large-v1": ("mixedbread-ai/mxbai-embed-large-v1", Usage("cls", _SEARCH)),
    "snowflake/snowflake-arctic-embed-xs": ("Snowflake/snowflake-arctic-embed-xs", Usage("cls", _SEARCH)),
    "snowflake/snowflake-arctic-embed-s": ("Snowflake/snowflake-arctic-embed-s", Usage("cls", _SEARCH)),
    "snowflake/snowflake-arctic-embed-m": ("Snowflake/snowflake-arctic-embed-m", Usage("cls", _SEARCH)),
    "snowflake/snowflake-arctic-embed-m-long": ("Snowflake/snowflake-arctic-embed-m-long", Usage("cls", _SEARCH)),
    "snowflake/snowflake-arctic-embed-l": ("Snowflake/snowflake-arctic-embed-l", Usage("cls", _SEARCH)),
    "sentence-transformers/all-minilm-l6-v2": ("Qdrant/all-MiniLM-L6-v2-onnx", Usage("mean")),
    "sentence-transformers/paraphrase-multilingual-minilm-l12-v2": (
        "Qdrant/paraphrase-multilingual-MiniLM-L12-v2-onnx-Q",
        Usage("mean"),
    ),
    "thenlper/gte-base": ("thenlper/gte-base", Usage("mean")),
    "thenlper/gte-large": ("Qdrant/gte-large-onnx", Usage("mean")),
    "jinaai/jina-embeddings-v2-small-en": ("Xenova/jina-embeddings-v2-small-en", Usage("mean")),
    "jinaai/jina-embeddings-v2-base-en": ("Xenova/jina-embeddings-v2-base-en", Usage("mean")),
    "nomic-ai/nomic-embed-text-v1.5": (
        "nomic-ai/nomic-embed-text-v1.5",
        Usage("mean", "search_query: ", "search_document: "),
    ),
}
_POOLED: Final = ("sentence_embedding", "pooled_embedding")


def find_model(which: str, caches: Sequence[Path]) -> Model:
    """A folder, or a name that fastembed or the Hugging Face Hub downloaded it by. Nothing is downloaded here."""
    if Path(which).expanduser().is_dir():
        return Model(*find_folder("embedder", which, caches), _UNKNOWN)
    repository, usage = _FASTEMBED.get(which.lower(), (which, _UNKNOWN))
    return Model(*find_folder("embedder", which, caches, repository), usage)


class _Loaded(NamedTuple):
    graph: Graph
    output: str
    is_pooled: bool
    dimension: int


class OnnxEmbedder:
    """Loaded when it is first used."""

    is_quick = False
    is_exact = False
    """Sums of floats depend on the processor, and those of a model with eight bits on what else is in the batch."""

    def __init__(self, model: Model) -> None:
        self._label = model.label
        self._files = read_files("embedder", model.folder)
        self._modules = _modules(self._files)
        self._usage = _usage(self._files, self._modules, model.usage)
        self._loading = Lock()
        self._loaded: _Loaded | None = None
        self._name: str | None = None

    @property
    def name(self) -> str:
        """The first time, the files are read as a whole."""
        with self._loading:
            if self._name is None:
                digest = self._files.digest((self._usage.pooling, self._usage.document, self._files.tokens))
                self._name = f"onnx:{self._label}:{digest}"
            return self._name

    @property
    def dimension(self) -> int:
        return self._model().dimension

    def embed(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts, self._usage.document)

    def embed_query(self, text: str) -> Vectors:
        return self._embed([text], self._usage.query)[0]

    def close(self) -> None:
        with self._loading:
            self._loaded = None

    def _embed(self, texts: Sequence[str], before: str) -> Vectors:
        model = self._model()
        made = np.zeros((len(texts), model.dimension), np.int8)
        # A text without a word is like nothing, and a vector of zeros says so.
        said = [place for place, text in enumerate(texts) if text.strip()]
        for batch in model.graph.run([before + bounded(texts[place]) for place in said], model.output):
            made[[said[place] for place in batch.numbers]] = quantised(self._vectors(model, batch))
        return made

    def _vectors(self, model: _Loaded, batch: Batch) -> npt.NDArray[np.float64]:
        made = batch.answer if model.is_pooled else _pooled(batch.answer, batch.mask, self._usage.pooling)
        if made.shape != (len(batch.numbers), model.dimension) or not np.isfinite(made).all():
            said = f"{self._files.graph} does not give {model.dimension} finite numbers for each text"
            raise self._files.refused(said)
        return made

    def _model(self) -> _Loaded:
        with self._loading:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> _Loaded:
        files, graph = self._files, Graph(self._files)
        output, is_pooled, components = self._output(graph)
        dimension = components or number(files.config.get("hidden_size")) or number(files.config.get("dim"))
        if dimension is None:
            raise files.refused(f"{files.graph.parent} does not say how many components a vector has")
        if dimension > MAX_DIMENSION:
            raise files.refused(f"vectors of {dimension:,} components; at most {MAX_DIMENSION:,} are kept")
        return _Loaded(graph, output, is_pooled, dimension)

    def _output(self, graph: Graph) -> tuple[str, bool, int | None]:
        """Which output is used, whether it is pooled already, and how many components it has, if the graph says so."""
        files = self._files
        for name, shape in graph.outputs:
            # What else has two axes, such as the pooler of BERT, was trained for something else.
            if name in _POOLED or (len(graph.outputs) == 1 and len(shape) == 2):
                return name, True, number(shape[-1])
        if "Dense" in self._modules:
            # It would have to be computed here.
            raise files.refused(f"{files.graph} ends before the dense layer of modules.json")
        if self._usage.pooling is None:
            raise files.refused(
                f"no file says how vectors of tokens become one; {files.graph.parent} needs a folder 1_Pooling with a "
                "config.json, as models of sentence-transformers have it"
            )
        for name, shape in graph.outputs:
            if len(shape) == 3:
                return name, False, number(shape[-1])
        raise files.refused(f"{files.graph} gives no vectors of tokens")


def _pooled(
    vectors: npt.NDArray[np.float64], mask: npt.NDArray[np.int64], pooling: Pooling | None
) -> npt.NDArray[np.float64]:
    if pooling == "cls":
        return vectors[:, 0]
    summed: npt.NDArray[np.float64] = (vectors * mask[:, :, np.newaxis]).sum(axis=1)
    return summed / mask.sum(axis=1, keepdims=True)


# --- what the folder says of its use ----------------------------------------------------------------------------------


def _usage(files: Files, modules: dict[str, str], known: Usage) -> Usage:
    prompts = _prompts(files)
    documents = (prompts.get(name) for name in ("document", "passage", "corpus"))
    return Usage(
        _pooling(files, modules.get("Pooling", "1_Pooling")) or known.pooling,
        prompts.get("query") or known.query,
        next(filter(None, documents), "") or known.document,
    )


def _prompts(files: Files) -> dict[str, str | None]:
    """What is to stand before a text, by what the text is for."""
    name = "config_sentence_transformers.json"
    try:
        return msgspec.convert(files.json(name).get("prompts") or {}, dict[str, str | None])
    except msgspec.ValidationError as error:
        raise files.refused(f"the prompts in {files.folder / name} are not texts") from error


class _Module(msgspec.Struct):
    type: str
    path: str = ""


def _modules(files: Files) -> dict[str, str]:
    """The layers of a model of sentence-transformers, each with its folder."""
    file = files.folder / "modules.json"
    try:
        modules = msgspec.json.decode(file.read_bytes(), type=list[_Module])
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as error:
        raise files.refused(f"{file} is not a list of modules") from error
    return {module.type.rpartition(".")[2]: module.path for module in modules}


def _pooling(files: Files, folder: str) -> Pooling | None:
    said = files.json(f"{folder}/config.json")
    if not said:
        return None
    # Newer versions write one word, older ones a flag for each way.
    flags = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
    ways = {name for name, value in said.items() if name.startswith("pooling_mode_") and value is True}
    for way in ("cls", "mean"):
        if said.get("pooling_mode") == way or ways == {flags[way]}:
            return way
    asking = files.folder / folder / "config.json"
    raise files.refused(f"{asking} asks for another pooling than cls or mean")
