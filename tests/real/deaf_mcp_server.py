"""An MCP server over stdio with one tool, whose calls are never answered."""

import json
import sys

TOOL = {"name": "wait", "description": "waits", "inputSchema": {"type": "object"}}


def answer(request):
    match request["method"]:
        case "initialize":
            version = request["params"]["protocolVersion"]
            server = {"name": "deaf", "version": "1"}
            return {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": server,
            }
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return None
        case _:
            return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and (result := answer(request)) is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)  # noqa: T201 - the protocol
