"""What was asked for, beside what was recorded: the table in RESULTS.md says what its other tables say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import aims, report
from benchmarks.__main__ import INBOX, LIMITS, MEASURES, SCALE, TENANTS
from benchmarks.aims import AIMS, Aim, Cell

ROOT = Path(__file__).parents[2]

PAGE = """
<!-- run: begin -->

### Latency: of ten

|  | ms (/ floor) | s |
| --- | ---: | ---: |
| floor | 20.0 (**1.00**) | 1,000 |
| everturn | 18.0 (**0.90**) | 1,200 |

<!-- run: end -->
<!-- run of latency: begin -->

### Latency: of two

|  | ms (/ floor) | s |
| --- | ---: | ---: |
| everturn | 16.0 (**0.80**) | - |

<!-- run of latency: end -->
"""
RATIO = Cell("Latency", "everturn", "ms (/ floor)", ratio=True)


@pytest.mark.parametrize(
    ("cell", "most", "figure", "reached"),
    [
        (RATIO, 0.95, "0.8 to 0.9", "yes"),
        (RATIO, 0.85, "0.8 to 0.9", "in part"),
        (RATIO, 0.75, "0.8 to 0.9", "**no**"),
        (Cell("Latency", "everturn", "s", minus="floor"), 200, "200", "yes"),
        (Cell("Latency", "everturn", "s", times=0.001), 1, "1.2", "**no**"),
        (Cell("Latency", "nobody", "s"), 1, "-", "not measured"),
    ],
)
def test_an_aim_is_compared_with_every_record(cell: Cell, most: float, figure: str, reached: str) -> None:
    tables = aims.tables_of(PAGE)
    aim = Aim(1, "what", "asked", "command", (cell,), most=most)
    assert (aim.figure(tables), aim.reached(tables)) == (figure, reached)


def test_the_page_has_the_table_that_its_records_give() -> None:
    page = report.RECORD.read_text()
    said = page.partition(aims.BEGIN)[2].partition(aims.END)[0].strip()
    assert said == aims.table(page), "aims.write(report.RECORD) writes it anew"


def test_every_aim_has_a_figure_and_a_command_that_there_is() -> None:
    tables = aims.tables_of(report.RECORD.read_text())
    assert [aim.what for aim in AIMS if aim.reached(tables) == "not measured"] == []
    measures = {*MEASURES, LIMITS, TENANTS, INBOX, SCALE}
    for aim in AIMS:
        assert set(re.findall(r"-m benchmarks (\w+)", aim.command)) <= measures
        for file in re.findall(r"tests/[\w/]+\.py", aim.command):
            assert (ROOT / file).exists()


def test_what_is_recorded_anew_is_in_the_table_at_once(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text(f"# Results\n\n{aims.BEGIN}\n\n{aims.END}\n")
    kept = "### A small tenant behind a large one\n\n| | five conversations of B took, median |\n| --- | ---: |\n"
    report.record("tenants", {}, f"{kept}| behind 300 of A, both with `tenant=` | 12 s |", path=page)
    [row] = [line for line in page.read_text().splitlines() if "9 to 11" in line]
    assert row.endswith("| 12 | **no** |")
