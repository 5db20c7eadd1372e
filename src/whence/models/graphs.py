"""Models that are an ONNX file in a folder: found, read, loaded, and run in batches.

What they give, vectors or scores, is known to those who use them. Nothing is downloaded.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from whence.errors import SetupError

MAX_TEXT_TOKENS = 2_048
"""Of one text; what comes later does not count. Attention takes memory by the square of it."""
MAX_BATCH_TEXTS = 32
MAX_BATCH_TOKENS = 2_048
"""Of the texts that are read at once, each counted as long as the longest. More would not be faster, and who asks a
question waits for the batch before it."""
NAME_DIGITS = 12
"""Of the digest of a model's files, in its name."""

_GRAPHS: Final = ("model", "model_optimized", "model_quantized", "model_int8")
_INPUTS: Final = {"input_ids", "attention_mask", "token_type_ids"}


# --- the folder -----------------------------------------------------------------------------------------------------


def find_folder(setting: str, which: str, caches: Sequence[Path], repository: str | None = None) -> tuple[Path, str]:
    """A folder, or a name that fastembed or the Hugging Face Hub downloaded it by, and what people call it.

    `repository` is what is downloaded by that name, where it is called otherwise."""
    folder = Path(which).expanduser().absolute()
    if folder.is_dir():
        # A repository's folder in a cache is called by a number of its own.
        called = folder.parent.parent.name if folder.parent.name == "snapshots" else folder.name
        return folder, called.rpartition("--")[2]
    for wanted in dict.fromkeys((repository or which, which)):
        for cache in caches:
            found = _snapshot(cache, wanted)
            if found is not None:
                return found, which.rpartition("/")[2]
    looked = ", ".join(map(str, (folder, *caches)))
    raise SetupError(
        f"setting {setting}: there is no model {which}; looked at {looked}. Nothing is downloaded: give a folder with "
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


class Files(NamedTuple):
    """What a folder holds, and what it says that is so of every model."""

    setting: str
    """That names the folder, to be told with what is wrong with it."""
    folder: Path
    graph: Path
    tokenizer: Path
    config: dict[str, Any]
    tokens: int
    pad_id: int

    def refused(self, what: str) -> SetupError:
        return SetupError(f"setting {self.setting}: {what}")

    def json(self, name: str) -> dict[str, Any]:
        """What a file says; nothing where there is none."""
        return _json(self.setting, self.folder / name)

    def digest(self, used: object) -> str:
        """Of all that an answer depends on: the files, and how they are used. Weights that are too large for the graph
        stand in a file beside it."""
        digest = sha256(repr(used).encode())
        beside = (self.graph.with_name(self.graph.name + ending) for ending in ("_data", ".data"))
        for file in (self.graph, *filter(Path.is_file, beside), self.tokenizer):
            with file.open("rb") as opened:
                while block := opened.read(1 << 20):
                    digest.update(block)
        return digest.hexdigest()[:NAME_DIGITS]


def read_files(setting: str, folder: Path) -> Files:
    if find_spec("onnxruntime") is None:
        raise SetupError(f"setting {setting}: onnx needs the package onnxruntime: pip install 'whence[onnx]'")
    graph, tokenizer = _graph_in(folder), folder / "tokenizer.json"
    if graph is None:
        raise SetupError(f"setting {setting}: {folder} has no model.onnx, and none in a folder onnx")
    if not tokenizer.is_file():
        raise SetupError(f"setting {setting}: {tokenizer} is missing")
    config = _json(setting, folder / "config.json")
    # A table of positions may have some that are not for tokens, so it only bounds the others.
    said = number(_json(setting, folder / "sentence_bert_config.json").get("max_seq_length")) or number(
        _json(setting, folder / "tokenizer_config.json").get("model_max_length")
    )
    positions = number(config.get("max_position_embeddings"))
    tokens = min(filter(None, (said, positions, MAX_TEXT_TOKENS)))
    return Files(setting, folder, graph, tokenizer, config, tokens, number(config.get("pad_token_id")) or 0)


def _json(setting: str, file: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as error:
        raise SetupError(f"setting {setting}: {file} is not a JSON object") from error


def number(value: object) -> int | None:
    """Where a limit is not known, the files have a null, a zero or a number with thirty digits."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31 else None


# --- the graph ------------------------------------------------------------------------------------------------------


class Output(NamedTuple):
    name: str
    shape: Sequence[object]
    """A number where the graph says how long an axis is."""


class Batch(NamedTuple):
    numbers: list[int]
    """Of the texts."""
    answer: npt.NDArray[np.float64]
    """A row for each of them."""
    mask: npt.NDArray[np.int64]
    """1 where a row has a token, 0 where it is padded."""


class Graph:
    """A model that is loaded. Batches take turns, so that memory is bounded however many threads there are."""

    def __init__(self, files: Files) -> None:
        runtime: Any = import_module("onnxruntime")  # the libraries describe their types only in part
        state: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
        tokenizers: Any = import_module("tokenizers")
        options = runtime.SessionOptions()
        # Kept memory would be as much as the largest batch ever took.
        options.enable_cpu_mem_arena = False
        options.log_severity_level = 3
        try:
            session = runtime.InferenceSession(str(files.graph), options, providers=["CPUExecutionProvider"])
        except (state.Fail, state.InvalidGraph, state.InvalidProtobuf, state.NoSuchFile, state.NotImplemented) as error:
            raise files.refused(f"{files.graph} cannot be loaded: {type(error).__name__}") from error
        self._files = files
        self._session = session
        self._inputs = _inputs(files, session)
        self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(files.tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length=files.tokens)
        self._running = Lock()
        self.outputs = [Output(each.name, each.shape) for each in session.get_outputs()]

    def run(
        self, texts: Sequence[str] | Sequence[tuple[str, str]], output: str, deadline: float | None = None
    ) -> Iterator[Batch]:
        """What the graph gives for texts, or for pairs of them, a batch at a time. None begins after the deadline, a
        time of the monotonic clock: TimeoutError says so."""
        encoded: list[Any] = self._tokenizer.encode_batch_fast(list(texts))
        for numbers in _batches([len(tokens.ids) for tokens in encoded]):
            feed, mask = self._feed([encoded[place] for place in numbers])
            with self._turn(deadline):
                (answer,) = self._session.run([output], feed)
            yield Batch(numbers, np.asarray(answer, np.float64), mask)

    def _feed(self, encoded: list[Any]) -> tuple[dict[str, npt.NDArray[Any]], npt.NDArray[np.int64]]:
        longest = max(len(tokens.ids) for tokens in encoded)
        ids = np.full((len(encoded), longest), self._files.pad_id, np.int64)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for row, tokens in enumerate(encoded):
            size = len(tokens.ids)
            ids[row, :size], mask[row, :size], types[row, :size] = tokens.ids, 1, tokens.type_ids
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        return {name: given[name].astype(kind) for name, kind in self._inputs.items()}, mask

    @contextmanager
    def _turn(self, deadline: float | None) -> Generator[None]:
        # Without a timeout it is written -1.
        left = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
        if left == 0 or not self._running.acquire(timeout=left):
            raise TimeoutError
        try:
            yield
        finally:
            self._running.release()


def _inputs(files: Files, session: Any) -> dict[str, type[np.integer[Any]]]:
    wanted: dict[str, type[np.integer[Any]]] = {
        each.name: np.int32 if each.type == "tensor(int32)" else np.int64 for each in session.get_inputs()
    }
    if not wanted.keys() <= _INPUTS or "input_ids" not in wanted:
        raise files.refused(f"{files.graph} is no model of texts: it wants {', '.join(sorted(wanted))}")
    return wanted


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    """Numbers of texts that are about as long as each other: what is shorter than its batch is padded, and costs."""
    batch: list[int] = []
    longest = 0
    for place in sorted(range(len(lengths)), key=lambda place: lengths[place], reverse=True):
        if batch and (len(batch) == MAX_BATCH_TEXTS or (len(batch) + 1) * longest > MAX_BATCH_TOKENS):
            yield batch
            batch = []
        longest = lengths[place] if not batch else longest
        batch.append(place)
    if batch:
        yield batch
