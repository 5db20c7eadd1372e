"""Models: what turns text into vectors, what says how well a text answers a question, and what reads it."""

from typing import TYPE_CHECKING

from whence.errors import SetupError
from whence.models.embedder import Embedder, WordLlamaEmbedder
from whence.models.onnx import OnnxEmbedder, find_model
from whence.models.reranker import OnnxReranker, Reranker
from whence.settings import Settings

if TYPE_CHECKING:
    from whence.models.language import LanguageModel


def make_embedder(settings: Settings, built_in: WordLlamaEmbedder) -> Embedder:
    """The one that the setting names. Files are looked for; nothing is loaded, and nobody is asked, before it embeds.

    `built_in` is given because its weights are large, and the graph has them already."""
    kind, _, which = settings.embedder.partition(":")
    if settings.embedder == "wordllama":
        return built_in
    if kind == "onnx" and which:
        return OnnxEmbedder(find_model(which, settings.model_caches))
    if kind == "openai" and which:
        # It needs an HTTP client, which takes longer to import than most commands take to run.
        from whence.models.hosted import HostedEmbedder  # noqa: PLC0415

        return HostedEmbedder(which, settings.embedder_url, settings.embedder_key, settings.embedder_dimension)
    raise SetupError("setting embedder: is wordllama, onnx:FOLDER, onnx:NAME or openai:MODEL")


def make_language_model(settings: Settings) -> "LanguageModel | None":
    """The one that the setting names; None where it names none. Nobody is asked before it is needed."""
    if settings.language_model is None:
        return None
    kind, _, model = settings.language_model.partition(":")
    if kind != "openai" or not model:
        raise SetupError("setting language_model: is openai:MODEL")
    from whence.models.language import LanguageModel  # noqa: PLC0415 (as above)

    return LanguageModel(model, settings.language_model_url, settings.language_model_key)


def make_reranker(settings: Settings) -> Reranker | None:
    """The one that the setting names, if it names one. As with embedders, nothing is loaded and nobody is asked yet."""
    if settings.reranker is None:
        return None
    kind, _, which = settings.reranker.partition(":")
    if kind == "onnx" and which:
        return OnnxReranker(which, settings.model_caches)
    if kind == "hosted" and which:
        from whence.models.hosted_reranker import HostedReranker  # noqa: PLC0415

        if settings.reranker_url is None:
            raise SetupError("setting reranker_url: says where a hosted: reranker is, and is not set")
        return HostedReranker(which, settings.reranker_url, settings.reranker_key)
    raise SetupError("setting reranker: is onnx:FOLDER, onnx:NAME or hosted:MODEL")
