"""`make bench`: runs the benchmarks, prints a table and writes bench/results/ledger.json.

Figures are ratios within one run; a floor that does not hold is shown, and the exit code is 1.
"""

import argparse
import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

import ledger
from harness import machine, served

RESULTS = Path(__file__).parent / "results"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the events, for a first look")
    arguments = parser.parse_args()
    with served() as target:
        results = ledger.run(target, arguments.quick)
    RESULTS.mkdir(exist_ok=True)
    report = {"at": datetime.now(UTC).isoformat(), "machine": machine(), "results": [asdict(r) for r in results]}
    (RESULTS / "ledger.json").write_text(json.dumps(report, indent=2) + "\n")
    Console().print(table(results))
    return 0 if all(result.holds is not False for result in results) else 1


def table(results: list[ledger.Result]) -> Table:
    shown = Table("", "Whence", "peer", "ratio", "floor", "", box=None, pad_edge=False, header_style="bold")
    for column in shown.columns[1:5]:
        column.justify = "right"
    for result in results:
        verdict = {None: "", True: "[green]holds[/]", False: "[red]misses[/]"}[result.holds]
        value = f"{result.ours:,.2f}" if result.unit == "ms" else f"{result.ours:,.0f}"
        shown.add_row(
            result.name,
            f"{value} {result.unit}",
            f"{result.peer:,.0f}" if result.peer else "",
            f"{result.ratio:.2f}" if result.ratio else "",
            f"{result.floor:.2f}" if result.floor else "",
            verdict,
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
