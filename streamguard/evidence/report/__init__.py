"""A run drawn: one HTML page that needs nothing else, and an SVG for mails and tickets.

    run = read_run(Path("runs/17"))
    file = Path("report.html")
    file.write_text(page(run, file), "utf-8")

`folder` turns the folder into values; `story` says what became of each session (`states` how that is called
and counted, `tried` what was tried, `next_step` what to do now), `picture` what is to be seen of it. `page`,
`tables` and `index` write HTML, with links as in `hyperlinks`, `drawing` SVG. `fleet_story` does for a fleet's log
what `folder` and `story` do for a folder. Imported by the command line, and by nobody who records.
"""

from __future__ import annotations

from streamguard.evidence.report.drawing import drawing
from streamguard.evidence.report.fleet_story import FleetReport
from streamguard.evidence.report.folder import Run, read_run, runs_in
from streamguard.evidence.report.index import Entry, entry, index
from streamguard.evidence.report.legend import OURS
from streamguard.evidence.report.page import page

__all__ = [
    "OURS",
    "Entry",
    "FleetReport",
    "Run",
    "drawing",
    "entry",
    "index",
    "page",
    "read_run",
    "runs_in",
]
