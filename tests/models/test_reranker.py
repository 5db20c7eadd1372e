"""Cross-encoders in a folder: read as their files say, and run on pairs."""

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from tiny_models import DIMENSION, WORDS, likings, make_scorer, write_model
from whence.errors import SetupError
from whence.models.reranker import OnnxReranker, Reranker

TEXTS = ["dog", "cat in rome", "the train lives in oslo", "cat cat"]
Form = Literal["n", "n,1", "n,2", "n,3"]
IDENTITY = {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}


def folder(path: Path, form: Form = "n,1", **config: Any) -> Path:
    said = {"max_position_embeddings": 64, "pad_token_id": 0} | config
    graph = make_scorer(likings(), form)
    return write_model(path, graph, **{"1_Pooling/config.json": None, "config.json": said})


def reranker(path: Path, **more: Any) -> OnnxReranker:
    return OnnxReranker(str(path), (), **more)


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


@pytest.mark.parametrize("form", ["n", "n,1", "n,2"])
def test_each_text_is_read_together_with_the_question(tmp_path: Path, form: Form) -> None:
    made: Reranker = reranker(folder(tmp_path / "tiny", form))
    assert made.score("cat rome", TEXTS) == pytest.approx([sigmoid(value) for value in (0, 2, 0, 2)])
    assert made.score("train", TEXTS) == pytest.approx([sigmoid(value) for value in (0, 0, 1, 0)])
    made.close()


@pytest.mark.parametrize(
    "config", [IDENTITY, {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}]
)
def test_the_number_is_left_as_it_is_where_the_files_say_so(tmp_path: Path, config: dict[str, Any]) -> None:
    assert reranker(folder(tmp_path / "tiny", **config)).score("cat", TEXTS) == [0, 1, 0, 2]


@pytest.mark.parametrize(
    ("labels", "is_second"),
    [
        ({"0": "LABEL_0", "1": "LABEL_1"}, True),
        ({"0": "irrelevant", "1": "relevant"}, True),
        ({"0": "yes", "1": "no"}, False),
    ],
)
def test_of_two_classes_the_one_that_answers_counts(tmp_path: Path, labels: dict[str, str], is_second: bool) -> None:
    dog, cat, *_ = reranker(folder(tmp_path / "tiny", "n,2", id2label=labels)).score("cat", TEXTS)
    assert (cat > dog) is is_second


def test_long_texts_are_cut_where_the_files_say_and_the_question_stays(tmp_path: Path) -> None:
    made = reranker(folder(tmp_path / "tiny", max_position_embeddings=12, **IDENTITY))
    assert made.score("cat", ["dog " * 500 + "cat", "cat " * 500, ""]) == [0, 8, 0]
    assert len(made.score("cat " * 4_000, ["cat", "\ud800"])) == 2
    assert made.score("cat", []) == []


def test_what_is_asked_together_does_not_matter(tmp_path: Path) -> None:
    made = reranker(folder(tmp_path / "tiny"))
    texts = [f"{word} {other}" * (place % 5 + 1) for place, word in enumerate(WORDS) for other in WORDS]
    with ThreadPoolExecutor(4) as threads:
        every = list(threads.map(lambda _: made.score("cat oslo bus", texts), range(6)))
    assert all(np.allclose(each, every[0]) for each in every)
    assert every[0][::40] == pytest.approx([made.score("cat oslo bus", [text])[0] for text in texts[::40]])


def test_a_name_says_which_files_scored_and_how(tmp_path: Path) -> None:
    names = {
        reranker(folder(tmp_path / place / "tiny", **config)).name
        for place, config in (("a", {}), ("b", {}), ("c", IDENTITY))
    }
    assert len(names) == 2
    assert all(name.startswith("onnx:tiny:") for name in names)


def test_a_name_is_looked_up_where_fastembed_and_the_hub_keep_models(tmp_path: Path) -> None:
    folder(tmp_path / "models--Xenova--ms-marco-MiniLM-L-6-v2" / "snapshots" / "abc")
    made = OnnxReranker("xenova/ms-marco-minilm-l-6-v2", (tmp_path,))
    assert made.name.startswith("onnx:ms-marco-minilm-l-6-v2:")
    with pytest.raises(SetupError, match=r"setting reranker: there is no model .* Nothing is downloaded"):
        OnnxReranker("org/none", (tmp_path,))


def test_no_batch_begins_when_its_time_is_over(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        reranker(folder(tmp_path / "tiny"), seconds=0.0).score("cat", TEXTS)


def test_what_waits_for_the_batch_of_another_gives_up_when_its_time_is_over(tmp_path: Path) -> None:
    made = reranker(folder(tmp_path / "tiny"), seconds=0.2)
    made.score("cat", TEXTS)
    with made._model().graph._running, pytest.raises(TimeoutError):
        made.score("cat", TEXTS)
    assert made.score("cat", TEXTS)


def test_what_cannot_be_used_is_told(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"setting reranker: .*more than one or two numbers"):
        reranker(folder(tmp_path / "three", "n,3")).score("cat", TEXTS)
    vectors = write_model(tmp_path / "vectors")
    with pytest.raises(SetupError, match="does not score"):
        reranker(vectors).score("cat", TEXTS)
    with pytest.raises(SetupError, match=r"config\.json is not that of a model that scores"):
        reranker(folder(tmp_path / "labels", id2label=["a", "b"]))
    weights = likings(cat={"cat": math.nan})
    broken = write_model(tmp_path / "broken", make_scorer(weights), **{"config.json": {"hidden_size": DIMENSION}})
    with pytest.raises(SetupError, match="one or two finite numbers"):
        reranker(broken).score("cat", TEXTS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SetupError, match=r"setting reranker: .* has no model\.onnx"):
        reranker(tmp_path / "empty")
