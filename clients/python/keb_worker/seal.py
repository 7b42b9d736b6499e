"""Sealed values: AES-256-GCM with a key ring (docs/wire-contract.md#sealing)."""

from __future__ import annotations

import base64
import binascii
import os
import re

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NONCE = 12


class SealError(ValueError):
    """A sealed value that cannot be opened: its key is unknown, it is damaged, or it belongs to another owner."""


class Keyring:
    """The keys "id1:base64key,id2:base64key". The first one seals, and all open. Neither errors nor repr contain a key."""

    def __init__(self, text: str) -> None:
        self._keys: dict[str, AESGCM] = {}
        for number, part in enumerate(text.split(","), 1):
            key_id, colon, key = part.strip().partition(":")
            where = f"key {number}"
            if not colon or not _ID.fullmatch(key_id):
                raise ValueError(f'{where}: want "<id>:<base64 of 32 bytes>", with an id of 1 to 64 letters, digits, hyphens or underscores')
            if key_id in self._keys:
                raise ValueError(f"{where}: the id {key_id!r} is duplicated")
            self._keys[key_id] = AESGCM(_key(key.rstrip("="), f"{where} ({key_id!r})"))

    @property
    def ids(self) -> list[str]:
        return list(self._keys)

    def __repr__(self) -> str:
        return f"keyring[{','.join(self._keys)}]"

    def seal(self, plain: bytes, associated: str, nonce: bytes = b"") -> str:
        """Encrypts a value and binds it to associated. A nonce is only for tests."""
        prefix = f"v1.{next(iter(self._keys))}."
        nonce = nonce or os.urandom(_NONCE)
        sealed = nonce + self._keys[prefix[3:-1]].encrypt(nonce, plain, (prefix + associated).encode())
        return prefix + base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()

    def open(self, sealed: str, associated: str) -> bytes:
        """Decrypts a sealed value, or raises SealError."""
        version, _, rest = sealed.partition(".")
        key_id, dot, text = rest.partition(".")
        if version != "v1" or not dot or not _ID.fullmatch(key_id):
            raise SealError("the sealed value is damaged: want v1.<key id>.<base64>")
        if key_id not in self._keys:
            raise SealError(f"the value is sealed with the unknown key {key_id!r}")
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != text or len(raw) < _NONCE:
                raise ValueError("not in its shortest form")
            return self._keys[key_id].decrypt(raw[:_NONCE], raw[_NONCE:], f"v1.{key_id}.{associated}".encode())
        except (ValueError, InvalidTag):
            raise SealError("the sealed value is damaged or belongs to another owner") from None


def _key(text: str, where: str) -> bytes:
    altchars = b"-_" if re.search("[-_]", text) else b"+/"
    try:
        if altchars == b"-_" and re.search("[+/]", text):
            raise ValueError("two alphabets")
        key = base64.b64decode(text + "=" * (-len(text) % 4), altchars=altchars, validate=True)
    except (ValueError, binascii.Error):
        raise ValueError(f"{where}: the key is not base64") from None
    if len(key) != 32:
        raise ValueError(f"{where}: the key has {len(key)} bytes, want 32")
    return key
