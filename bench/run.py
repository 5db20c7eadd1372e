"""`make bench`: runs the benchmarks, prints a table of each and writes it to bench/results/.

Figures are ratios within one run; a floor that does not hold is shown, and the exit code is 1.
"""

import argparse
import importlib
import json
import os
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

# As the command `whence` does; sides that run in this process have the same.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from rich.console import Console
from rich.table import Table

from harness import machine, served
from ledger import Result

RESULTS = Path(__file__).parent / "results"
BENCHES = ("ledger", "graph", "memory", "recall", "large", "talks", "checkpoints")
"""Modules beside this one, imported when they are run: the peers of one are of no use to another."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the events and memories, for a first look")
    parser.add_argument("--only", choices=sorted(BENCHES), help="one of them instead of all")
    arguments = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    return max([run(name, arguments.quick) for name in BENCHES if arguments.only in (None, name)])


def run(name: str, quick: bool) -> int:
    """Each on a database of its own."""
    with served() as target:
        results: list[Result] = importlib.import_module(name).run(target, quick)
    report = {"at": datetime.now(UTC).isoformat(), "machine": machine(), "results": [asdict(r) for r in results]}
    (RESULTS / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n")
    Console().print(table(results))
    return 0 if all(result.holds is not False for result in results) else 1


def table(results: list[Result]) -> Table:
    shown = Table("", "Whence", "peer", "ratio", "floor", "", box=None, pad_edge=False, header_style="bold")
    for column in shown.columns[1:5]:
        column.justify = "right"
    for result in results:
        verdict = {None: "", True: "[green]holds[/]", False: "[red]misses[/]"}[result.holds]
        digits = 2 if result.unit in ("ms", "s") else 0
        value = f"{result.ours:,.{digits}f}"
        shown.add_row(
            result.name,
            f"{value} {result.unit}",
            f"{result.peer:,.{digits}f}" if result.peer else "",
            f"{result.ratio:.2f}" if result.ratio else "",
            f"{result.floor:.2f}" if result.floor else "",
            verdict,
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
