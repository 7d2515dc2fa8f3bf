"""Google's ADK: what the events of `Runner.run_async` and `run_live` say.

Reads `Event` (by its fields, ADK is never imported) and the JSON lines of its API server
(`/run_sse`). Pure and total: garbage is Progress, never an exception.

    event                               signals
    ──────────────────────────────────  ─────────────────────────────────────────────────────
    any                                 SessionOpened(invocation_id); Usage where it counts
    of the user                         nothing more: the agent has not answered yet (S0)
    text, state, artifacts              Progress
    function_call                       WorkStarted
      in a `partial` event              Progress: it comes again, with another id
      long-running                      Waiting: nobody promises an answer in this run
        adk_request_credential          … for auth, any other for a person
    function_response                   WorkFinished and WaitEnded; `error` in it: error
    a sub-agent's                       the same, with `parent` set to its branch
    error_code                          Failed
    turn_complete (run_live)            TurnEnded, unless the interaction is still in progress;
                                        no Progress, if it is all that the event says

**No event is the last of `run_async`**: `is_final_response()` is true once per agent and once per
long-running tool. The run ends with its iterator, and what fails it is raised (T10).

An event in SSE mode is told twice, partial and final, and the ids of a model that gives none are
made anew each time: an entry for the partial one could never be closed (S4). So are its counts, which are
those of the call so far: the final event's are taken. A branch names agents, and no work in flight.

May import `signals` and its helpers beside it, nothing else of the package.
"""

from __future__ import annotations

from typing import Any, cast

from streamguard.backends._fields import (
    NOT_AT_A_GLANCE,
    PROGRESS,
    Fields,
    Said,
    either,
    fields_of,
    opened,
    opened_and_progress,
    text_in,
)
from streamguard.backends._gemini_api import failure_of, parts_of, used, word_in
from streamguard.signals import Signal, TurnEnded, WaitEnded, Waiting, WorkFinished, WorkStarted

ALWAYS_ENDS_TURNS = False  # the iterator's end is the only end there is

_ASKS_FOR_CREDENTIALS = "adk_request_credential"


def read(message: Any) -> Said:
    """What one event says; None is Progress."""
    if type(message) is not dict:
        try:  # some of an answer, which goes on: whatever it has is told again
            event = message.__dict__
            is_over = event["error_code"] or event["turn_complete"]
            if event["partial"] is True and not is_over and event["author"] != "user":
                token = event["invocation_id"]
                if type(token) is str and token:
                    return opened_and_progress(token)
        except NOT_AT_A_GLANCE:
            pass
    return _read(message)  # pyright: ignore[reportUnknownArgumentType]


def _read(message: object) -> Said:
    event = fields_of(message)
    token = text_in(event.get("invocation_id") or event.get("invocationId"))
    counts = event.get("usage_metadata") or event.get("usageMetadata")
    is_told_again = counts is None or event.get("partial") is True
    counted = () if is_told_again else used(counts, event.get("id"), "call")
    done, ended = _work(event), _end(event)
    is_users = event.get("author") == "user"
    if not (counted or done or ended or token is None or is_users):
        return opened_and_progress(token)
    session = () if token is None else (opened(token),)
    if is_users:
        return (*session, *counted)
    is_mere_end = event.get("content") is None and any(isinstance(s, TurnEnded) for s in ended)
    return (*session, *counted, *(done or (() if is_mere_end else (PROGRESS,))), *ended)


def _work(event: Fields) -> list[Signal]:
    """The starts and ends of tool calls, and what is waited for, in an event's parts."""
    if event.get("partial") is True:
        return []
    said: list[Signal] = []
    for part in parts_of(event.get("content")):
        if called := part.get("function_call") or part.get("functionCall"):
            call = fields_of(called)
            if id_ := text_in(call.get("id")):
                said.append(_call(id_, call, event))
        if answered := part.get("function_response") or part.get("functionResponse"):
            answer = fields_of(answered)
            if id_ := text_in(answer.get("id")):
                response = answer.get("response")
                failed = "error" in fields_of(response)
                said += (WorkFinished(id_, failed, response), WaitEnded(id_))
    return said


def _call(id_: str, call: Fields, event: Fields) -> Signal:
    name = text_in(call.get("name")) or ""
    ids = either(event, "long_running_tool_ids")
    if isinstance(ids, set | frozenset | list | tuple) and id_ in cast("list[object]", ids):
        return Waiting(id_, "auth" if name == _ASKS_FOR_CREDENTIALS else "human")
    return WorkStarted(id_, name, parent=text_in(event.get("branch")), input=call.get("args"))


def _end(event: Fields) -> tuple[Signal, ...]:
    """What an event says of how the turn has failed, or ended."""
    failed = event.get("error_code") or event.get("errorCode")
    complete = event.get("turn_complete") or event.get("turnComplete")
    if failed is None and complete is not True:
        return ()
    code = word_in(failed)
    said = () if code is None else (failure_of(code),)
    status = word_in(either(event, "interaction_status"))
    if complete is not True or status == "IN_PROGRESS":
        return said
    is_cut = event.get("interrupted") is True
    return (*said, TurnEnded("cancelled" if is_cut else "success", "turn_complete"))
