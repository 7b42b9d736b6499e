"""The stage memory on the bus: sealed values in the bucket keb_stage (docs/wire-contract.md#stage-memory)."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NoAnswer

from .seal import Keyring
from .wire import Command

_SUBJECTS = "$KV.keb_stage."
_READ = "$JS.API.DIRECT.GET.KV_keb_stage"
_MARKER = "="  # marks an attempt as used; no encoded name is equal to it
_EXISTS = (10071, 10164)  # the error codes of a marker that is there, on one server and in a cluster
_MAX_KNOWN = 10_000
_marked: set[str] = set()  # attempts whose marker this process has seen: to write one again would hide a loss


def encode_key(name: str) -> str:
    """Encodes a text as one token of a key."""
    return re.sub(rb"[^A-Za-z0-9_-]", lambda m: b"=%02X" % m[0][0], name.encode()).decode()


def decode_key(token: str) -> str:
    return re.sub(rb"=([0-9A-F]{2})", lambda m: bytes([int(m[1], 16)]), token.encode()).decode(errors="replace")


def stage_prefix(operation_id: str, stage: str, attempt: int) -> str:
    return f"{encode_key(operation_id)}.{encode_key(stage)}.{attempt}."


class StageMemory:
    """The memory of the stage attempt of one command. It never creates the bucket, and waits for it."""

    def __init__(self, nc: Client, keys: Keyring, command: Command) -> None:
        self._nc, self._keys = nc, keys
        self._prefix = stage_prefix(command.operation["id"], command.stage, command.stage_attempt)

    async def put(self, name: str, value: bytes) -> None:
        if self._prefix not in _marked:
            await self._store(self._prefix + _MARKER, b"", {"Nats-Expected-Last-Subject-Sequence": "0"})
            self._know()
        key = self._prefix + encode_key(name)
        await self._store(key, self._keys.seal(value, key).encode(), None)

    def _know(self) -> None:
        if len(_marked) > _MAX_KNOWN:
            _marked.clear()
        _marked.add(self._prefix)

    async def _store(self, key: str, data: bytes, headers: dict[str, str] | None) -> None:
        error = json.loads((await self._request(_SUBJECTS + key, data, headers)).data).get("error")
        if error and error.get("err_code") not in _EXISTS:
            raise OSError(f"the bus refuses a value: {error.get('description')}")

    async def read(self, name: str) -> bytes | None:
        key = self._prefix + encode_key(name)
        found = await self._last(key)
        return None if found is None else self._keys.open(found.decode(), key)

    async def is_lost(self) -> bool:
        if await self._last(self._prefix + _MARKER) is None:
            return True
        self._know()
        return False

    async def _last(self, key: str) -> bytes | None:
        answer = await self._request(f"{_READ}.{_SUBJECTS}{key}", b"", None)
        headers = answer.headers or {}
        if (status := headers.get("Status")) not in (None, "404"):
            raise OSError(f"the bus answers {status} {headers.get('Description', '')}")
        return None if status or "KV-Operation" in headers else bytes(answer.data)

    async def list(self, prefix: str) -> dict[str, bytes]:
        if (found := await self._list()) is None:
            found = await self._list()
        if found is None:
            raise OSError("the stage memory could not be read completely")
        return {name: value for name, value in found.items() if name.startswith(prefix)}

    async def _list(self) -> dict[str, bytes] | None:
        """Reads all values with one request; None if they are incomplete."""
        inbox, values = self._nc.new_inbox(), dict[str, bytes]()
        sub = await self._nc.subscribe(inbox)
        try:
            await self._nc.publish(_READ, json.dumps({"multi_last": [f"{_SUBJECTS}{self._prefix}*"]}).encode(), reply=inbox)
            while True:
                answer = await sub.next_msg(timeout=5)
                headers = answer.headers or {}
                key = headers.get("Nats-Subject", "").removeprefix(_SUBJECTS)
                match headers.get("Status"), headers.get("Description"):
                    case ("204", _) if headers.get("Nats-Num-Pending") == "0":
                        return values
                    case ("404", "No Results"):
                        return values
                    case (None, _) if key:
                        if not key.endswith(_MARKER) and "KV-Operation" not in headers:
                            values[decode_key(key.removeprefix(self._prefix))] = self._keys.open(answer.data.decode(), key)
                    case ("204" | "404", _):
                        return None
                    case (status, text):
                        raise OSError(f"the bus answers {status} {text}")
        finally:
            await sub.unsubscribe()

    async def _request(self, subject: str, data: bytes, headers: dict[str, str] | None) -> Any:
        """Sends a request. It waits for a missing bucket, and repeats a request without an answer once."""
        loop = asyncio.get_running_loop()
        end, silent = loop.time() + 10, 0
        while True:
            try:
                return await self._nc.request(subject, data, timeout=2, headers=headers)
            except NoRespondersError:
                if loop.time() > end:
                    raise OSError("the stage memory does not exist") from None
                await asyncio.sleep(0.2)
            except NoAnswer:
                if (silent := silent + 1) > 1:
                    raise OSError("the stage memory does not answer") from None
