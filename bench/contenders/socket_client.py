"""A raw socket by asyncio's streams: the least that HTTP and JSON cost in Python."""

import asyncio
import sys
import urllib.parse

import hand_client
import measure_client

_open: list[asyncio.StreamWriter] = []


class Connection:
    """One connection, opened with its first request."""

    def __init__(self, base_url: str) -> None:
        self.address = urllib.parse.urlsplit(base_url)
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, body: bytes) -> hand_client.Message:
        """Send a request and read the reply; the chunks of HTTP are whole lines here."""
        if self.streams is None:
            self.streams = await asyncio.open_connection(self.address.hostname, self.address.port)
            _open.append(self.streams[1])
        reader, writer = self.streams
        head = f"POST {self.address.path}/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await reader.readuntil(b"\r\n\r\n")
        reply, rest = hand_client.Reply(), b""
        while True:
            *lines, rest = (rest + await reader.read(65536)).split(b"\n")
            reply.add(lines)
            if not rest and lines[-2:] == [b"0\r", b"\r"]:
                return reply.message()


def stream(base_url: str) -> measure_client.Job:
    connection = Connection(base_url)
    body = hand_client.body_of(hand_client.start())

    async def job() -> str:
        return (await connection.ask(body))["content"]

    return job


def loop(base_url: str) -> measure_client.Job:
    connection = Connection(base_url)

    async def model(history: list[hand_client.Message]) -> hand_client.Message:
        return await connection.ask(hand_client.body_of(history, tools=hand_client.TOOLS))

    async def job() -> str:
        return await hand_client.turn_loop(model)

    return job


async def aclose() -> None:
    for writer in _open:
        writer.close()


if __name__ == "__main__":
    measure_client.main(sys.modules[__name__])
