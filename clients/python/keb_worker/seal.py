"""Sealed values: AES-256-GCM with a key ring (docs/wire-contract.md#sealing)."""

from __future__ import annotations

import base64
import os
import re

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_ENTRY = re.compile(r"([A-Za-z0-9_-]{1,64}):([A-Za-z0-9+/]*|[A-Za-z0-9_-]*)=*")
_SEALED = re.compile(r"v1\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]*)")
_NONCE = 12


class SealError(ValueError):
    """A sealed value that cannot be opened: its key is unknown, it is damaged, or it belongs to another owner."""


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    """Decodes base64 of either alphabet, without padding; empty if it is none."""
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4))
    except ValueError:
        return b""


class Keyring:
    """The keys "id1:base64key,id2:base64key". The first one seals, and all open. Neither errors nor repr contain a key."""

    def __init__(self, text: str) -> None:
        self._keys: dict[str, AESGCM] = {}
        for number, entry in enumerate(text.split(","), 1):
            match = _ENTRY.fullmatch(entry.strip())
            if not match or len(key := _decode(match[2])) != 32:
                raise ValueError(f'key {number}: want "<id>:<base64 of 32 bytes>", with an id of letters, digits, hyphens and underscores')
            if match[1] in self._keys:
                raise ValueError(f"key {number}: the id {match[1]!r} is duplicated")
            self._keys[match[1]] = AESGCM(key)

    @property
    def ids(self) -> list[str]:
        return list(self._keys)

    def __repr__(self) -> str:
        return f"keyring[{','.join(self._keys)}]"

    def seal(self, plain: bytes, associated: str, nonce: bytes = b"") -> str:
        """Encrypts a value and binds it to associated. A nonce is only for tests."""
        prefix, nonce = f"v1.{self.ids[0]}.", nonce or os.urandom(_NONCE)
        return prefix + _encode(nonce + self._keys[self.ids[0]].encrypt(nonce, plain, (prefix + associated).encode()))

    def open(self, sealed: str, associated: str) -> bytes:
        """Decrypts a sealed value, or raises SealError."""
        key_id, text = match.groups() if (match := _SEALED.fullmatch(sealed)) else ("", "")
        if match and key_id not in self._keys:
            raise SealError(f"the value is sealed with the unknown key {key_id!r}")
        raw = _decode(text)
        try:
            if _encode(raw) != text or len(raw) < _NONCE:
                raise ValueError("another text of the same bytes")
            return self._keys[key_id].decrypt(raw[:_NONCE], raw[_NONCE:], f"v1.{key_id}.{associated}".encode())
        except (ValueError, InvalidTag):
            raise SealError("the sealed value is damaged or belongs to another owner") from None
