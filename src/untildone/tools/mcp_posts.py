"""What is sent to a server of the SSE transport, watched.

The SDK's writer ends with the first message that does not arrive and tells nobody, so each call
under way, and each later one, would wait for its time limit. Imported by the first run with such a
server: it loads the HTTP client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2

from untildone.domain.errors import describe


class WatchedPosts(httpx2.AsyncClient):
    """A client that tells when a message could not be sent.

    Args:
        lost: Gets the reason.
        timeout_s: Most seconds until a message is taken; the answer to it comes in the stream.
        settings: Those of the client.
    """

    def __init__(self, lost: Callable[[str], None], timeout_s: float, **settings: Any) -> None:
        super().__init__(**settings)
        self._lost = lost
        self._timeout_s = timeout_s

    async def send(self, request: httpx2.Request, **settings: Any) -> httpx2.Response:
        """Sends a request; what becomes of a message is told.

        Raises:
            HTTPError: It could not be sent.
        """
        if request.method != "POST":
            return await super().send(request, **settings)
        limits = dict(request.extensions.get("timeout", {}))
        request.extensions["timeout"] = {**limits, "read": self._timeout_s}
        try:
            response = await super().send(request, **settings)
        except httpx2.TimeoutException:
            self._lost(f"it took no message within {self._timeout_s:g} s")
            raise
        except Exception as error:
            self._lost(describe(error))
            raise
        if not (response.is_success or _is_followed(response)):
            self._lost(f"HTTP {response.status_code} {response.reason_phrase}")
        return response


def _is_followed(response: httpx2.Response) -> bool:
    """Whether the SDK sends the message on: to the same server, and as the same kind of request."""
    following = response.next_request
    sent = response.request
    return (
        following is not None
        and following.method == sent.method
        and following.url.netloc == sent.url.netloc
    )
