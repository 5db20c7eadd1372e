"""Models small enough to be made by a test: real ONNX files, a real tokenizer, and a server for hosted ones."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "query:", "told",
    "cat", "dog", "fish", "car", "bus", "train", "rome", "oslo", "bern", "lives", "in",
]  # fmt: skip
DIMENSION = 12


def make_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


def table(seed: int = 0, dimension: int = DIMENSION) -> np.ndarray:
    """A vector for each word."""
    return np.random.default_rng(seed).normal(size=(len(WORDS), dimension)).astype(np.float32)


def make_graph(
    weights: np.ndarray, pooled: str | None = None, inputs: tuple[str, ...] = ("input_ids", "attention_mask")
) -> onnx.ModelProto:
    """Looks up a vector for each token. `pooled` names an output with their mean, without regard to the mask."""
    dimension = weights.shape[1]
    name = "token_embeddings" if pooled else "last_hidden_state"
    nodes = [helper.make_node("Gather", ["table", "input_ids"], [name])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "sequence", dimension])]
    if pooled:
        nodes.append(helper.make_node("ReduceMean", [name], [pooled], axes=[1], keepdims=0))
        outputs.append(helper.make_tensor_value_info(pooled, TensorProto.FLOAT, ["batch", dimension]))
    given = [helper.make_tensor_value_info(each, TensorProto.INT64, ["batch", "sequence"]) for each in inputs]
    graph = helper.make_graph(nodes, "tiny", given, outputs, [numpy_helper.from_array(weights, "table")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def likings(**of: dict[str, float]) -> np.ndarray:
    """What `make_scorer` is made of: how much a word of a question likes each word of a text; itself, unless said."""
    known = np.zeros((len(WORDS), len(WORDS)), np.float32)
    for place in range(WORDS.index("told") + 1, len(WORDS)):
        known[place, place] = 1
    for word, liked in of.items():
        for other, much in liked.items():
            known[WORDS.index(word), WORDS.index(other)] = much
    return known


def make_scorer(liked: np.ndarray, form: Literal["n", "n,1", "n,2", "n,3"] = "n,1") -> onnx.ModelProto:
    """A cross-encoder: the sum of how much each word of the first text likes each of the second, which it tells apart
    by the types of tokens. Of two classes the first has nothing."""
    one, axis, last = (
        numpy_helper.from_array(np.array(value), name)
        for name, value in (("one", np.float32(1)), ("axis", np.array([1])), ("last", np.array([2])))
    )
    nodes = [
        helper.make_node("Cast", ["token_type_ids"], ["type"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["type", "mask"], ["in_second"]),
        helper.make_node("Sub", ["one", "type"], ["not_type"]),
        helper.make_node("Mul", ["not_type", "mask"], ["in_first"]),
        helper.make_node("Unsqueeze", ["in_first", "last"], ["of_first"]),
        helper.make_node("Unsqueeze", ["in_second", "last"], ["of_second"]),
        helper.make_node("Gather", ["likes", "input_ids"], ["liking"]),
        helper.make_node("Gather", ["words", "input_ids"], ["word"]),
        helper.make_node("Mul", ["liking", "of_first"], ["liking_of_first"]),
        helper.make_node("Mul", ["word", "of_second"], ["word_of_second"]),
        helper.make_node("ReduceSum", ["liking_of_first", "axis"], ["wanted"], keepdims=0),
        helper.make_node("ReduceSum", ["word_of_second", "axis"], ["there"], keepdims=0),
        helper.make_node("Mul", ["wanted", "there"], ["both"]),
        helper.make_node("ReduceSum", ["both", "axis"], ["score"], keepdims=0 if form == "n" else 1),
        helper.make_node("Sub", ["score", "score"], ["nothing"]),
    ]
    parts = {"n": ["score"], "n,1": ["score"], "n,2": ["nothing", "score"], "n,3": ["nothing", "score", "nothing"]}[
        form
    ]
    nodes.append(
        helper.make_node("Identity", parts, ["logits"])
        if len(parts) == 1
        else helper.make_node("Concat", parts, ["logits"], axis=1)
    )
    shape = ["batch"] if form == "n" else ["batch", len(parts)]
    given = [
        helper.make_tensor_value_info(each, TensorProto.INT64, ["batch", "sequence"])
        for each in ("input_ids", "attention_mask", "token_type_ids")
    ]
    kept = [one, axis, last, numpy_helper.from_array(liked, "likes")]
    kept.append(numpy_helper.from_array(np.eye(len(WORDS), dtype=np.float32), "words"))
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "tiny", given, outputs, kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def write_model(folder: Path, graph: onnx.ModelProto | None = None, file: str = "model.onnx", **said: Any) -> Path:
    """As sentence-transformers keeps it. `said` are the contents of its files, by name; None leaves one out."""
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(graph or make_graph(table()), folder / file)
    make_tokenizer().save(str(folder / "tokenizer.json"))
    contents: dict[str, Any] = {
        "config.json": {"hidden_size": DIMENSION, "max_position_embeddings": 64, "pad_token_id": 0},
        "1_Pooling/config.json": {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
    } | said
    for name, content in contents.items():
        if content is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(json.dumps(content))
    return folder


Answer = Callable[[dict[str, Any], int], tuple[int, dict[str, str], Any]]


class Hosted:
    """A server that speaks the embeddings API and the rerank API on loopback, and keeps what it was asked."""

    def __init__(self, dimension: int = 8) -> None:
        self.dimension = dimension
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Answer = self.well
        self.url = ""

    def well(self, body: dict[str, Any], _number: int) -> tuple[int, dict[str, str], Any]:
        return 200, {}, self.scores(body) if "documents" in body else self.vectors(body)

    def scores(self, body: dict[str, Any]) -> dict[str, Any]:
        """Like what Cohere answers, the best first: how many words of the question a text has."""
        asked = set(body["query"].lower().split())
        rows = [
            {"index": index, "relevance_score": len(asked & set(text.lower().split())) / 10}
            for index, text in enumerate(body["documents"])
        ]
        best = sorted(rows, key=lambda row: -row["relevance_score"])[: body["top_n"]]
        return {"id": "r-1", "results": best, "meta": {"billed_units": {"search_units": 1}}}

    def vectors(self, body: dict[str, Any]) -> dict[str, Any]:
        """Like what OpenAI answers, in reverse, because the order is not promised."""
        size = body.get("dimensions", self.dimension)
        rows = [
            {"object": "embedding", "index": index, "embedding": vector_of(text, size).tolist()}
            for index, text in enumerate(body["input"])
        ]
        return {"object": "list", "data": rows[::-1], "model": body["model"], "usage": {"total_tokens": 1}}


def vector_of(text: str, size: int) -> np.ndarray:
    """Depends on the text alone."""
    return np.random.default_rng(list(text.encode())).normal(size=size)


@contextmanager
def hosted(dimension: int = 8) -> Iterator[Hosted]:
    state = Hosted(dimension)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.asked.append({"path": self.path, **body})
            state.headers.append(dict(self.headers))
            status, headers, answer = state.answer(body, len(state.asked))
            if isinstance(answer, Iterator):
                self.drip(answer)
                return
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def drip(self, pieces: Iterator[bytes]) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            for piece in pieces:
                self.wfile.write(piece)
                self.wfile.flush()

        def handle(self) -> None:
            # A client that has read enough goes away.
            with suppress(ConnectionError):
                super().handle()

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
