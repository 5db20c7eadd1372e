"""Settings: defaults, then `whence.toml` in the data directory, then `WHENCE_…` variables, then flags."""

import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from whence.errors import SetupError

CONFIG_FILE = "whence.toml"
Port = Annotated[int, Field(ge=0, le=65535)]


def default_data_dir() -> Path:
    try:
        return Path.home() / ".whence"
    except RuntimeError as error:
        raise SetupError("there is no home directory: give --data-dir or WHENCE_DATA_DIR") from error


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="WHENCE_", env_ignore_empty=True, extra="forbid", frozen=True)

    data_dir: Path = Field(
        default_factory=default_data_dir,
        description="Where the embedded database, the keys and the configuration are kept.",
    )
    database_url: SecretStr | None = Field(
        default=None, description="A Postgres 16+ to use instead of the embedded one."
    )
    database_owner_url: SecretStr | None = Field(
        default=None, description="The owner's login, for migrations, where database_url is not the owner's."
    )
    key_file: Path | None = Field(
        default=None, description="The key-encryption key; by default keys/kek.key in the data directory."
    )
    host: str = Field(default="127.0.0.1", description="The address to serve on.")
    port: Port = Field(default=8010, description="The port to serve on; 0 takes a free one.")
    otlp_grpc_port: Port | None = Field(
        default=None, description="Switches OTLP/gRPC on, on this port; exporters expect 4317."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least severe log line that is written."
    )
    log_format: Literal["console", "json"] = Field(
        default="console", description="Log lines for people or for machines."
    )
    max_body_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = Field(
        default=32 << 20, description="The largest request body, before and after decompression."
    )

    embedder: str = Field(
        default="wordllama",
        description="What makes vectors of memories: wordllama, onnx:FOLDER, onnx:NAME or openai:MODEL.",
    )
    embedder_url: str = Field(
        default="https://api.openai.com/v1", description="Where the embeddings API of an openai: embedder is."
    )
    embedder_key: SecretStr | None = Field(default=None, description="The key for it, where it wants one.")
    embedder_dimension: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="How many components it is asked for; without it, as many as the model gives."
    )
    reranker: str | None = Field(
        default=None,
        description="What reads the first hits again and puts them in order: onnx:FOLDER, onnx:NAME or hosted:MODEL.",
    )
    reranker_url: str | None = Field(default=None, description="Where the rerank API of a hosted: reranker is.")
    reranker_key: SecretStr | None = Field(default=None, description="The key for it, where it wants one.")

    language_model: str | None = Field(
        default=None, description="What draws facts from chats: openai:MODEL; without one, rules do."
    )
    language_model_url: str = Field(
        default="https://api.openai.com/v1", description="Where the chat API of the language model is."
    )
    language_model_key: SecretStr | None = Field(default=None, description="The key for it, where it wants one.")

    rate_limit: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="Requests a minute that each user may make; without it, there is no limit."
    )

    profiles: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Memory profiles of your own, by name; see the reference of profiles."
    )
    agents: dict[str, str] = Field(
        default_factory=dict,
        description="Which profile an agent has; one that is called like a profile has that one, others `gateway`.",
    )
    retention: dict[str, dict[str, dict[str, Any]]] = Field(
        default_factory=dict, description="Retention policies of your own, by entity and content class."
    )
    checkpoint_encryption: bool = Field(
        default=False, description="Whether checkpoints of LangGraph are sealed, all but their ids."
    )
    archive_dir: Path | None = Field(
        default=None, description="Where archives are written; by default archive in the data directory."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings)

    @property
    def kek_path(self) -> Path:
        return self.key_file.expanduser().absolute() if self.key_file else self.data_dir / "keys" / "kek.key"

    @property
    def archive_path(self) -> Path:
        return self.archive_dir.expanduser().absolute() if self.archive_dir else self.data_dir / "archive"

    @property
    def model_caches(self) -> tuple[Path, ...]:
        """Where fastembed and the Hugging Face Hub keep what they download, by the variables that they look at."""
        fastembed = os.environ.get("FASTEMBED_CACHE_PATH") or Path(tempfile.gettempdir(), "fastembed_cache")
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        home = os.environ.get("HF_HOME") or Path(cache, "huggingface")
        hub = os.environ.get("HF_HUB_CACHE") or Path(home, "hub")
        return tuple(Path(os.path.expanduser(folder)) for folder in (fastembed, hub))


def load_settings(flags: Mapping[str, object | None]) -> Settings:
    """`flags` are what the command line gave; None means that it gave nothing."""
    given: dict[str, Any] = {name: value for name, value in flags.items() if value not in (None, "")}
    data_dir = Path(str(given.get("data_dir") or os.environ.get("WHENCE_DATA_DIR") or default_data_dir()))
    data_dir = data_dir.expanduser().absolute()
    given["data_dir"] = data_dir
    in_file = {
        name: value
        for name, value in _read_file(data_dir / CONFIG_FILE).items()
        if not os.environ.get(f"WHENCE_{name.upper()}")
    }
    if "data_dir" in in_file:
        raise SetupError(f"{data_dir / CONFIG_FILE} sets data_dir, but is found through it: use WHENCE_DATA_DIR")
    try:
        return Settings(**(in_file | given))
    except ValidationError as error:
        raise SetupError(_explain(error)) from None
    except SettingsError as error:
        raise SetupError(_not_json(error)) from None


def leave_variables(*kept: str) -> None:
    """For a Whence that has nothing to do with the user's own: the variables of all other settings are unset."""
    named = {f"WHENCE_{name.upper()}" for name in Settings.model_fields if name not in kept}
    for variable in [variable for variable in os.environ if variable.upper() in named]:
        del os.environ[variable]


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SetupError(f"{path} is not valid TOML: {error}") from error


def _not_json(error: SettingsError) -> str:
    """The library reads what is not a single value, as JSON, before it looks at anything else."""
    found = re.search(r'field "(\w+)"', str(error))
    return f"variable WHENCE_{found[1].upper()}: is not valid JSON" if found else "a variable WHENCE_… is not valid"


def _explain(error: ValidationError) -> str:
    """Names the setting and never its value, which may be a password."""
    problems = [
        f"there is no setting {name}" if item["type"] == "extra_forbidden" else f"setting {name}: {item['msg']}"
        for item in error.errors(include_input=False)
        for name in [".".join(str(part) for part in item["loc"])]
    ]
    return "; ".join(problems)
