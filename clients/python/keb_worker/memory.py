"""The stage memory: sealed values in the bucket keb_stage of the bus (docs/wire-contract.md#stage-memory)."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from .operation import NoAnswer

_NONCE = 12
_SUBJECTS = "$KV.keb_stage."
_READ = "$JS.API.DIRECT.GET.KV_keb_stage"
_INFO = "$JS.API.STREAM.INFO.KV_keb_stage"
_MARKER = "="  # marks an attempt as used; no encoded name is equal to it
_EXISTS = (10071, 10164)  # the error codes of a marker that is there, on one server and in a cluster
_MISSING = 10.0  # seconds to wait for the bucket, which the orchestrator creates again after a restart of the bus, or for a replica
_NO_RESPONDERS = "503"  # the status if nothing subscribes to a subject
_LAG = 0.05  # seconds before a replica that lags is read again
_MAX_KNOWN = 10_000
_marked: set[str] = set()  # attempts whose marker this process has seen: to write one again would hide a loss


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    """Decodes base64 of either alphabet, without padding; empty if it is none."""
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4))
    except ValueError:
        return b""


class Keyring:
    """The keys "id1:base64key,id2:base64key" for AES-256-GCM. The first one seals, and all open. Neither errors nor repr contain a key."""

    def __init__(self, text: str) -> None:
        self._keys: dict[str, AESGCM] = {}
        for number, entry in enumerate(text.split(","), 1):
            match = re.fullmatch(r"([A-Za-z0-9_-]{1,64}):([A-Za-z0-9+/]*|[A-Za-z0-9_-]*)=*", entry.strip())
            if not match or len(key := _decode(match[2])) != 32:
                raise ValueError(f'key {number}: want "<id>:<base64 of 32 bytes>", with an id of letters, digits, hyphens and underscores')
            if match[1] in self._keys:
                raise ValueError(f"key {number}: the id {match[1]!r} is duplicated")
            self._keys[match[1]] = AESGCM(key)

    @property
    def ids(self) -> list[str]:
        return list(self._keys)

    def seal(self, plain: bytes, associated: str, nonce: bytes = b"") -> str:
        """Encrypts a value and binds it to associated. A nonce is only for tests."""
        prefix, nonce = f"v1.{self.ids[0]}.", nonce or os.urandom(_NONCE)
        return prefix + _encode(nonce + self._keys[self.ids[0]].encrypt(nonce, plain, (prefix + associated).encode()))

    def open(self, sealed: str, associated: str) -> bytes:
        """Decrypts a sealed value, or raises ValueError: its key is unknown, it is damaged, or it belongs to another owner."""
        match = re.fullmatch(r"v1\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]*)", sealed)
        key_id, text = match.groups() if match else ("", "")
        if match and key_id not in self._keys:
            raise ValueError(f"the value is sealed with the unknown key {key_id!r}")
        raw = _decode(text)
        try:
            if _encode(raw) != text or len(raw) < _NONCE:
                raise ValueError("another text of the same bytes")
            return self._keys[key_id].decrypt(raw[:_NONCE], raw[_NONCE:], f"v1.{key_id}.{associated}".encode())
        except (ValueError, InvalidTag):
            raise ValueError("the sealed value is damaged or belongs to another owner") from None


def encode_key(name: str) -> str:
    """Encodes a text as one token of a key."""
    return re.sub(rb"[^A-Za-z0-9_-]", lambda m: b"=%02X" % m[0][0], name.encode()).decode()


def decode_key(token: str) -> str:
    return re.sub(rb"=([0-9A-F]{2})", lambda m: bytes([int(m[1], 16)]), token.encode()).decode(errors="replace")


def _status(msg: Any) -> Any:
    return (msg.headers or {}).get("Status")


def _is_end(msg: Any) -> bool:
    """Reports whether an answer says that there is no value, or no other one. Other statuses are errors."""
    status = _status(msg)
    if status not in (None, "204", "404"):
        raise OSError(f"the bus answers {status} {msg.headers.get('Description', '')}")
    return status is not None


def stage_prefix(operation_id: str, stage: str, attempt: int) -> str:
    return f"{encode_key(operation_id)}.{encode_key(stage)}.{attempt}."


class StageMemory:
    """The memory of the stage attempt of one command. It never creates the bucket, and waits for it."""

    def __init__(self, nc: Any, keys: Keyring, command: dict[str, Any]) -> None:
        self._nc, self._keys = nc, keys
        self._prefix = stage_prefix(command["operation"]["id"], command["stage"], command["stageAttempt"])

    async def put(self, name: str, value: bytes) -> None:
        if self._prefix not in _marked:
            await self._store(self._prefix + _MARKER, b"", {"Nats-Expected-Last-Subject-Sequence": "0"})
            self._know()
        key = self._prefix + encode_key(name)
        await self._store(key, self._keys.seal(value, key).encode(), {})

    def _know(self) -> None:
        if len(_marked) > _MAX_KNOWN:
            _marked.clear()
        _marked.add(self._prefix)

    async def _store(self, key: str, data: bytes, headers: dict[str, str]) -> None:
        error = json.loads((await self._request(_SUBJECTS + key, data, headers)).data).get("error")
        if error and error.get("err_code") not in _EXISTS:
            raise OSError(f"the bus refuses a value: {error.get('description')}")

    async def read(self, name: str) -> bytes | None:
        key = self._prefix + encode_key(name)
        msg = await self._find(key)
        return self._open(msg, key) if msg else None

    async def is_lost(self) -> bool:
        marker = await self._find(self._prefix + _MARKER)
        if marker:
            self._know()
        return marker is None

    async def list(self, prefix: str) -> dict[str, bytes]:
        """Reads all values with one request, and returns those whose names have the prefix."""
        async with asyncio.timeout(_MISSING):
            while (found := await self._list()) is None or len(found) < await self._count(f"{self._prefix}*"):
                await asyncio.sleep(_LAG)
        return {name: value for name, value in found.items() if name.startswith(prefix) and value is not None}

    async def _find(self, key: str) -> Any:
        """Returns the message of a key, or None. Any replica of the bucket answers, and one that lags does not have the latest values."""
        async with asyncio.timeout(_MISSING):
            while True:
                msg = await self._request(f"{_READ}.{_SUBJECTS}{key}")
                if not _is_end(msg):
                    return msg
                if not await self._count(key):
                    return None
                await asyncio.sleep(_LAG)

    async def _count(self, keys: str) -> int:
        """Returns the number of keys that match, as the leader of the bucket has them."""
        info = json.loads((await self._request(_INFO, json.dumps({"subjects_filter": _SUBJECTS + keys}).encode())).data)
        if error := info.get("error"):
            raise OSError(f"the bus does not describe the stage memory: {error.get('description')}")
        return len(info["state"].get("subjects") or {})

    async def _list(self) -> dict[str, bytes | None] | None:
        """Returns what a replica has, with None for the marker and for deleted values; or None if no replica answers."""
        inbox, values = self._nc.new_inbox(), dict[str, bytes | None]()
        sub = await self._nc.subscribe(inbox)
        try:
            await self._nc.publish(_READ, json.dumps({"multi_last": [f"{_SUBJECTS}{self._prefix}*"]}).encode(), reply=inbox)
            while _status(msg := await sub.next_msg(timeout=5)) != _NO_RESPONDERS:
                if _is_end(msg):
                    return values
                key = msg.headers["Nats-Subject"].removeprefix(_SUBJECTS)
                values[decode_key(key.removeprefix(self._prefix))] = self._open(msg, key)
            return None
        finally:
            await sub.unsubscribe()

    def _open(self, msg: Any, key: str) -> bytes | None:
        is_value = "KV-Operation" not in msg.headers and not key.endswith(_MARKER)
        return self._keys.open(msg.data.decode(), key) if is_value else None

    async def _request(self, subject: str, data: bytes = b"", headers: dict[str, str] | None = None) -> Any:
        """Sends a request. It waits for a missing bucket, and repeats a request without an answer."""
        end = asyncio.get_running_loop().time() + _MISSING
        while True:
            try:
                return await self._nc.request(subject, data, timeout=2, headers=headers or None)
            except Exception as e:
                if asyncio.get_running_loop().time() > end:
                    raise NoAnswer(f"the stage memory is not available: {e}") from None
                await asyncio.sleep(0.2)
