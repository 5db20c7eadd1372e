"""Which embedder and which reranker settings name."""

from pathlib import Path

import pytest

from conftest import whence
from tiny_models import likings, make_scorer, write_model
from whence.errors import SetupError
from whence.models import make_embedder, make_reranker
from whence.models.embedder import WordLlamaEmbedder
from whence.models.hosted import HostedEmbedder
from whence.models.hosted_reranker import HostedReranker
from whence.models.onnx import OnnxEmbedder
from whence.models.reranker import OnnxReranker
from whence.settings import Settings, load_settings

BUILT_IN = WordLlamaEmbedder()


def test_the_built_in_one_is_used_unless_another_is_named() -> None:
    assert make_embedder(Settings(), BUILT_IN) is BUILT_IN


def test_a_folder_and_a_name_are_models_of_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_model(tmp_path / "tiny")
    assert isinstance(make_embedder(Settings(embedder=f"onnx:{folder}"), BUILT_IN), OnnxEmbedder)
    write_model(tmp_path / "hf" / "hub" / "models--org--tiny" / "snapshots" / "abc")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    assert isinstance(make_embedder(Settings(embedder="onnx:org/tiny"), BUILT_IN), OnnxEmbedder)
    write_model(tmp_path / "fast" / "models--org--other" / "snapshots" / "abc")
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path / "fast"))
    assert isinstance(make_embedder(Settings(embedder="onnx:org/other"), BUILT_IN), OnnxEmbedder)


def test_a_hosted_one_is_told_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "whence.toml").write_text('embedder = "openai:m"\nembedder_key = "sk-1"\nembedder_dimension = 512\n')
    settings = load_settings({"data_dir": tmp_path})
    made = make_embedder(settings, BUILT_IN)
    assert isinstance(made, HostedEmbedder)
    assert made.name == "openai:m@api.openai.com:512"
    assert "sk-1" not in repr(settings)


@pytest.mark.parametrize("said", ["", "word2vec", "onnx:", "openai:", "openai", "wordllama:x"])
def test_other_names_are_refused(said: str) -> None:
    with pytest.raises(SetupError, match="setting embedder"):
        make_embedder(Settings.model_construct(embedder=said), BUILT_IN)


def test_more_components_than_are_kept_cannot_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="embedder_dimension"):
        load_settings({"data_dir": tmp_path, "embedder_dimension": 1536})


def test_commands_tell_what_is_wrong_with_it(tmp_path: Path) -> None:
    missing = {"WHENCE_EMBEDDER": f"onnx:{tmp_path / 'none'}", "WHENCE_EMBEDDER_KEY": "sk-1"}
    done = whence("doctor", "--json", "--data-dir", tmp_path / "data", **missing)
    assert done.returncode == 1
    assert '"embedder"' in done.stdout
    assert str(tmp_path / "none") in done.stdout
    assert "sk-1" not in done.stdout + whence("config", "--data-dir", tmp_path / "data", **missing).stdout
    refused = whence("user", "list", "--data-dir", tmp_path / "data", **missing)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert not (tmp_path / "data").exists()


# Rerankers


def test_there_is_no_reranker_unless_one_is_named() -> None:
    assert make_reranker(Settings()) is None


def test_a_reranker_is_a_model_in_a_folder_or_hosted(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny", make_scorer(likings()))
    assert isinstance(make_reranker(Settings(reranker=f"onnx:{folder}")), OnnxReranker)
    (tmp_path / "whence.toml").write_text(
        'reranker = "hosted:rerank-v3.5"\nreranker_url = "https://api.cohere.com/v2"\nreranker_key = "sk-1"\n'
    )
    settings = load_settings({"data_dir": tmp_path})
    made = make_reranker(settings)
    assert isinstance(made, HostedReranker)
    assert made.name == "hosted:rerank-v3.5@api.cohere.com"
    assert "sk-1" not in repr(settings)
    with pytest.raises(SetupError, match="setting reranker_url"):
        make_reranker(Settings(reranker="hosted:m"))


@pytest.mark.parametrize("said", ["", "bm25", "onnx:", "hosted:", "hosted", "openai:m"])
def test_other_names_of_rerankers_are_refused(said: str) -> None:
    with pytest.raises(SetupError, match="setting reranker"):
        make_reranker(Settings.model_construct(reranker=said))


def test_commands_tell_what_is_wrong_with_a_reranker(tmp_path: Path) -> None:
    missing = {"WHENCE_RERANKER": f"onnx:{tmp_path / 'none'}", "WHENCE_RERANKER_KEY": "sk-1"}
    done = whence("doctor", "--json", "--data-dir", tmp_path / "data", **missing)
    assert done.returncode == 1
    assert "setting reranker: there is no model" in done.stdout
    assert "sk-1" not in done.stdout + whence("config", "--data-dir", tmp_path / "data", **missing).stdout
    refused = whence("user", "list", "--data-dir", tmp_path / "data", **missing)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert not (tmp_path / "data").exists()
