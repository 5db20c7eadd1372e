"""The command line as a person or a script uses it: real processes, exit codes, one-line errors."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from conftest import clean_environment, serving, whence
from samples import sample
from whence.db import embedded


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that somebody keeps the database of running, so that each command is quick."""
    return tmp_path_factory.mktemp("cli") / "data"


@pytest.fixture(scope="module", autouse=True)
def kept(folder: Path) -> object:
    with embedded.start(folder) as server:
        yield server


def test_a_user_is_made_and_the_key_works(folder: Path, tmp_path: Path) -> None:
    made = whence("user", "add", "ann", "--json", "--data-dir", folder)
    assert made.returncode == 0, made.stderr
    answer = json.loads(made.stdout)
    assert set(answer) == {"user_id", "user_key"}
    with serving(folder, tmp_path / "log") as server, server.client(answer["user_key"]) as client:
        assert client.post("/v1/events", json=sample()).json()["accepted"] == 1
        assert client.get("/v1/events").json()["events"][0]["user_id"] == "ann"
        rotated = whence("user", "rotate", "ann", "--overlap-minutes", "0", "--json", "--data-dir", folder)
        new = json.loads(rotated.stdout)["user_key"]
        time.sleep(1.1)
        assert client.get("/v1/events").status_code == 401
        with server.client(new) as second:
            assert second.get("/v1/events").status_code == 200
            assert whence("user", "revoke", "ann", "--data-dir", folder).stdout == "1 key of ann revoked\n"
            time.sleep(1.1)
            assert second.get("/v1/events").status_code == 401
    again = whence("user", "add", "ann", "--data-dir", folder)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == "whence: the user ann exists already: `whence user rotate` makes a new key\n"


def test_a_workspace_is_made_with_an_admin_key(folder: Path) -> None:
    made = whence("workspace", "add", "acme", "--json", "--data-dir", folder)
    assert set(json.loads(made.stdout)) == {"workspace_id", "admin_key"}
    whence("user", "add", "bob", "-w", "acme", "--data-dir", folder)
    listed = json.loads(whence("user", "list", "-w", "acme", "--json", "--data-dir", folder).stdout)
    assert [(row["user_id"], row["role"]) for row in listed] == [("admin", "admin"), ("bob", "member")]
    table = whence("user", "list", "-w", "acme", "--data-dir", folder).stdout
    assert "bob" in table
    for arguments, said in (
        (("workspace", "add", "acme"), "whence: the workspace acme exists already\n"),
        (("user", "add", "x", "-w", "nowhere"), "whence: there is no workspace nowhere\n"),
        (("user", "list", "-w", "nowhere"), "whence: there is no workspace nowhere\n"),
        (("user", "revoke", "x", "-w", "acme"), "whence: there is no user x in the workspace acme\n"),
        (("tail", "-w", "nowhere", "--no-follow"), "whence: there is no workspace nowhere\n"),
    ):
        done = whence(*arguments, "--data-dir", folder)
        assert (done.returncode, done.stderr) == (1, said)


def test_rotating_the_admin_of_the_default_workspace_renews_the_key_file(folder: Path) -> None:
    whence("user", "list", "--data-dir", folder)
    whence("user", "add", "first", "--data-dir", folder)
    before = (folder / "admin.key").read_text()
    rotated = whence("user", "rotate", "admin", "--json", "--data-dir", folder)
    after = (folder / "admin.key").read_text()
    assert after != before
    assert after.strip() == json.loads(rotated.stdout)["user_key"]
    assert (folder / "admin.key").stat().st_mode & 0o777 == 0o600


def test_tail_shows_events_and_goes_on(folder: Path, tmp_path: Path) -> None:
    whence("workspace", "add", "tailed", "--json", "--data-dir", folder)
    key = json.loads(whence("user", "rotate", "admin", "-w", "tailed", "--json", "--data-dir", folder).stdout)[
        "user_key"
    ]
    with serving(folder, tmp_path / "log") as server, server.client(key) as client:
        client.post("/v1/events", json={"events": [sample(tool_name=f"tool{n}", status="failed") for n in range(5)]})
        lines = whence("tail", "-w", "tailed", "-n", "2", "--no-follow", "--data-dir", folder).stdout.splitlines()
        assert [line.split()[0] for line in lines] == ["4", "5"]
        assert "tool4" in lines[1]
        assert "failed" in lines[1]
        as_json = whence("tail", "-w", "tailed", "--after", "0", "--no-follow", "--json", "--data-dir", folder).stdout
        assert [json.loads(line)["global_position"] for line in as_json.splitlines()] == [1, 2, 3, 4, 5]
        command = [
            sys.executable,
            "-m",
            "whence",
            "tail",
            "-w",
            "tailed",
            "--after",
            "5",
            "--json",
            "--data-dir",
            str(folder),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment()) as following:
            assert following.stdout is not None
            client.post("/v1/events", json=sample())
            assert json.loads(following.stdout.readline())["global_position"] == 6
            following.send_signal(signal.SIGINT)
            assert following.wait(10) == 130


def test_config_shows_settings_without_secrets(folder: Path) -> None:
    url = "postgresql://me:hunter2@db.example/whence"
    for arguments in (("config",), ("config", "--json")):
        done = whence(*arguments, "--data-dir", folder, WHENCE_DATABASE_URL=url, WHENCE_PORT="9000")
        assert done.returncode == 0, done.stderr
        assert "hunter2" not in done.stdout + done.stderr
        assert "9000" in done.stdout
    assert "WHENCE_DATABASE_URL" in whence("config", "--data-dir", folder).stdout


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"WHENCE_PORT": "hunter2"}, "whence: setting port: "),
        ({"WHENCE_LOG_LEVEL": "loud"}, "whence: setting log_level: "),
        ({"WHENCE_PROFILES": "hunter2"}, "whence: variable WHENCE_PROFILES: is not valid JSON"),
        ({"WHENCE_AGENTS": '{"hunter2'}, "whence: variable WHENCE_AGENTS: is not valid JSON"),
        ({"WHENCE_AGENTS": '["hunter2"]'}, "whence: setting agents: "),
        ({"WHENCE_DATABASE_URL": "postgresql://me:hunter2@127.0.0.1:1/x"}, "whence: the database cannot be reached: "),
        ({"WHENCE_DATABASE_URL": "hunter2 is no url"}, "whence: "),
    ],
)
def test_a_wrong_setting_is_one_line_without_its_value(folder: Path, environment: dict[str, str], said: str) -> None:
    done = whence("user", "list", "--data-dir", folder, **environment)
    assert done.returncode == 1
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
    assert "hunter2" not in done.stderr


def test_a_settings_file_counts_less_than_variables_and_flags(tmp_path: Path) -> None:
    (tmp_path / "whence.toml").write_text('port = 9001\nhost = "127.0.0.2"\nlog_level = "error"\n')
    shown = json.loads(whence("config", "--json", "--data-dir", tmp_path, WHENCE_PORT="9002").stdout)
    assert (shown["port"], shown["host"], shown["log_level"]) == (9002, "127.0.0.2", "error")
    (tmp_path / "whence.toml").write_text("prot = 9001\n")
    wrong = whence("config", "--data-dir", tmp_path)
    assert (wrong.returncode, "prot" in wrong.stderr) == (1, True)
    (tmp_path / "whence.toml").write_text("port = = 1\n")
    assert "not valid TOML" in whence("config", "--data-dir", tmp_path).stderr


def test_a_mistyped_folder_makes_no_database(tmp_path: Path) -> None:
    done = whence("user", "list", "--data-dir", tmp_path / "typo")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "there is no Whence data in" in done.stderr
    assert not (tmp_path / "typo").exists()
    assert whence("serve", "--data-dir", "").returncode == 2
    assert "there is no home directory" in whence("config", HOME="").stderr or os.getuid() == 0


def test_tail_shows_no_control_characters(folder: Path) -> None:
    whence("workspace", "add", "forged", "--data-dir", folder)
    key = json.loads(whence("user", "rotate", "admin", "-w", "forged", "--json", "--data-dir", folder).stdout)[
        "user_key"
    ]
    with serving(folder, folder.parent / "log2") as server, server.client(key) as client:
        client.post("/v1/events", json=sample(session_id="a\x1b[31m\nforged", tool_name="\x07bell"))
        shown = whence("tail", "-w", "forged", "--no-follow", "--data-dir", folder).stdout
    assert shown.count("\n") == 1
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_wrong_usage_is_exit_code_2() -> None:
    for arguments in (
        ("serve", "--prot", "1"),
        ("user", "add"),
        ("nothing",),
        ("serve", "--port", "x"),
        ("serve", "--port", "99999"),
        ("serve", "--log-level", "loud"),
    ):
        assert whence(*arguments).returncode == 2, arguments


def test_a_port_that_is_taken_is_one_line(folder: Path, tmp_path: Path) -> None:
    with serving(folder, tmp_path / "log") as server:
        port = server.url.rsplit(":", 1)[1]
        done = whence("serve", "--port", port, "--data-dir", folder)
    assert done.returncode == 1
    assert (
        done.stderr == f"whence: cannot serve on 127.0.0.1 port {port}: Address already in use;"
        " choose another with --host or --port\n"
    )


def test_serve_ends_cleanly_on_sigterm_and_keeps_its_key_private(tmp_path: Path) -> None:
    with serving(tmp_path / "data", tmp_path / "log") as server:
        assert (server.data_dir / "admin.key").stat().st_mode & 0o777 == 0o600
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
    assert (tmp_path / "log").read_text() == ""
    assert embedded.wait_until_stopped(tmp_path / "data", 20), "the last to leave stops the database"


def test_migrate_is_safe_to_repeat(folder: Path) -> None:
    whence("migrate", "--data-dir", folder)
    assert whence("migrate", "--data-dir", folder).stdout == "the schema is up to date\n"


def test_doctor_finds_nothing_wrong_and_changes_nothing(folder: Path, tmp_path: Path) -> None:
    done = whence("doctor", "--data-dir", folder)
    assert done.returncode == 0, done.stdout
    assert "embedded Postgres 18" in done.stdout
    fresh = whence("doctor", "--data-dir", tmp_path / "new")
    assert fresh.returncode == 0
    assert not (tmp_path / "new").exists()
    done = whence("doctor", "--json", "--data-dir", folder, WHENCE_DATABASE_URL="postgresql://me:hunter2@127.0.0.1:1/x")
    assert done.returncode == 1
    assert "hunter2" not in done.stdout
    (folder / "keys" / "kek.key").rename(folder / "kept")
    try:
        assert "restore it" in whence("doctor", "--data-dir", folder).stdout.replace("\n", " ")
        missing = whence("user", "list", "--data-dir", folder)
        assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
        assert "is missing: restore the one" in missing.stderr
        assert not (folder / "keys" / "kek.key").exists()
    finally:
        (folder / "kept").rename(folder / "keys" / "kek.key")
    (tmp_path / "whence.toml").write_text("[retention.memory.episods]\nactive_days = 3\n")
    strange = whence("doctor", "--data-dir", tmp_path)
    assert strange.returncode == 1
    assert "setting retention.memory.episods: nothing is of this class" in " ".join(strange.stdout.split())
    os.chmod(folder / "keys" / "kek.key", 0o644)
    try:
        assert "chmod 600" in whence("doctor", "--data-dir", folder).stdout.replace("\n", " ")
    finally:
        os.chmod(folder / "keys" / "kek.key", 0o600)


def test_a_served_postgres_is_used_by_one_setting(kept: embedded.EmbeddedServer, folder: Path, tmp_path: Path) -> None:
    """Another data directory, the same database by URL: with the owner's login, and with the server's own."""
    whence("user", "list", "--data-dir", folder)
    key_file = str(folder / "keys" / "kek.key")
    for login in (kept.owner_conninfo, kept.app_conninfo):
        done = whence(
            "user",
            "add",
            f"u{hash(login) % 1000}",
            "--json",
            "--data-dir",
            tmp_path / "other",
            "--database-url",
            login,
            WHENCE_KEY_FILE=key_file,
        )
        assert done.returncode == 0, done.stderr
    (tmp_path / "another.key").write_text("00" * 32)
    url = ("--database-url", kept.app_conninfo)
    wrong = whence("user", "list", "--data-dir", tmp_path, *url, WHENCE_KEY_FILE=str(tmp_path / "another.key"))
    assert wrong.returncode == 1
    assert "restore the right key file" in wrong.stderr


def test_a_login_that_may_not_migrate_is_told_what_to_do(kept: embedded.EmbeddedServer, tmp_path: Path) -> None:
    with psycopg.connect(embedded._Files(kept.data_dir).login(embedded.SUPERUSER), autocommit=True) as conn:
        conn.execute("CREATE DATABASE unmigrated OWNER whence_owner")
        conn.execute("GRANT CONNECT ON DATABASE unmigrated TO whence_app")
    login = make_conninfo(kept.app_conninfo, dbname="unmigrated")
    done = whence("user", "list", "--data-dir", tmp_path, "--database-url", login)
    assert done.returncode == 1
    assert "whence migrate" in done.stderr
    assert done.stderr.count("\n") == 1
    owner = make_conninfo(kept.owner_conninfo, dbname="unmigrated")
    assert "applied 0001" in whence("migrate", "--data-dir", tmp_path, "--database-url", owner).stdout
