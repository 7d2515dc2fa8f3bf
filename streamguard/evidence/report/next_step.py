"""What a person does next about a session that is in trouble, with the lines that do it.

Taken from what was recorded and from nothing else: whether the backend is gone, whether its session has a
name, and what was done in it. Safety is decided as `resuming` decides it: nothing goes on while the backend
may be alive, and what tools did without a session is not done a second time.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamguard.backends.facts import FACTS
from streamguard.evidence.report.folder import Json, as_dict, as_list
from streamguard.evidence.report.wording import several

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamguard.evidence.report.folder import RecordedSession

_PROMPT: Final = "Continue."
# What can be a session's name and no option.
_TOKEN: Final = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9._:-]{0,255}", re.ASCII)
_SEE_FIRST: Final = "First see that the backend is gone: two programs in one session corrupt it."
_CODE: Final = """\
from streamguard import plan_resume, resume_from, session

plan = plan_resume({folder!r}, {flow!r})
chat = session(your_open, point=resume_from(plan{sure})) | your_guard"""
_SURE: Final = ", resume_after_unconfirmed_teardown=True"


@dataclass(frozen=True, slots=True)
class NextStep:
    """A sentence, and what can be pasted for it: into a shell, or into a program (`is_code`)."""

    says: str
    lines: str = ""
    is_code: bool = False


def after_a_timeout(
    session: RecordedSession, receipt: Json, *, may_live: bool, planned: str | None
) -> list[NextStep]:
    """What to do about a session that a limit has ended. `planned`: the run in which `plan_resume` finds it."""
    steps: list[NextStep] = []
    context = as_dict(receipt.get("context_for_resume"))
    if may_live:
        steps.append(NextStep(_SEE_FIRST, _look_at(_may_live(session, receipt))))
    if not receipt:
        return steps
    token, tools = context.get("session_token"), context.get("tools_run")
    if not isinstance(token, str) or not token:
        steps.append(NextStep(_from_the_start(tools, _is_of_a_command(session))))
        return steps
    then = "Then go on" if steps else "Go on"
    if command := _resuming(context, token):
        steps.append(NextStep(f"{then} with the session where it was, in a shell:", command))
    if planned is not None and not _is_of_a_command(session):
        code = _CODE.format(
            folder=planned,
            flow=str(receipt.get("flow_key", "")),
            sure=_SURE if may_live else "",
        )
        how = "Or in Python:" if command else f"{then} with the session where it was, in Python:"
        steps.append(NextStep(how, code, is_code=True))
    elif not command:
        steps.append(NextStep(f"{then} with the session {token}, by the means of its backend."))
    return steps


def where_the_record_ends(session: RecordedSession) -> list[NextStep]:
    """What to do about a session of which nobody knows whether it goes on."""
    look = _look_at([session.writer.pid, *_adopted(session)])
    return [NextStep("See whether its program still runs:", look)] if look else []


def _from_the_start(tools: object, is_of_a_command: bool) -> str:
    if isinstance(tools, int) and tools > 0:
        return (
            f"It cannot be resumed: its session has no name, and {several(tools, 'tool call')} ran in it. "
            "Look at what they did before you start it again."
        )
    what = "Run the command again" if is_of_a_command else "Start it again"
    return f"{what}: there is no session to resume, and no tool call was seen."


def _may_live(session: RecordedSession, receipt: Json) -> list[object]:
    told = as_dict(receipt.get("teardown"))
    torn = session.marked("TornDown")
    survivors = as_list(told.get("survivors"))
    if not survivors and torn:
        survivors = as_list(torn[-1].facts.get("survivors"))
    return survivors or [told.get("pid"), *_adopted(session)]


def _adopted(session: RecordedSession) -> list[object]:
    """The backend's process, as far as it was known."""
    return [mark.facts.get("pid") for mark in session.marked("ProcessAdopted")[-1:]]


def _look_at(pids: Iterable[object]) -> str:
    known = dict.fromkeys(str(pid) for pid in pids if isinstance(pid, int) and pid > 0)
    return f"ps -o pid,stat,etime,args -p {','.join(known)}" if known else ""


def _resuming(context: Json, token: str) -> str:
    """The backend's own command, in the folder where its session is; empty where it has none."""
    facts = FACTS.get(str(context.get("backend")))
    if facts is None or not facts.resumes or not _TOKEN.fullmatch(token):
        return ""
    words = [word.format(token=token, prompt=_PROMPT) for word in facts.resumes]
    folder = context.get("work_dir")
    if not isinstance(folder, str) or not folder.isprintable():
        return shlex.join(words)
    return f"cd {shlex.quote(folder)} && {shlex.join(words)}"


def _is_of_a_command(session: RecordedSession) -> bool:
    """Whether `streamguard run` has recorded it: there is no program of one's own to go on in."""
    writer = session.writer
    return writer.flow == "run" and writer.step.endswith(f"-{writer.pid}")
