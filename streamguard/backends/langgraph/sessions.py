"""`langgraph.session`: a thread of a graph, run on from its last checkpoint after a failure.

What a graph is given depends on where its thread stands: a prompt is new input, an answer to its
interrupt, or nothing at all where a run was left in the middle. The one module of this backend that
knows sessions; imported when one is made.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from importlib import import_module
from typing import Any

from streamguard._base.calling import checked
from streamguard.backends._fields import Fields, fields_of
from streamguard.errors import ConfigError
from streamguard.sessions.points import Connection, ResumePoint
from streamguard.sessions.session import Session
from streamguard.sessions.session import session as opened_by

# A tool that runs anew after a resume is told of by its task alone.
STREAM_MODE = ["updates", "tasks"]


def _as_user_message(prompt: str) -> dict[str, Any]:
    return {"messages": [("user", prompt)]}


@checked
def session(
    graph: Any,
    config: Fields,
    /,
    *,
    prompt: str | None = None,
    inputs: Callable[[str], Any] = _as_user_message,
    **options: Any,
) -> Session[Any]:
    """A thread of a graph that outlives its runs: pipe it through operators.

        chat = langgraph.session(graph, {"configurable": {"thread_id": "7"}}, prompt="Fix it")
        async with chat | idle_guard(180) | reconnecting_resume() as messages: ...

    A run that hangs is cancelled, and the graph runs on from its last checkpoint: the nodes that
    were under way begin anew, those that had ended do not. A prompt that comes while the thread
    waits at an `interrupt()` is the answer to it.

    Args:
        graph: A compiled graph with a checkpointer.
        config: As for `graph.astream`; names the `thread_id`.
        prompt: What is asked first.
        inputs: What a prompt is as the graph's input; a user's message unless told otherwise.
        options: All else for `graph.astream`: `context=`, `subgraphs=`, and `stream_mode=`, which
            is `["updates", "tasks"]` unless told otherwise.
    """
    thread = fields_of(config.get("configurable")).get("thread_id")
    if thread in (None, ""):
        raise ConfigError(
            f"langgraph.session(graph, {config!r}): a run is resumed by its thread, so name "
            'one: config={"configurable": {"thread_id": "issue-7"}}'
        )
    if getattr(graph, "checkpointer", None) in (None, False):
        raise ConfigError(
            "langgraph.session(graph): the graph keeps no checkpoints, so no run of it can be "
            "resumed. Write builder.compile(checkpointer=...), or guard its stream alone: "
            "graph.astream(...) | idle_guard(180)"
        )
    options = {"stream_mode": STREAM_MODE, **options}
    asked: Any = None  # by the present turn

    @asynccontextmanager
    async def opened(point: ResumePoint) -> AsyncGenerator[Connection[Any], None]:
        # There is nothing to connect to; what differs is what the first run is given.
        is_another_attempt = point.reason is not None

        async def turn(prompt: str) -> AsyncGenerator[Any, None]:
            nonlocal asked, is_another_attempt
            state = await graph.aget_state(config)
            is_interrupted = any(task.interrupts for task in state.tasks)
            if is_another_attempt:
                is_another_attempt = False
                # None goes on with the tasks that are due; without any the input never came through.
                given = None if state.next and not is_interrupted else asked
            elif is_interrupted:
                types: Any = import_module("langgraph.types")
                given = asked = types.Command(resume=prompt)
            else:
                given = asked = inputs(prompt)
            # `async for` alone would leave the run to the collector.
            async with aclosing(graph.astream(given, config, **options)) as chunks:
                async for chunk in chunks:
                    yield chunk

        yield Connection(turn)

    return opened_by(opened, prompt=prompt, point=ResumePoint(token=str(thread)))
