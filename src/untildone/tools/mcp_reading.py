"""What a server sends, mended where that is possible, before the SDK's client has it.

A message that the SDK cannot read is passed over there, so whoever waits for it waits until the
time limit; and one tool that does not fit hides all others. Here each costs what it has to.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Self, cast

_log = logging.getLogger("untildone")

_HEAD: Final = 500
_ID: Final = re.compile(r'"id"\s*:\s*(\d{1,15}|"[^"\\]{1,200}")')
_ANSWER: Final = re.compile(r'\s*\{.*"(?:result|error)"\s*:', re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_UNREADABLE: Final = "the MCP server's answer cannot be read: it is no message of the protocol"


@asynccontextmanager
async def mended(
    transport: AbstractAsyncContextManager[tuple[Any, Any]], label: str
) -> AsyncGenerator[tuple[Any, Any]]:
    """A transport of the SDK whose answers reach the call that waits for them.

    Args:
        transport: Gives a stream to read and one to write.
        label: How warnings name the server.
    """
    async with transport as (read, write):
        yield _Mending(read, label), write


class _Mending:
    """A stream of what a server sends, as the SDK's client reads it."""

    def __init__(self, inner: Any, label: str) -> None:
        self._inner = inner
        self._label = label
        self._version = ""

    @property
    def last_context(self) -> Any:
        """Of the message read last, as the SDK wants it."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        """The next message, or what went wrong with it."""
        return self._mended(await self._inner.receive())

    async def aclose(self) -> None:
        """Closes the stream."""
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._mended(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> bool | None:
        return await self._inner.__aexit__(*exc_info)

    def _mended(self, item: Any) -> Any:
        if isinstance(item, Exception):
            return _answer_in(item) or item
        result = getattr(item.message, "result", None)
        if isinstance(result, dict):
            known = cast("dict[str, Any]", result)
            self._version = str(known.get("protocolVersion") or self._version)
            if isinstance(known.get("tools"), list):
                known["tools"] = self._usable(known)
        return item

    def _usable(self, page: Mapping[str, Any]) -> list[Any]:
        """The tools of a page that the SDK can take, all of them where that is so."""
        if self._problem(page) is None:
            return page["tools"]
        tools: list[Any] = []
        for tool in page["tools"]:
            problem = self._problem({**page, "tools": [tool]})
            if problem is None:
                tools.append(tool)
                continue
            name = cast("dict[str, Any]", tool).get("name") if isinstance(tool, dict) else tool
            _log.warning(
                "the MCP server %s has a tool that cannot be used and is left out: %.80r (%s)",
                self._label,
                name,
                problem,
            )
        return tools

    def _problem(self, page: Mapping[str, Any]) -> str | None:
        """What keeps the SDK from taking a page, as the version spoken wants it; None if nothing.

        The version that is spoken is known where a handshake named it.
        """
        from mcp_types import ListToolsResult
        from mcp_types.methods import validate_server_result
        from pydantic import ValidationError

        try:
            if self._version:
                validate_server_result("tools/list", self._version, page)
            ListToolsResult.model_validate(page, by_name=False)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            return f"{'.'.join(str(part) for part in first['loc'][2:])}: {first['msg']}"
        except (KeyError, ValueError):  # a version that the SDK says nothing of
            return None
        return None


def _answer_in(error: Exception) -> Any:
    """The answer in a message that the SDK could not read; where it makes no sense, an error.

    None where it is none: a server may print what it likes.
    """
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return None
    inputs = [each["input"] for each in error.errors(include_url=False)]
    text = inputs[0]
    if isinstance(text, str | bytes):
        return _answer_in_text(text if isinstance(text, str) else text.decode("utf-8", "replace"))
    forms = (cast("dict[str, Any]", each) for each in inputs if isinstance(each, dict))
    form = next((each for each in forms if "jsonrpc" in each), None)
    if form is None or "method" in form or not ({"result", "error"} & form.keys()):
        return None
    return _refusal(form.get("id"))


def _answer_in_text(line: str) -> Any:
    """Half of a surrogate pair is replaced; what is nested too deep, or broken, is refused."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter
    from pydantic import ValidationError

    try:
        clean = _SURROGATE.sub("\ufffd", json.dumps(json.loads(line), ensure_ascii=False))
        return SessionMessage(jsonrpc_message_adapter.validate_json(clean, by_name=False))
    except (ValueError, RecursionError, ValidationError):
        head = line[:_HEAD]
        number = _ID.search(head)
        if number is None or '"method"' in head or not _ANSWER.match(head):
            return None
        return _refusal(json.loads(number[1]))


def _refusal(number: object) -> Any:
    """An error as the answer to the request of this number."""
    from mcp.shared.message import SessionMessage
    from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError

    if isinstance(number, bool) or not isinstance(number, int | str):
        return None
    error = ErrorData(code=PARSE_ERROR, message=_UNREADABLE)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=error))
