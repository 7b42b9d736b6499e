"""Removes credentials from texts that people read (docs/wire-contract.md#secrets-in-results)."""

from __future__ import annotations

import re
from collections.abc import Callable

REDACTED = "[redacted]"

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
_DIGEST = re.compile(r"sha(?:256|512):[0-9a-f]+", _FLAGS)
# A word as in "fetch the token: uaa: status 401", and the name of a step.
_PROSE = re.compile(r"(?:[A-Z]?[a-z]{1,15}[:,]?|[A-Z][A-Za-z]{0,20}(?:_[A-Z][A-Za-z]{0,20}){1,5})", _FLAGS)
_NO_CREDENTIAL = frozenset(
    ["auth", "authentication", "authorization", "token", "tokens", "credentials", "realm", "is", "was", "of", "and", "or"])


def mask_text(text: str) -> str:
    """Returns a text without passwords and tokens with their usual names, authorization headers, keys and long random texts."""
    text = _PRIVATE_KEY.sub(REDACTED, text)
    text = _USER_INFO.sub(rf"\1{REDACTED}@", text)
    text = _SCHEME.sub(_unless(lambda m: m[2].rstrip(".=").lower() in _NO_CREDENTIAL, lambda m: f"{m[1]} {REDACTED}"), text)
    text = _NAMED.sub(_unless(_describes, lambda m: m[1] + REDACTED), text)
    if len(text.encode(errors="replace")) < 10:
        return text
    text = _JWT.sub(REDACTED, text)
    digests = [m.span() for m in _DIGEST.finditer(text)]
    return _LONG_RUN.sub(
        _unless(lambda m: not _is_random(m[0]) or any(a <= m.start() < b for a, b in digests), lambda m: REDACTED), text)


def _unless(keep: Callable[[re.Match[str]], bool], replace: Callable[[re.Match[str]], str]) -> Callable[[re.Match[str]], str]:
    return lambda m: m[0] if keep(m) else replace(m)


def _describes(m: re.Match[str]) -> bool:
    """Reports whether a match of _NAMED is an error about a secret, as in "fetch the token: status 401"."""
    name, rest = m[2].lower(), m.string[m.end():]
    if name.startswith("pass") or name == "pwd" or not m[1].endswith(": "):
        return False
    words = rest.lstrip(" ")
    if not _PROSE.fullmatch(m[3]) or len(words) == len(rest) or not words:
        return False
    first = (words + " ").lstrip("\"'([`").encode(errors="replace")[0]
    return chr(first).isalpha()


def _is_random(run: str) -> bool:
    """Reports whether a part of a long run looks random. Paths and names consist of short or simple parts."""
    for part in run.rstrip("=").split("/"):
        kinds = [re.search(kind, part) for kind in ("[A-Z]", "[a-z]", "[0-9]")]
        if len(part) >= 40 and not re.search("[-_]", part) or len(part) >= 20 and all(kinds):
            return True
    return False
