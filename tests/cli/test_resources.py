"""`whence resources` as a person or a script uses it."""

import json
from pathlib import Path

import made_documents as made
from conftest import Workspace, whence
from whence.app import App


async def test_documents_are_added_listed_shown_and_deleted(
    app: App, workspace: Workspace, data_dir: Path, tmp_path: Path
) -> None:
    where = ("-w", workspace.workspace_id, "--data-dir", data_dir)
    assert whence("resources", "list", *where).stdout == "there are no resources\n"
    good, bad = tmp_path / "roses.md", tmp_path / "locked.pdf"
    good.write_text("# Care\n\nRoses need water.\n")
    bad.write_bytes(made.encrypted_pdf("A rose"))
    added = whence("resources", "add", good, bad, "--user", "ann", *where)
    assert added.returncode == 1
    first, second = added.stdout.splitlines()
    assert first.split()[1:] == ["ready", "roses.md:", "1", "parts", "can", "be", "found"]
    assert "the file is encrypted" in second
    again = json.loads(whence("resources", "add", good, "--user", "ann", "--json", *where).stdout)
    resource_id = again[0]["resource_id"]
    assert resource_id == first.split()[0]
    lines = whence("resources", "list", *where).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[-1] for line in lines[1::2]] == ["locked.pdf", "roses.md"]
    shown = whence("resources", "show", resource_id, *where).stdout
    assert "text/markdown" in shown
    found = json.loads(whence("recall", "What do roses need?", "--user", "ann", "--json", *where).stdout)
    explained = whence("explain", found["hits"][0]["memory_id"], *where).stdout
    assert "in roses.md, under Care" in explained
    assert whence("resources", "delete", resource_id, *where).stdout == "deleted roses.md\n"
    missing = whence("resources", "show", resource_id, *where)
    assert (missing.returncode, missing.stderr) == (1, "whence: there is no such resource\n")


async def test_a_document_needs_an_owner_and_a_file_that_can_be_read(
    app: App, workspace: Workspace, data_dir: Path, tmp_path: Path
) -> None:
    where = ("-w", workspace.workspace_id, "--data-dir", data_dir)
    (tmp_path / "a.txt").write_text("A rose")
    nobody = whence("resources", "add", tmp_path / "a.txt", *where)
    assert nobody.returncode == 1
    assert "--user: is needed" in nobody.stderr
    absent = whence("resources", "add", tmp_path / "b.txt", "--user", "ann", *where)
    assert absent.stderr == f"whence: {tmp_path / 'b.txt'} cannot be read: No such file or directory\n"
