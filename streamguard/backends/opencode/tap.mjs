// What `opencode run --format json` keeps to itself, as lines beside its own: that a tool has begun, that a
// model, a tool or a sub-agent is at it, that an API is asked again. A plugin: it runs in opencode's own
// process, changes nothing there, and never throws. Each line has the session's id and a type that begins with
// "tap."; what a model says in a second is one line at most. `reading.py` reads them.

const EVERY = 1000; // ms between two signs of life of the same
const LONGEST = 4000; // characters of what came of a sub-agent's tool: enough to tell it from another

// Where lines are not asked for (its terminal, its server), there is nothing to say.
function writesLines(argv) {
  const format = argv.indexOf("--format");
  return argv.includes("run") && (argv.includes("--format=json") || (format > 0 && argv[format + 1] === "json"));
}

export const Tap = async () => {
  if (!writesLines(process.argv)) return {};
  const parents = new Map(); // a sub-agent's session: the call that began it, "" until that is told
  const seen = new Set(); // sessions, and calls that run
  const said = new Map(); // when the last sign of life of each was told

  function say(type, sessionID, more) {
    const parent = parents.get(sessionID);
    const line = { type: `tap.${type}`, timestamp: Date.now(), sessionID, ...more };
    process.stdout.write(JSON.stringify(parent === undefined ? line : { ...line, parent }) + "\n");
  }

  // Calls of different sessions may have the same id; those of sub-agents are told with their session's.
  function idOf({ sessionID, callID }) {
    return parents.has(sessionID) ? `${sessionID}/${callID}` : callID;
  }

  function lives(sessionID, callID) {
    const key = callID ?? sessionID;
    const now = Date.now();
    if (now - (said.get(key) ?? 0) < EVERY) return;
    said.set(key, now);
    say("alive", sessionID, callID === undefined ? {} : { callID });
  }

  function tool(part) {
    const { sessionID, state } = part;
    const callID = idOf(part);
    if (state.status === "running") {
      const child = state.metadata?.sessionId;
      if (typeof child === "string") parents.set(child, callID);
      if (seen.has(callID)) return lives(sessionID, callID);
      seen.add(callID);
      say("tool_start", sessionID, { callID, tool: part.tool, input: state.input });
    } else if (state.status === "completed" || state.status === "error") {
      seen.delete(callID);
      said.delete(callID);
      // The others' ends are lines of opencode's own.
      if (parents.has(sessionID)) {
        const outcome = String(state.output ?? state.error ?? "").slice(0, LONGEST);
        say("tool_end", sessionID, { callID, status: state.status, outcome });
      }
    }
  }

  const HANDLERS = {
    "session.created": ({ info }) => {
      if (info.parentID) parents.set(info.id, parents.get(info.id) ?? "");
    },
    "session.status": ({ sessionID, status }) => {
      if (status.type === "retry") {
        const { attempt, message, next } = status;
        say("retry", sessionID, { attempt, message, next });
      } else if (status.type === "busy" && !seen.has(sessionID)) {
        seen.add(sessionID);
        if (!parents.has(sessionID)) say("session", sessionID, { directory: process.cwd() });
      }
    },
    "message.part.updated": ({ part }) => {
      if (part.type === "tool") tool(part);
      else if (part.type === "step-finish" && parents.has(part.sessionID)) say("step_finish", part.sessionID, { part });
    },
    "message.part.delta": ({ sessionID }) => lives(sessionID),
    "session.error": ({ sessionID, error }) => {
      if (parents.has(sessionID)) say("error", sessionID, { error });
    },
  };

  return {
    event: async ({ event }) => {
      try {
        HANDLERS[event.type]?.(event.properties);
      } catch {
        // It may be of a version that says it otherwise: then it stays unsaid.
      }
    },
  };
};
