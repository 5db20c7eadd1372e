"""`whence eval`: how well recall answers the questions of a set, for people."""

import logging
import shutil
import signal
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, cast, get_args

import msgspec
import typer
from rich.table import Column

from whence.cli.command import AsJson, folder
from whence.cli.terminal import print_json, print_plain, print_table, progress, shown
from whence.db import embedded
from whence.errors import InvalidInput, SetupError
from whence.evaluation import (
    EVERYTHING,
    GATEWAY_METHODS,
    METHODS,
    Group,
    Places,
    Report,
    Through,
    as_json,
    evaluate,
    inside,
    served,
)
from whence.evaluation.datasets import Dataset
from whence.evaluation.picture import svg
from whence.evaluation.scores import Figure
from whence.recall.scoring import WEIGHTS
from whence.settings import CONFIG_FILE, leave_variables

STOP_SECONDS = 30.0
"""For the throwaway Postgres to end, before its folder is removed all the same."""
JSON_FILE = "recall.json"
PICTURE_FILE = "recall.svg"

_OF_MODELS = frozenset(
    {"embedder", "embedder_url", "embedder_key", "embedder_dimension", "reranker", "reranker_url", "reranker_key"}
)
"""Settings that count in a throwaway Whence too."""
_HEADINGS = {"ndcg@10": "NDCG", "hit@10": "hit", "all@10": "all", "mrr": "MRR"}
"""Where all of them must fit into a line. What is left is counted among the first 10."""

commands = typer.Typer()


@commands.command("eval")
def evaluation(  # noqa: PLR0913, PLR0917 (options of a command)
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="A file of LoCoMo's shape, or of LongMemEval's.")],
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="How to search; may be given several times.", show_default="full"),
    ] = None,
    embedder: Annotated[
        str | None, typer.Option(help="What makes vectors, as the setting of that name.", show_default="as set")
    ] = None,
    reranker: Annotated[
        str | None, typer.Option(help="What puts hits in order, as the setting of that name.", show_default="as set")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(parser=folder, metavar="FOLDER", help="Where to write all figures, and a picture of them."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many questions, evenly from the file.")] = None,
    through: Annotated[
        str, typer.Option(metavar="CALLS", help="remember and recall (`remember`), or the memory gateway (`gateway`).")
    ] = "remember",
    url: Annotated[str | None, typer.Option(help="A running server to measure, instead of a throwaway one.")] = None,
    key: Annotated[str | None, typer.Option(help="The key of an administrator there.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Store and erase throwaway users there.")] = False,
    as_json_: AsJson = False,
) -> None:
    """Measure how well recall finds what answers the questions of a set."""
    methods = list(dict.fromkeys(method or ["full"]))
    _check(methods, through)
    if (url is None) != (key is None):
        raise typer.BadParameter("--url and --key are given together")
    chosen = {name: value for name, value in (("embedder", embedder), ("reranker", reranker)) if value is not None}
    if url is not None and chosen:
        raise typer.BadParameter(f"--{min(chosen)} is for a throwaway Whence: a server has its own")
    if url is not None and not yes:
        raise typer.BadParameter("--url stores throwaway users at that server and erases them: say --yes to that")
    # Like Ctrl-C, so that whoever ends it leaves nothing behind either way.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    questions = Dataset(dataset)
    if out is not None:
        _make(out)
    if url is not None and key is not None:
        report = _evaluated(questions, methods, served(url, key), limit, through)
    else:
        with _throwaway(chosen) as places:
            report = _evaluated(questions, methods, places, limit, through)
        report = msgspec.structs.replace(report, weights=WEIGHTS)
    if out is not None:
        _write(out, report)
    if as_json_:
        print_json(report)
    else:
        _tell(report)


def _check(methods: list[str], through: str) -> None:
    for name in methods:
        if name not in METHODS:
            raise typer.BadParameter(f"there is no method {name}: there are {', '.join(METHODS)}")
    if through not in get_args(Through):
        raise typer.BadParameter(f"--through is {' or '.join(get_args(Through))}")
    if through == "gateway" and not set(methods) <= set(GATEWAY_METHODS):
        raise typer.BadParameter(f"the gateway is measured by {' and '.join(GATEWAY_METHODS)}: its searches are whole")


def _evaluated(questions: Dataset, methods: list[str], places: Places, limit: int | None, through: str) -> Report:
    with progress("asking") as tell:
        return evaluate(questions, methods, places, limit, tell, cast("Through", through))


@contextmanager
def _throwaway(chosen: dict[str, str]) -> Generator[Places]:
    """A Whence in a folder of its own, which has nothing to do with the user's and is gone afterwards."""
    # Variables may name the user's database and keys. What is said of models is meant to be measured.
    leave_variables(*(_OF_MODELS - chosen.keys()))
    # Who interrupts it is not told of the connections that are closed because of that.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    made = Path(tempfile.mkdtemp(prefix="whence-eval-"))
    data_dir = made / "data"
    try:
        # Held here, the database outlives the users, of whom one after the other opens it.
        with embedded.start(data_dir):
            lines = [f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in chosen.items()]
            (data_dir / CONFIG_FILE).write_text("".join(lines), "utf-8")
            yield inside(data_dir)
    finally:
        # Who presses Ctrl-C twice wants it to end, and it does; not to leave a database behind.
        before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        embedded.wait_until_stopped(data_dir, STOP_SECONDS)
        shutil.rmtree(made, ignore_errors=True)
        for number, handler in before.items():
            signal.signal(number, handler)


# --- results ----------------------------------------------------------------------------------------------------------


def _make(out: Path) -> None:
    """Before anything is measured, which takes long."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"{out} cannot be made: {error.strerror}") from error


def _write(out: Path, report: Report) -> None:
    try:
        (out / JSON_FILE).write_bytes(as_json(report))
        (out / PICTURE_FILE).write_text(svg(report), "utf-8")
    except OSError as error:
        raise InvalidInput(f"{out} cannot be written to: {error.strerror}") from error


def _tell(report: Report) -> None:
    about = report.dataset
    left_out = f" ({about.without_evidence} more have no evidence)" if about.without_evidence else ""
    print_plain(
        f"{shown(about.file)}: {about.questions:,} questions{left_out}, {about.conversations:,} conversations, "
        f"{about.turns:,} turns"
    )
    for name, method in report.methods.items():
        took = method.milliseconds
        print_plain(f"\n{name}: half of the questions within {took['p50']:g} ms, 95 % within {took['p95']:g} ms")
        if method.not_reranked:
            print_plain(
                f"{method.not_reranked:,} of them the reranker has not put in order; the figures are without it"
            )
        if method.by_turn:
            _print_groups("by turn", method.by_turn, _HEADINGS)
        if method.by_session:
            print_plain("")
            _print_groups("by session", method.by_session, {})
        if method.gain:
            _print_gain(next(iter(report.methods)), method.gain)


def _print_groups(title: str, groups: dict[str, Group], headings: dict[str, str]) -> None:
    names = list(groups[EVERYTHING].figures)
    shortened = ["n", *(headings.get(name, name.replace("recall", "R")) for name in names)]
    columns = [title, *(Column(heading, justify="right") for heading in shortened)]
    rows = [
        (shown(category), f"{group.questions}", *(_short(group.figures[name].mean) for name in names))
        for category, group in groups.items()
    ]
    whole = groups[EVERYTHING].figures
    rows.append(("95 % from", "", *(_short(whole[name].low) for name in names)))
    rows.append(("95 % to", "", *(_short(whole[name].high) for name in names)))
    print_table(columns, rows)


def _print_gain(first: str, gain: dict[str, Figure]) -> None:
    said = ", ".join(
        f"{name} {gain[each].mean:+.3f} ({gain[each].low:+.3f} to {gain[each].high:+.3f})"
        for name, each in (("R@10", "recall@10"), ("NDCG", "ndcg@10"))
    )
    print_plain(f"against {first}: {said}")


def _short(figure: float) -> str:
    """Without the zero, so that all of them fit into a line."""
    return f"{figure:.3f}".lstrip("0") if figure < 0.9995 else "1.00"
