"""Removes credentials from texts that people read (docs/wire-contract.md#secrets-in-results)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

REDACTED = "[redacted]"
MIN_SECRET = 8  # bytes; shorter texts occur in ordinary words
MIN_WORD = 24  # bytes of a secret word in a longer text, such as a token in a kubeconfig

_SPACE = r"[\t\n\f\r ]"
# A name of a secret, and its value, for example client_secret=x and "password": "x".
_NAMED = (
    r"(?i)((?:\b|[a-z0-9_-])(pass(?:word|wd|phrase)|\bpass|pwd|secret|token|authorization|api[_-]?key|access[_-]?key|"
    rf"private[_-]?key|kubeconfig|signature|\bsig)\\?[\"']?{_SPACE}*[:=]{_SPACE}*)"
    r"(\[redacted\]|\"[^\"]*\"?|'[^']*'?|[^\t\n\f\r ]+)")
_RANDOM = re.compile(r"[^-_]{40,}|(?=.*[A-Z])(?=.*[a-z])(?=.*[0-9]).{20,}", re.ASCII)
# A word as in "fetch the token: uaa: status 401", and the name of a step.
_PROSE = re.compile(r"(?:[A-Z]?[a-z]{1,15}[:,]?|[A-Z][A-Za-z]{0,20}(?:_[A-Z][A-Za-z]{0,20}){1,5})", re.ASCII)
_WORDS = re.compile(r" +[\"'(\[`]*[^\W\d_]")  # what follows such a word
_NO_CREDENTIAL = re.compile(r"(?i)(?:auth|authentication|authorization|tokens?|credentials|realm|is|was|of|and|or)[.=]*")


def _describes(m: re.Match[str]) -> bool:
    """Reports whether a match of _NAMED is an error about a secret, as in "fetch the token: status 401"."""
    is_password = m[2].lower() == "pwd" or m[2].lower().startswith("pass")
    is_prose = m[1].endswith(": ") and _PROSE.fullmatch(m[3])
    return bool(is_prose and not is_password and _WORDS.match(m.string, m.end()))


def _is_random(m: re.Match[str]) -> bool:
    """Reports whether a part of a long run looks random. Paths and names consist of short or simple parts, and a checksum is no secret."""
    is_digest = m.string.endswith(("sha256:", "sha512:"), 0, m.start())
    return not is_digest and any(_RANDOM.fullmatch(part) for part in m[0].rstrip("=").split("/"))


# What looks like a credential, and by what it is replaced. A password in an address may contain an unescaped @.
_RULES: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [(re.compile(pattern, re.ASCII), by) for pattern, by in (
    (r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", lambda m: REDACTED),
    (r"([a-zA-Z][a-zA-Z0-9+.-]{0,30}://)[^\t\n\f\r /?#\"'\\]+@", lambda m: f"{m[1]}{REDACTED}@"),
    (rf"(?i)\b(bearer|basic){_SPACE}+([A-Za-z0-9._~+/=-]+)", lambda m: m[0] if _NO_CREDENTIAL.fullmatch(m[2]) else f"{m[1]} {REDACTED}"),
    (_NAMED, lambda m: m[0] if _describes(m) else m[1] + REDACTED),
    (r"\beyJ[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*){1,4}", lambda m: REDACTED),
    (r"[A-Za-z0-9+/_-]{40,}={0,2}", lambda m: REDACTED if _is_random(m) else m[0]),
)]


def mask_text(text: str) -> str:
    """Returns a text without passwords and tokens with their usual names, authorization headers, keys and long random texts."""
    for pattern, by in _RULES:
        text = pattern.sub(by, text)
    return text


class Secrets:
    """The secrets that a step receives."""

    def __init__(self) -> None:
        self._known: list[str] = []

    def learn(self, value: Any) -> None:
        """Records the secrets in a JSON value, or in a text that may be JSON."""
        decoded = value
        with suppress(ValueError):  # otherwise the text itself is the secret
            decoded = json.loads(value) if isinstance(value, str) else value
        for text in _texts(str(value) if isinstance(decoded, (int, float)) else decoded):  # a number may be a PIN
            words = [word for word in re.split(r"[ \t\r\n\"',]+", text) if word != text and len(word.encode()) >= MIN_WORD]
            for secret in [text.strip(), *words]:
                is_address = "://" in secret and "@" not in secret  # errors need addresses
                if len(secret.encode()) >= MIN_SECRET and not is_address and not secret.endswith(":"):
                    self._known.append(secret)
        self._known.sort(key=len, reverse=True)  # a secret may contain another one

    def redact(self, text: Any) -> str:
        """Removes secrets and credentials from a text, also the beginning of a secret where the text was cut. Other values become texts."""
        text = str(text)
        for secret in self._known:
            text = text.replace(secret, REDACTED)
            for n in range(min(len(secret), len(text) - 3) if text.endswith("...") else 0, MIN_SECRET - 1, -1):
                if text.endswith(secret[:n], 0, len(text) - 3):
                    text = text[:-3 - n] + REDACTED
                    break
        return mask_text(text)

    def are_in(self, value: Any) -> bool:
        """Reports whether a JSON value contains a secret."""
        return any(secret in text for text in _texts(value) for secret in self._known)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _texts(part)]
