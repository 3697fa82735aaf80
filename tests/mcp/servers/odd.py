"""An MCP server in plain Python whose list of tools and whose answers are odd.

Speaks the handshake of 2025 over stdin and stdout. ``TOOLS`` is the list as JSON, ``CURSOR`` the
cursor that each page names as the next. A tool's name says what its answer is like.
"""

import json
import os
import sys

TOOLS = json.loads(os.environ["TOOLS"])
CURSOR = os.environ.get("CURSOR")
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "serverInfo": {"name": "odd", "version": "1"},
}


def send(data):
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.flush()


def answer(number, result):
    send(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode())


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def call(number, name, line):
    match name:
        case "binary":
            send(b"\xff\xfe progress")
            answer(number, text("after it"))
        case "latin1":
            form = {"jsonrpc": "2.0", "id": number, "result": text("café")}
            send(json.dumps(form, ensure_ascii=False).encode("latin-1"))
        case "surrogate":
            answer(number, text("a\ud800b"))
        case "null":
            answer(number, None)
        case "deep":
            nested = "[" * 5000 + "]" * 5000
            head = f'{{"jsonrpc": "2.0", "id": {json.dumps(number)}, "result": '
            send(f"{head}{nested}}}".encode())
        case "echoed":
            send(line.strip().encode() + b" <- got this")
            answer(number, text("after the echo"))
        case "deaf":
            sys.stdin.read()
        case _:
            answer(number, text(f"{name} from {os.getpid()}"))


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        number = message["id"]
        match message["method"]:
            case "initialize":
                answer(number, HELLO)
            case "tools/list":
                answer(number, {"tools": TOOLS, **({"nextCursor": CURSOR} if CURSOR else {})})
            case "tools/call":
                call(number, message["params"]["name"], line)
            case method:
                error = {"code": -32601, "message": f"there is no method {method}"}
                send(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode())


main()
