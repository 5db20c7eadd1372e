"""Embedders that are an ONNX file in a folder, as sentence-transformers and fastembed keep them.

The folder says how its model wants to be used: what is put before a question, where a text is cut, how the vectors of
tokens become one. What a folder of fastembed leaves out is known here for the models that fastembed lists. Whether the
files ask for vectors of unit length does not matter, because only the direction is kept.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from whence.errors import SetupError
from whence.models.embedder import MAX_DIMENSION, Vectors, bounded, quantised

MAX_TEXT_TOKENS = 2_048
"""Of one text; what comes later does not count. Attention takes memory by the square of it."""
MAX_BATCH_TEXTS = 32
MAX_BATCH_TOKENS = 2_048
"""Of the texts that are embedded at once, each counted as long as the longest. More would not be faster, and who asks a
question waits for the batch before it."""
NAME_DIGITS = 12
"""Of the digest of a model's files, in its name."""

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
_GRAPHS: Final = ("model", "model_optimized", "model_quantized", "model_int8")
_POOLED: Final = ("sentence_embedding", "pooled_embedding")
_INPUTS: Final = {"input_ids", "attention_mask", "token_type_ids"}


def find_model(which: str, caches: Sequence[Path]) -> Model:
    """A folder, or a name that fastembed or the Hugging Face Hub downloaded it by. Nothing is downloaded here."""
    folder = Path(which).expanduser().absolute()
    if folder.is_dir():
        # A repository's folder in a cache is called by a number of its own.
        repository = folder.parent.parent.name if folder.parent.name == "snapshots" else folder.name
        return Model(folder, repository.rpartition("--")[2], _UNKNOWN)
    repository, usage = _FASTEMBED.get(which.lower(), (which, _UNKNOWN))
    for wanted in dict.fromkeys((repository, which)):
        for cache in caches:
            found = _snapshot(cache, wanted)
            if found is not None:
                return Model(found, which.rpartition("/")[2], usage)
    looked = ", ".join(map(str, (folder, *caches)))
    raise SetupError(
        f"setting embedder: there is no model {which}; looked at {looked}. Nothing is downloaded: give a folder with "
        "the model's files, or have fastembed download it before"
    )


def _snapshot(cache: Path, repository: str) -> Path | None:
    """The folder of a repository in a cache, in the version that was downloaded last."""
    wanted = f"models--{repository.replace('/', '--')}".lower()
    # Names have been spelled with other capitals by older versions.
    kept = [folder for folder in (cache.iterdir() if cache.is_dir() else ()) if folder.name.lower() == wanted]
    for folder in kept:
        main = folder / "refs" / "main"
        revisions = [main.read_text().strip()] if main.is_file() else []
        others = sorted(folder.glob("snapshots/*"), key=lambda each: each.stat().st_mtime, reverse=True)
        for revision in (*(folder / "snapshots" / name for name in revisions), *others):
            if _graph_in(revision) is not None:
                return revision
    return None


def _graph_in(folder: Path) -> Path | None:
    places = (folder / place / f"{name}.onnx" for name in _GRAPHS for place in ("", "onnx"))
    return next((place for place in places if place.is_file()), None)


class _Files(NamedTuple):
    """What a folder holds, and what it says."""

    graph: Path
    tokenizer: Path
    usage: Usage
    tokens: int
    dimension: int | None
    pad_id: int
    has_dense: bool
    """Whether there are layers behind the graph, which would have to be computed here."""


class _Loaded(NamedTuple):
    session: Any  # the libraries describe their types only in part
    tokenizer: Any
    inputs: dict[str, type[np.integer[Any]]]
    output: str
    is_pooled: bool
    dimension: int


class OnnxEmbedder:
    """Loaded when it is first used. Batches take turns, so that memory is bounded however many threads there are."""

    is_quick = False
    is_exact = False
    """Sums of floats depend on the processor, and those of a model with eight bits on what else is in the batch."""

    def __init__(self, model: Model) -> None:
        if find_spec("onnxruntime") is None:
            raise SetupError("setting embedder: onnx needs the package onnxruntime: pip install 'whence[onnx]'")
        self._label = model.label
        self._files = _read(model)
        self._loading = Lock()
        self._running = Lock()
        self._loaded: _Loaded | None = None
        self._name: str | None = None

    @property
    def name(self) -> str:
        """The first time, the files are read as a whole."""
        with self._loading:
            if self._name is None:
                self._name = f"onnx:{self._label}:{_digest(self._files)}"
            return self._name

    @property
    def dimension(self) -> int:
        return self._model().dimension

    def embed(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts, self._files.usage.document)

    def embed_query(self, text: str) -> Vectors:
        return self._embed([text], self._files.usage.query)[0]

    def close(self) -> None:
        with self._loading:
            self._loaded = None

    def _embed(self, texts: Sequence[str], before: str) -> Vectors:
        model = self._model()
        made = np.zeros((len(texts), model.dimension), np.int8)
        # A text without a word is like nothing, and a vector of zeros says so.
        said = [place for place, text in enumerate(texts) if text.strip()]
        if not said:
            return made
        encoded = model.tokenizer.encode_batch_fast([before + bounded(texts[place]) for place in said])
        ids: list[list[int]] = [tokens.ids for tokens in encoded]
        for batch in _batches([len(each) for each in ids]):
            with self._running:
                vectors = self._run(model, [ids[number] for number in batch])
            made[[said[number] for number in batch]] = quantised(vectors)
        return made

    def _run(self, model: _Loaded, ids: list[list[int]]) -> npt.NDArray[np.float64]:
        tokens = np.full((len(ids), max(map(len, ids))), self._files.pad_id, np.int64)
        mask = np.zeros_like(tokens)
        for row, each in enumerate(ids):
            tokens[row, : len(each)], mask[row, : len(each)] = each, 1
        given = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": np.zeros_like(tokens)}
        feed = {name: given[name].astype(kind) for name, kind in model.inputs.items()}
        (answer,) = model.session.run([model.output], feed)
        made = np.asarray(answer, np.float64)
        if not model.is_pooled:
            made = _pooled(made, mask, self._files.usage.pooling)
        if made.shape != (len(ids), model.dimension) or not np.isfinite(made).all():
            raise SetupError(f"{self._files.graph} does not give {model.dimension} finite numbers for each text")
        return made

    def _model(self) -> _Loaded:
        with self._loading:
            if self._loaded is None:
                self._loaded = _load(self._files)
            return self._loaded


def _pooled(
    vectors: npt.NDArray[np.float64], mask: npt.NDArray[np.int64], pooling: Pooling | None
) -> npt.NDArray[np.float64]:
    if pooling == "cls":
        return vectors[:, 0]
    summed: npt.NDArray[np.float64] = (vectors * mask[:, :, np.newaxis]).sum(axis=1)
    return summed / mask.sum(axis=1, keepdims=True)


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    """Numbers of texts that are about as long as each other: what is shorter than its batch is padded, and costs."""
    batch: list[int] = []
    longest = 0
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number], reverse=True):
        if batch and (len(batch) == MAX_BATCH_TEXTS or (len(batch) + 1) * longest > MAX_BATCH_TOKENS):
            yield batch
            batch = []
        longest = lengths[number] if not batch else longest
        batch.append(number)
    if batch:
        yield batch


# --- the folder -----------------------------------------------------------------------------------------------------


def _read(model: Model) -> _Files:
    folder = model.folder
    graph, tokenizer = _graph_in(folder), folder / "tokenizer.json"
    if graph is None:
        raise SetupError(f"setting embedder: {folder} has no model.onnx, and none in a folder onnx")
    if not tokenizer.is_file():
        raise SetupError(f"setting embedder: {tokenizer} is missing")
    config = _json(folder / "config.json")
    modules = _modules(folder)
    prompts = _prompts(folder)
    documents = (prompts.get(name) for name in ("document", "passage", "corpus"))
    usage = Usage(
        _pooling(folder / modules.get("Pooling", "1_Pooling")) or model.usage.pooling,
        prompts.get("query") or model.usage.query,
        next(filter(None, documents), "") or model.usage.document,
    )
    return _Files(
        graph,
        tokenizer,
        usage,
        _tokens(folder, config),
        _number(config.get("hidden_size")) or _number(config.get("dim")),
        _number(config.get("pad_token_id")) or 0,
        "Dense" in modules,
    )


def _json(file: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as error:
        raise SetupError(f"setting embedder: {file} is not a JSON object") from error


def _prompts(folder: Path) -> dict[str, str | None]:
    """What is to stand before a text, by what the text is for."""
    file = folder / "config_sentence_transformers.json"
    try:
        return msgspec.convert(_json(file).get("prompts") or {}, dict[str, str | None])
    except msgspec.ValidationError as error:
        raise SetupError(f"setting embedder: the prompts in {file} are not texts") from error


class _Module(msgspec.Struct):
    type: str
    path: str = ""


def _modules(folder: Path) -> dict[str, str]:
    """The layers of a model of sentence-transformers, each with its folder."""
    file = folder / "modules.json"
    try:
        modules = msgspec.json.decode(file.read_bytes(), type=list[_Module])
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as error:
        raise SetupError(f"setting embedder: {file} is not a list of modules") from error
    return {module.type.rpartition(".")[2]: module.path for module in modules}


def _pooling(folder: Path) -> Pooling | None:
    said = _json(folder / "config.json")
    if not said:
        return None
    # Newer versions write one word, older ones a flag for each way.
    flags = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
    ways = {name for name, value in said.items() if name.startswith("pooling_mode_") and value is True}
    for way in ("cls", "mean"):
        if said.get("pooling_mode") == way or ways == {flags[way]}:
            return way
    raise SetupError(f"setting embedder: {folder / 'config.json'} asks for another pooling than cls or mean")


def _tokens(folder: Path, config: dict[str, Any]) -> int:
    """Where texts are cut. A table of positions may have some that are not for tokens, so it only bounds the others."""
    said = _number(_json(folder / "sentence_bert_config.json").get("max_seq_length")) or _number(
        _json(folder / "tokenizer_config.json").get("model_max_length")
    )
    positions = _number(config.get("max_position_embeddings"))
    return min(filter(None, (said, positions, MAX_TEXT_TOKENS)))


def _number(value: object) -> int | None:
    """Where a limit is not known, the files have a null, a zero or a number with thirty digits."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31 else None


def _digest(files: _Files) -> str:
    """Of all that a vector depends on. Weights that are too large for the graph stand in a file beside it."""
    digest = sha256(repr((files.usage.pooling, files.usage.document, files.tokens)).encode())
    beside = (files.graph.with_name(files.graph.name + ending) for ending in ("_data", ".data"))
    for file in (files.graph, *filter(Path.is_file, beside), files.tokenizer):
        with file.open("rb") as opened:
            while block := opened.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:NAME_DIGITS]


def _load(files: _Files) -> _Loaded:
    runtime: Any = import_module("onnxruntime")
    state: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    tokenizers: Any = import_module("tokenizers")
    options = runtime.SessionOptions()
    # Kept memory would be as much as the largest batch ever took.
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    try:
        session = runtime.InferenceSession(str(files.graph), options, providers=["CPUExecutionProvider"])
    except (state.Fail, state.InvalidGraph, state.InvalidProtobuf, state.NoSuchFile, state.NotImplemented) as error:
        raise SetupError(f"setting embedder: {files.graph} cannot be loaded: {type(error).__name__}") from error
    output, is_pooled, components = _output(files, session)
    dimension = components or files.dimension
    if dimension is None:
        raise SetupError(f"setting embedder: {files.graph.parent} does not say how many components a vector has")
    if dimension > MAX_DIMENSION:
        raise SetupError(f"setting embedder: vectors of {dimension:,} components; at most {MAX_DIMENSION:,} are kept")
    tokenizer = tokenizers.Tokenizer.from_file(str(files.tokenizer))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=files.tokens)
    return _Loaded(session, tokenizer, _inputs(files, session), output, is_pooled, dimension)


def _inputs(files: _Files, session: Any) -> dict[str, type[np.integer[Any]]]:
    wanted: dict[str, type[np.integer[Any]]] = {
        each.name: np.int32 if each.type == "tensor(int32)" else np.int64 for each in session.get_inputs()
    }
    if not wanted.keys() <= _INPUTS or "input_ids" not in wanted:
        raise SetupError(f"setting embedder: {files.graph} is no model of texts: it wants {', '.join(sorted(wanted))}")
    return wanted


def _output(files: _Files, session: Any) -> tuple[str, bool, int | None]:
    """Which output is used, whether it is pooled already, and how many components it has, if the graph says so."""
    outputs = session.get_outputs()
    for each in outputs:
        # What else has two axes, such as the pooler of BERT, was trained for something else.
        if each.name in _POOLED or (len(outputs) == 1 and len(each.shape) == 2):
            return each.name, True, _number(each.shape[-1])
    if files.has_dense:
        raise SetupError(f"setting embedder: {files.graph} ends before the dense layer of modules.json")
    if files.usage.pooling is None:
        raise SetupError(
            f"setting embedder: no file says how vectors of tokens become one; {files.graph.parent} needs a folder "
            "1_Pooling with a config.json, as models of sentence-transformers have it"
        )
    for each in outputs:
        if len(each.shape) == 3:
            return each.name, False, _number(each.shape[-1])
    raise SetupError(f"setting embedder: {files.graph} gives no vectors of tokens")
