"""Models: what turns text into vectors."""

from whence.errors import SetupError
from whence.models.embedder import Embedder, WordLlamaEmbedder
from whence.models.onnx import OnnxEmbedder, find_model
from whence.settings import Settings


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
