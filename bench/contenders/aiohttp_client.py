"""Plain aiohttp with one session: the client that untildone stands on, used by hand."""

import sys

import aiohttp

import hand_client
import measure_client

_sessions: list[aiohttp.ClientSession] = []


async def ask(base_url: str, body: bytes) -> hand_client.Message:
    """Send a request and read the reply, line by line as it comes."""
    if not _sessions:
        _sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
    headers = {"Content-Type": "application/json"}
    url = f"{base_url}/chat/completions"
    reply, rest = hand_client.Reply(), b""
    async with _sessions[0].post(url, data=body, headers=headers) as response:
        response.raise_for_status()
        async for data in response.content.iter_any():
            *lines, rest = (rest + data).split(b"\n")
            reply.add(lines)
    return reply.message()


def stream(base_url: str) -> measure_client.Job:
    body = hand_client.body_of(hand_client.start())

    async def job() -> str:
        return (await ask(base_url, body))["content"]

    return job


def loop(base_url: str) -> measure_client.Job:
    async def model(history: list[hand_client.Message]) -> hand_client.Message:
        return await ask(base_url, hand_client.body_of(history, tools=hand_client.TOOLS))

    async def job() -> str:
        return await hand_client.turn_loop(model)

    return job


async def aclose() -> None:
    for session in _sessions:
        await session.close()


if __name__ == "__main__":
    measure_client.main(sys.modules[__name__])
