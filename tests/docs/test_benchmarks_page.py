"""The figures of docs/explanation/benchmarks.md are made, not written: of the results that are saved."""

from __future__ import annotations

import sys

import pytest

from benchmarks import page, pythons, report, tables
from benchmarks.figures import Figure
from benchmarks.growth.curve import Curve
from benchmarks.tables import Run


def figure(value, **facts):
    known = {"group": "memory", "loop": "asyncio", "what": "guarded", "unit": "bytes"}
    return Figure(value=value, **{**known, **facts})


def run(python, *figures):
    return Run.of(python, {"python": f"CPython {python}.1", "date": "2030-01-31"}, figures)


def test_the_page_has_what_is_saved():
    """Made anew by `python -m benchmarks.page`, or by the run itself."""
    said = page.PAGE.read_text()
    assert page.filled(said, tables.read(report.RESULTS)) == said


def test_a_row_has_each_python_and_each_loop():
    runs = [
        run("3.11", figure(1200, hold=1300), figure(1500, loop="trio")),
        run("3.12", figure(1400, hold=1300)),
    ]
    assert tables.table("memory", runs).splitlines() == [
        "| memory | unit | must hold | asyncio | trio |",
        "|---|---|---|---:|---:|",
        "| guarded | bytes | ≤ 1,300 | 1,200 · **1,400** | 1,500 · – |",  # noqa: RUF001
    ]


def test_what_does_not_hold_is_told_with_its_limit():
    runs = [run("3.11", figure(1200, hold=1300)), run("3.12", figure(1400, hold=1300))]
    assert tables.missed(runs).splitlines() == [
        "1 of 2 figures hold.",
        "",
        "| does not hold | loop | unit | where |",
        "|---|---|---|---|",
        "| memory: guarded | asyncio | bytes | 3.12: 1,400 > 1,300 |",
    ]


def test_a_page_that_forgets_a_group_is_refused():
    runs = [run("3.11", figure(1), figure(2, group="start", loop="-"))]
    with pytest.raises(ValueError, match="start"):
        page.filled("<!-- figures: memory -->\nold\n<!-- end -->\n", runs)


def test_what_is_written_by_hand_stays():
    before = "Words.\n\n<!-- figures: memory; not measured -->\n<!-- end -->\nMore.\n"
    runs = [run("3.11", figure(1))]
    once = page.filled(before, runs)
    assert once.startswith("Words.\n")
    assert once.endswith("<!-- end -->\nMore.\n")
    assert "| guarded | bytes |  | 1 |" in once
    assert page.filled(once, runs) == once


def test_a_figure_is_read_as_it_was_saved(tmp_path):
    figures = [
        figure(1.5, hold=2.0, median=1.7),
        figure(3, what="grows", curve=((1, 2.0), (10, 3.0))),
    ]
    machine = {"python": f"CPython {tables.PYTHONS[0]}.7", "date": "2030-01-31"}
    (tmp_path / f"{tables.PYTHONS[0]}-2029-12-31.json").write_text("{}")
    report.save(machine, {}, figures, tmp_path)
    (only,) = tables.read(tmp_path)
    assert list(only.figures.values()) == figures
    assert only.machine == machine


@pytest.mark.parametrize(("power", "slope"), [(0, 1), (1, 2), (0.5, 1.5)])
def test_a_slope_is_of_the_whole(power, slope):
    """Each costs the size to that power, so all of them one power more; what is small does not count."""
    points = [(1, 7.0), *((n, 1e-6 * n**power) for n in (100, 1_000, 10_000))]
    curve = Curve(grows="holds", what="one", loop="trio", law="linear", points=tuple(points))
    assert curve.slope == pytest.approx(slope)
    assert curve.law_kept().holds == (slope < 1.1)


def test_a_ratio_is_of_the_largest_in_the_smallest():
    points = ((1, 1e-6), (100, 9e-6), (10_000, 3e-6))
    curve = Curve(grows="holds", what="one", loop="trio", law="constant", points=points)
    assert curve.ratio == pytest.approx(3)
    assert curve.law_kept().holds is False
    assert curve.law_kept().curve == ((1, 1.0), (100, pytest.approx(9)), (10_000, 3.0))
    assert curve.at_most().value == pytest.approx(3)


def test_a_python_is_found_by_asking_it():
    version = "{}.{}".format(*sys.version_info)
    assert pythons.find(version)
    with pytest.raises(pythons.NotFoundError, match=r"Python 2\.0"):
        pythons.find("2.0")
