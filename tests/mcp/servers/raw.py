"""An MCP server in plain Python that misbehaves as its tools are named: starts in no time.

Speaks the handshake of 2025 over stdin and stdout. ``MISBEHAVE`` says what goes wrong at the start:
``exit`` ends at once with words on stderr, ``mute`` answers nothing, ``stubborn`` does not end when
its stdin is closed or when it is asked to.
"""

import json
import os
import signal
import sys

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NOTHING = {"type": "object", "properties": {}}
TOOLS = ["echo", "pid", "die", "hang", "flood", "noise", "pair", "huge", "fail", "refuse", "long"]
STATE = {"held": None, "lists": 0}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(number, text, **more):
    send({"id": number, "result": {"content": [{"type": "text", "text": text}], **more}})


def listed(cursor):
    """The tools, four a page."""
    STATE["lists"] += 1
    begin = int(cursor or 0)
    page: dict = {
        "tools": [
            {
                "name": name,
                "description": f"Does {name}.",
                "inputSchema": TEXT if name in ("echo", "pair") else NOTHING,
                **({"annotations": {"readOnlyHint": True}} if name == "echo" else {}),
            }
            for name in TOOLS[begin : begin + 4]
        ]
    }
    if begin + 4 < len(TOOLS):
        page["nextCursor"] = str(begin + 4)
    return page


def call(number, name, arguments):  # noqa: C901, PLR0912  one flat case a tool
    text = arguments.get("text", "")
    match name:
        case "echo":
            answer(number, text)
        case "pid":
            answer(number, f"{os.getpid()} {STATE['lists']}")
        case "die":
            os._exit(3)
        case "hang":
            pass
        case "flood":
            for _ in range(300):
                sys.stderr.write("x" * 10_000 + "\n")
            answer(number, "after three million characters")
        case "noise":
            print("starting up ...\n{not json}\n[]", flush=True)
            answer(999, "for a call that nobody made")
            answer(number, "after noise")
        case "pair":
            held = STATE["held"]
            if held is None:
                STATE["held"] = (number, text)
            else:
                answer(number, f"answer to {text}")
                answer(held[0], f"answer to {held[1]}")
        case "huge":
            answer(number, "x" * 200_000)
        case "fail":
            answer(number, "y" * 200_000, isError=True)
        case "refuse":
            send({"id": number, "error": {"code": -32602, "message": "no such thing"}})
        case "long":
            answer(number, f"slept for {os.environ.get('NAP', 'nothing')}")


def main():
    misbehave = os.environ.get("MISBEHAVE", "")
    if misbehave == "exit":
        sys.exit("the config file is missing")
    if misbehave == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        message = json.loads(line)
        if misbehave == "mute" or "id" not in message:
            continue
        number, params = message["id"], message.get("params") or {}
        match message["method"]:
            case "initialize":
                info = {"name": "raw", "version": "1"}
                result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info}
                send({"id": number, "result": result})
            case "tools/list":
                send({"id": number, "result": listed(params.get("cursor"))})
            case "tools/call":
                call(number, params["name"], params.get("arguments") or {})
            case method:
                error = {"code": -32601, "message": f"there is no method {method}"}
                send({"id": number, "error": error})
    while misbehave == "stubborn":
        signal.pause()


main()
