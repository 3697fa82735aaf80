"""An MCP server made with the SDK: over stdio, or with ``http`` or ``sse`` on a free port."""

import os
import socket
import sys

from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("sdk", log_level="CRITICAL")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def words(text: str) -> list[str]:
    """Splits a text."""
    return text.split()


@server.tool()
def boom() -> str:
    """Fails."""
    raise ValueError("it does not work")


@server.tool()
def picture() -> Image:
    """Draws."""
    return Image(data=b"\x89PNG....", format="png")


@server.tool(name="die.now")
def die() -> str:
    """Ends the server in the middle of the call."""
    os._exit(3)


def main() -> None:
    if len(sys.argv) == 1:
        server.run()
        return
    import uvicorn

    app = server.sse_app() if sys.argv[1] == "sse" else server.streamable_http_app()
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()  # from here on a client is let in, however long the rest takes
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])


if __name__ == "__main__":
    main()
