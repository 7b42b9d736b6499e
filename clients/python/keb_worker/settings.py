"""The settings of a worker from its environment (docs/wire-contract.md#configuration)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .memory import Keyring

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)"


class SettingError(ValueError):
    """A setting that is not valid. It names the variable, and not its value."""


class Settings:
    """The environment of a worker. For each variable X, X_FILE may name a file with the value."""

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        self._env = env
        self.urls = re.split(" *, *", self._text("KEB_NATS_URL", "nats://127.0.0.1:4222"))
        self.user, self.password = self._text("KEB_NATS_USER"), self._text("KEB_NATS_PASSWORD")
        self.ca, self.cert, self.key = (env.get(f"KEB_NATS_{name}_FILE", "") for name in ("CA", "CERT", "KEY"))
        if bool(self.cert) != bool(self.key):
            raise SettingError("KEB_NATS_CERT_FILE and KEB_NATS_KEY_FILE: set both, or neither")
        self.tls_first = self._text("KEB_NATS_TLS_FIRST", "false", "true|false", "true or false") == "true"
        self.concurrency = int(self._text("KEB_WORKER_CONCURRENCY", "0", r"\d{1,4}|10000", "a whole number up to 10000")) or 32
        self.rate_limit = float(self._text("KEB_WORKER_RATE_LIMIT", "0", r"\d{1,9}(\.\d+)?", "a number of steps per second"))
        self.ramped = self._text("KEB_WORKER_RAMPED", "false", "true|false", "true or false") == "true"
        drain = self._text("KEB_WORKER_DRAIN_TIMEOUT", "0", rf"\+?({_PART})+|0", "a time such as 20s, 1.5s or 1m30s")
        self.drain_timeout = sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, drain)) or 20.0
        self.metrics_address = self._text("KEB_METRICS_ADDR", "", r"(.*:\d{1,5})?", "an address such as :9090")
        if int(self.metrics_address.rpartition(":")[2] or 0) > 65_535:
            raise SettingError("KEB_METRICS_ADDR: want a port up to 65535")
        self.metrics_tls = [env.get(f"KEB_METRICS_TLS_{name}_FILE", "") for name in ("CERT", "KEY", "CLIENT_CA")]
        self.log_level = self._text("KEB_LOG_LEVEL", "info", "debug|info|warn|error", "debug, info, warn or error")
        self.log_format = self._text("KEB_LOG_FORMAT", "text" if sys.stderr.isatty() else "json", "json|text", "json or text")

    def _text(self, name: str, default: str = "", form: str = "(?s).*", wanted: str = "") -> str:
        value, file = self._env.get(name, ""), self._env.get(f"{name}_FILE", "")
        if value and file:
            raise SettingError(f"{name} and {name}_FILE are both set: want one of them")
        try:
            if file:
                with open(file, encoding="utf-8") as f:
                    value = f.read().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as e:
            raise SettingError(f"{name}_FILE: {getattr(e, 'strerror', 'the file is not UTF-8')}") from None
        if not re.fullmatch(form, value or default, re.ASCII):
            raise SettingError(f"{name}: want {wanted}")
        return value or default

    def keys(self) -> Keyring | None:
        """Returns the key ring of the stage memory, or None without one."""
        from .memory import Keyring

        try:
            return Keyring(text) if (text := self._text("KEB_STAGE_KEYS").strip()) else None
        except ValueError as e:
            raise SettingError(f"KEB_STAGE_KEYS: {e}") from None
