"""Removes credentials from texts that people read (docs/wire-contract.md#secrets-in-results)."""

from __future__ import annotations

import json
import re
from typing import Any

REDACTED = "[redacted]"
MIN_SECRET = 8  # bytes; shorter texts occur in ordinary words
MIN_WORD = 24  # bytes of a secret word in a longer text, such as a token in a kubeconfig

_FLAGS = re.ASCII
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", _FLAGS)
# A password may contain an unescaped @.
_USER_INFO = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*://)[^\t\n\f\r /?#\"'\\]+@", _FLAGS)
_SCHEME = re.compile(r"\b(bearer|basic)[\t\n\f\r ]+([A-Za-z0-9._~+/=-]+)", _FLAGS | re.I)
# A name of a secret, and its value, for example client_secret=x and "password": "x".
_NAMED = re.compile(
    r"((?:\b|[a-z0-9_-])(pass(?:word|wd|phrase)|\bpass|pwd|secret|token|authorization|api[_-]?key|access[_-]?key|"
    r"private[_-]?key|kubeconfig|signature|\bsig)\\?[\"']?[\t\n\f\r ]*[:=][\t\n\f\r ]*)"
    r"(\[redacted\]|\"[^\"]*\"?|'[^']*'?|[^\t\n\f\r ]+)", _FLAGS | re.I)
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*){1,4}", _FLAGS)
_LONG_RUN = re.compile(r"[A-Za-z0-9+/_-]{40,}={0,2}", _FLAGS)
_DIGEST = re.compile(r"sha(?:256|512):\Z", _FLAGS)  # before a checksum, which is no secret
_RANDOM = re.compile(r"[^-_]{40,}|(?=.*[A-Z])(?=.*[a-z])(?=.*[0-9]).{20,}", _FLAGS)
_WORDS = re.compile(r" +[\"'(\[`]*[^\W\d_]")  # what follows such a word
# A word as in "fetch the token: uaa: status 401", and the name of a step.
_PROSE = re.compile(r"(?:[A-Z]?[a-z]{1,15}[:,]?|[A-Z][A-Za-z]{0,20}(?:_[A-Z][A-Za-z]{0,20}){1,5})", _FLAGS)
_NO_CREDENTIAL = frozenset(
    ["auth", "authentication", "authorization", "token", "tokens", "credentials", "realm", "is", "was", "of", "and", "or"])


def mask_text(text: str) -> str:
    """Returns a text without passwords and tokens with their usual names, authorization headers, keys and long random texts."""
    text = _PRIVATE_KEY.sub(REDACTED, text)
    text = _USER_INFO.sub(rf"\1{REDACTED}@", text)
    text = _SCHEME.sub(lambda m: m[0] if m[2].rstrip(".=").lower() in _NO_CREDENTIAL else f"{m[1]} {REDACTED}", text)
    text = _NAMED.sub(lambda m: m[0] if _describes(m) else m[1] + REDACTED, text)
    text = _JWT.sub(REDACTED, text)
    return _LONG_RUN.sub(lambda m: REDACTED if _is_random(m[0]) and not _DIGEST.search(m.string[:m.start()]) else m[0], text)


def _describes(m: re.Match[str]) -> bool:
    """Reports whether a match of _NAMED is an error about a secret, as in "fetch the token: status 401"."""
    is_password = m[2].lower() == "pwd" or m[2].lower().startswith("pass")
    is_prose = m[1].endswith(": ") and _PROSE.fullmatch(m[3])
    return bool(is_prose and not is_password and _WORDS.match(m.string, m.end()))


def _is_random(run: str) -> bool:
    """Reports whether a part of a long run looks random. Paths and names consist of short or simple parts."""
    return any(_RANDOM.fullmatch(part) for part in run.rstrip("=").split("/"))


class Secrets:
    """The secrets that a step receives."""

    def __init__(self) -> None:
        self._known: list[str] = []

    def learn(self, value: Any) -> None:
        """Records the secrets in a JSON value, or in a text that may be JSON."""
        for text in _texts(_decoded(value) if isinstance(value, str) else value):
            words = [word for word in re.split(r"[ \t\r\n\"',]+", text) if word != text and len(word.encode()) >= MIN_WORD]
            for secret in [text.strip(), *words]:
                is_address = "://" in secret and "@" not in secret  # errors need addresses
                if len(secret.encode()) >= MIN_SECRET and not is_address and not secret.endswith(":"):
                    self._known.append(secret)
        self._known.sort(key=len, reverse=True)  # a secret may contain another one

    def redact(self, text: str) -> str:
        """Removes secrets and credentials from a text, also the beginning of a secret where the text was cut."""
        for secret in self._known:
            text = text.replace(secret, REDACTED)
            if text.endswith("..."):
                cut = next((n for n in range(len(secret), MIN_SECRET - 1, -1) if text[:-3].endswith(secret[:n])), 0)
                text = text[:-3 - cut] + REDACTED if cut else text
        return mask_text(text)

    def are_in(self, value: Any) -> bool:
        """Reports whether a JSON value contains a secret."""
        return any(secret in text for text in _texts(value) for secret in self._known)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in _texts(part)]


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
