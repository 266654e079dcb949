"""Asks the server: one HTTP call, and whatever becomes of it as a value.

Floor 3, I/O.
"""

import asyncio
from typing import Final

import aiohttp
import orjson

from backends.external.questions import Answered, Question, Reply, Silent
from backends.http_server import HEAD_MAX_BYTES

BODY_MAX_BYTES: Final = 4 << 20  # of an answer that is read: metrics of many models are long


class Asker:
    """Its connections are its own: the proxy's never wait for them, nor they for the proxy's."""

    def __init__(self, key: str) -> None:
        fields = {"Authorization": f"Bearer {key}"} if key else {}
        self._fields = {"User-Agent": "sluicegate-agent", **fields}
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, question: Question, timeout_s: float) -> Reply:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # A connection of its own each time: what is asked is whether it can be reached.
                connector=aiohttp.TCPConnector(force_close=True),
                headers=self._fields,
                cookie_jar=aiohttp.DummyCookieJar(),
                max_line_size=HEAD_MAX_BYTES,
                max_field_size=HEAD_MAX_BYTES,
            )
        document = question.document
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    question.method,
                    question.url,
                    data=None if document is None else orjson.dumps(document),
                    headers={} if document is None else {"Content-Type": "application/json"},
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None),
                ) as response,
            ):
                return Answered(response.status, await _body(response))
        except TimeoutError:
            return Silent(f"no answer within {timeout_s:g} s", slow=True)
        except aiohttp.ClientConnectorError as exc:
            if isinstance(exc.os_error, ConnectionRefusedError):
                return Silent("nothing listens there")
            return Silent(exc.os_error.strerror or str(exc))
        except aiohttp.ClientResponseError as exc:
            return Silent(f"what answers there speaks no HTTP: {exc.message}")
        except (aiohttp.ClientError, OSError) as exc:
            return Silent(f"{type(exc).__name__}: {exc}")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """As much of it as is looked at."""
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size >= BODY_MAX_BYTES:
            break
    return b"".join(parts)
