"""Models in a folder: found, read as their files say, and run."""

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_models import DIMENSION, WORDS, make_graph, table, write_model
from whence.errors import SetupError
from whence.models import graphs
from whence.models.embedder import MAX_DIMENSION, Embedder, quantised, similarity
from whence.models.graphs import MAX_BATCH_TEXTS, MAX_BATCH_TOKENS
from whence.models.onnx import OnnxEmbedder, find_model

TEXTS = ["cat", "dog fish", "car bus train rome", "oslo"]


def embedder(folder: Path) -> OnnxEmbedder:
    return OnnxEmbedder(find_model(str(folder), ()))


def expected(*words: str, weights: np.ndarray | None = None) -> np.ndarray:
    """The mean of the tokens, worked out by hand."""
    rows = (table() if weights is None else weights)[[WORDS.index(word) for word in words]]
    return quantised(rows.astype(np.float64).mean(axis=0, keepdims=True))[0]


def test_tokens_are_averaged_without_what_pads_them(tmp_path: Path) -> None:
    made: Embedder = embedder(write_model(tmp_path / "tiny"))
    vectors = made.embed(TEXTS)
    assert vectors.shape == (4, DIMENSION)
    for text, vector in zip(TEXTS, vectors, strict=True):
        assert np.array_equal(vector, expected("[CLS]", *text.split(), "[SEP]"))
    assert (made.dimension, made.is_quick, made.is_exact) == (DIMENSION, False, False)


def test_the_first_token_stands_for_all_where_the_files_say_so(tmp_path: Path) -> None:
    said = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    for number, pooling in enumerate((said, {"pooling_mode": "cls"})):
        made = embedder(write_model(tmp_path / str(number), **{"1_Pooling/config.json": pooling}))
        assert np.array_equal(made.embed(["dog"])[0], expected("[CLS]"))


def test_a_graph_that_pools_itself_is_left_to_it(tmp_path: Path) -> None:
    folder = write_model(
        tmp_path / "tiny", make_graph(table(), pooled="sentence_embedding"), **{"1_Pooling/config.json": None}
    )
    assert np.array_equal(embedder(folder).embed(["dog"])[0], expected("[CLS]", "dog", "[SEP]"))


def test_another_output_with_two_axes_is_not_taken_for_the_vector(tmp_path: Path) -> None:
    said = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    graph = make_graph(table(), pooled="pooler_output")
    made = embedder(write_model(tmp_path / "tiny", graph, **{"1_Pooling/config.json": said}))
    assert np.array_equal(made.embed(["dog"])[0], expected("[CLS]"))


def test_questions_and_texts_begin_as_the_files_say(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "query: ", "passage": "told "}}
    made = embedder(write_model(tmp_path / "tiny", **{"config_sentence_transformers.json": prompts}))
    assert np.array_equal(made.embed_query("dog"), expected("[CLS]", "query:", "dog", "[SEP]"))
    assert np.array_equal(made.embed(["dog"])[0], expected("[CLS]", "told", "dog", "[SEP]"))


def test_what_has_no_word_is_like_nothing(tmp_path: Path) -> None:
    made = embedder(write_model(tmp_path / "tiny"))
    vectors = made.embed(["", "cat", " \n"])
    assert [bool(row.any()) for row in vectors] == [False, True, False]
    assert not made.embed_query("").any()
    assert made.embed([]).shape == (0, DIMENSION)
    assert made.embed(["\ud800 cat"]).any()


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ({"sentence_bert_config.json": {"max_seq_length": 5}, "tokenizer_config.json": {"model_max_length": 6}}, 5),
        ({"tokenizer_config.json": {"model_max_length": 6}}, 6),
        ({"tokenizer_config.json": {"model_max_length": 10**30}}, 64),
        ({"config.json": {}}, graphs.MAX_TEXT_TOKENS),
    ],
)
def test_texts_are_cut_where_the_files_say(tmp_path: Path, said: dict[str, Any], tokens: int) -> None:
    made = embedder(write_model(tmp_path / "tiny", **said))
    long = made.embed(["dog " * 3_000])[0]
    assert np.array_equal(long, expected("[CLS]", *["dog"] * (min(tokens, 2_002) - 2), "[SEP]"))


@pytest.mark.parametrize("place", ["onnx/model.onnx", "model_quantized.onnx", "onnx/model_int8.onnx"])
def test_the_graph_is_found_by_its_usual_names(tmp_path: Path, place: str) -> None:
    assert embedder(write_model(tmp_path / "tiny", file=place)).embed(["cat"]).any()


def test_a_name_says_which_files_made_the_vectors(tmp_path: Path) -> None:
    one, same = write_model(tmp_path / "a" / "tiny"), write_model(tmp_path / "b" / "tiny")
    weights = write_model(tmp_path / "c" / "tiny", make_graph(table(seed=1)))
    prompts = {"config_sentence_transformers.json": {"prompts": {"document": "told "}}}
    usage = write_model(tmp_path / "d" / "tiny", **prompts)
    names = [embedder(folder).name for folder in (one, same, weights, usage)]
    assert names[0].startswith("onnx:tiny:")
    assert names[0] == names[1]
    assert len(set(names)) == 3


def test_threads_share_one_that_is_not_loaded_yet(tmp_path: Path) -> None:
    shared = embedder(write_model(tmp_path / "tiny"))
    texts = [f"{word} {other}" for word in WORDS for other in WORDS]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: shared.embed(texts).tobytes(), range(16)))
    assert len(set(made)) == 1


@given(st.lists(st.integers(1, 600), max_size=200))
def test_batches_hold_every_text_once_and_are_bounded(lengths: list[int]) -> None:
    batches = list(graphs._batches(lengths))
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= MAX_BATCH_TEXTS
        assert len(batch) == 1 or len(batch) * max(lengths[number] for number in batch) <= MAX_BATCH_TOKENS


def test_what_is_alike_is_found(tmp_path: Path) -> None:
    made = embedder(write_model(tmp_path / "tiny"))
    likeness = similarity(made.embed_query("cat lives in rome")[np.newaxis], made.embed(["cat in rome", "bus train"]))
    assert likeness[0, 0] > likeness[0, 1]


# Names


def cached(cache: Path, repository: str, revision: str = "abc", **said: Any) -> Path:
    folder = cache / f"models--{repository.replace('/', '--')}"
    return write_model(folder / "snapshots" / revision, **said)


def test_a_name_is_looked_up_in_the_caches(tmp_path: Path) -> None:
    fastembed, hub = tmp_path / "fastembed", tmp_path / "hub"
    cached(hub, "org/Tiny")
    found = OnnxEmbedder(find_model("org/tiny", (fastembed, hub)))
    assert found.name.startswith("onnx:tiny:")
    assert found.embed(["cat"]).any()
    folder = hub / "models--org--Tiny" / "snapshots" / "abc"
    assert find_model(str(folder), ()).label == "Tiny"


def test_what_fastembed_leaves_out_is_known(tmp_path: Path) -> None:
    cached(tmp_path, "Snowflake/snowflake-arctic-embed-s", file="onnx/model.onnx", **{"1_Pooling/config.json": None})
    found = find_model("snowflake/snowflake-arctic-embed-s", (tmp_path,))
    made = OnnxEmbedder(found)
    assert found.usage.query == "Represent this sentence for searching relevant passages: "
    assert np.array_equal(made.embed(["cat"])[0], expected("[CLS]"))


def test_the_version_of_main_counts(tmp_path: Path) -> None:
    cached(tmp_path, "org/tiny", "old")
    cached(tmp_path, "org/tiny", "new")
    (tmp_path / "models--org--tiny" / "refs").mkdir()
    (tmp_path / "models--org--tiny" / "refs" / "main").write_text("old\n")
    assert find_model("org/tiny", (tmp_path,)).folder.name == "old"
    shutil.rmtree(tmp_path / "models--org--tiny" / "snapshots" / "old")
    assert find_model("org/tiny", (tmp_path,)).folder.name == "new"


def test_a_model_that_is_nowhere_is_told_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="org/none") as raised:
        find_model("org/none", (tmp_path / "fastembed", tmp_path / "hub"))
    for said in (str(tmp_path / "fastembed"), str(tmp_path / "hub"), "Nothing is downloaded"):
        assert said in raised.value.detail


# What is wrong


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"1_Pooling/config.json": {"pooling_mode_max_tokens": True}}, "another pooling"),
        ({"1_Pooling/config.json": {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}}, "another"),
        ({"config_sentence_transformers.json": {"prompts": {"query": 1}}}, "are not texts"),
        ({"config.json": ["no object"]}, "not a JSON object"),
        ({"modules.json": {}}, "not a list of modules"),
    ],
)
def test_files_that_say_what_is_not_understood_are_named(tmp_path: Path, said: dict[str, Any], problem: str) -> None:
    with pytest.raises(SetupError, match=problem):
        embedder(write_model(tmp_path / "tiny", **said))


def test_missing_files_are_named(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(SetupError, match=r"tokenizer\.json is missing"):
        embedder(folder)
    (folder / "model.onnx").unlink()
    with pytest.raises(SetupError, match=r"no model\.onnx"):
        embedder(folder)


def test_what_cannot_be_used_is_told_when_it_is_loaded(tmp_path: Path) -> None:
    dense = {"modules.json": [{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]}
    wide = make_graph(table(dimension=MAX_DIMENSION + 1))
    pictures = make_graph(table(), inputs=("input_ids", "pixel_values"))
    for number, (folder, problem) in enumerate(
        (
            (lambda at: write_model(at, **{"1_Pooling/config.json": None}), "how vectors of tokens become one"),
            (lambda at: write_model(at, make_graph(table(), pooled="pooler_output"), **dense), "dense layer"),
            (lambda at: write_model(at, wide), "1,025 components"),
            (lambda at: write_model(at, pictures), "no model of texts"),
        )
    ):
        with pytest.raises(SetupError, match=problem):
            embedder(folder(tmp_path / str(number))).embed(["cat"])
    broken = write_model(tmp_path / "broken")
    (broken / "model.onnx").write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(SetupError, match="cannot be loaded"):
        embedder(broken).embed(["cat"])


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.models.graphs.find_spec", lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(SetupError, match=r"whence\[onnx\]"):
        embedder(write_model(tmp_path / "tiny"))


def test_the_runtime_is_imported_when_it_is_used(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    code = (
        "import sys, json; from whence.models.onnx import OnnxEmbedder, find_model;"
        f"made = OnnxEmbedder(find_model({json.dumps(str(folder))}, ())); made.name;"
        "sys.exit('onnxruntime' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
