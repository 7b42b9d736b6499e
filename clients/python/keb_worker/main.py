"""The whole main program of a worker: settings, connection, health, signals."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import ssl
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import nats
from nats.aio.client import Client
from prometheus_client import REGISTRY, exposition

from .execution import Step
from .settings import SettingError, Settings
from .wire import format_time
from .worker import Question, Worker

_KNOWN = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_REASONS = {200: "OK", 401: "Unauthorized", 404: "Not Found", 503: "Service Unavailable"}
log = logging.getLogger("keb_worker")


class _JSON(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at, level = format_time(datetime.fromtimestamp(record.created, UTC)), record.levelname.replace("WARNING", "WARN")
        line = {"time": at, "level": level, "msg": record.getMessage()} | {k: v for k, v in record.__dict__.items() if k not in _KNOWN}
        return json.dumps(line | ({"err": self.formatException(record.exc_info)} if record.exc_info else {}), default=str)


def main(name: str, version: str, steps: Iterable[Step], questions: Mapping[str, Question] = {}) -> None:
    """Runs a worker until SIGTERM or SIGINT, and ends the process."""
    try:
        settings = Settings()
        handler = logging.StreamHandler()
        handler.setFormatter(_JSON() if settings.log_format == "json" else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logging.basicConfig(level=settings.log_level.upper().replace("WARN", "WARNING"), handlers=[handler])
        asyncio.run(run(settings, Worker(name, version, steps, questions, settings, Client())))
    except (SettingError, ValueError, OSError, nats.errors.Error) as e:
        sys.exit(f"keb-worker-{name}: {e}")


async def run(settings: Settings, worker: Worker) -> None:
    """Runs a worker until a signal. A second signal ends the process at once."""
    nc, stop = worker.nc, asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: os._exit(1) if stop.is_set() else stop.set())
    server = await _serve_health(settings, worker)
    stopping, connecting = asyncio.create_task(stop.wait()), asyncio.create_task(_connect(settings, worker, stop))
    stuck: list[str] = []
    try:
        await asyncio.wait({connecting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if connecting.done():
            connecting.result()
            stuck = await worker.run(stop)
            if nc.is_closed:
                raise ConnectionError(f"the bus has closed the connection: {nc.last_error}")
            await nc.flush(2)
            await nc.close()
    finally:
        connecting.cancel()
        if server:
            server.close()
    if stuck:  # asyncio.run would wait for a task that ignores its end, and the interpreter for a thread
        print(f"keb-worker-{worker.name}: steps did not stop: {', '.join(stuck)}", file=sys.stderr, flush=True)
        os._exit(1)


async def _connect(s: Settings, worker: Worker, stop: asyncio.Event) -> None:
    """Connects, and retries for ever. Only rejected credentials and certificates are an error, and a connection that the server closes."""
    options: dict[str, Any] = {"tls_handshake_first": True} if s.tls_first else {}
    logged, logged_at = "", 0.0
    if s.user:
        options |= {"user": s.user, "password": s.password, "inbox_prefix": f"_INBOX_{s.user}"}
    if s.ca or s.cert or s.tls_first:
        options["tls"] = ssl.create_default_context(cafile=s.ca or None)

    def load_certificate() -> None:
        if s.cert:
            options["tls"].load_cert_chain(s.cert, s.key)

    async def error(e: Exception) -> None:
        nonlocal logged, logged_at
        if not worker.is_running and ("authorization" in str(e).lower() or isinstance(e, ssl.SSLError)):
            raise e
        text, now = str(e) or type(e).__name__, asyncio.get_running_loop().time()
        if text != logged or now > logged_at + 10:  # a lost connection is retried five times a second
            logged, logged_at = text, now
            log.warning("bus: %s", text)

    async def disconnected() -> None:
        load_certificate()  # the files are renewed

    async def closed() -> None:
        stop.set()

    load_certificate()
    await worker.nc.connect(
        s.urls, name=f"keb-worker-{worker.name}", max_reconnect_attempts=-1, reconnect_time_wait=0.2,  # type: ignore[arg-type]
        connect_timeout=5, ping_interval=5, error_cb=error, disconnected_cb=disconnected, closed_cb=closed,
        reconnected_cb=worker.reconnected, **options)


async def _serve_health(s: Settings, worker: Worker) -> asyncio.Server | None:
    """Serves /healthz, /readyz and /metrics."""
    host, _, port = s.metrics_address.rpartition(":")
    cert, key, client_ca = s.metrics_tls
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca or None) if cert else None
    if context:
        context.load_cert_chain(cert, key)
        context.verify_mode = ssl.CERT_OPTIONAL if client_ca else ssl.CERT_NONE

    def answer(path: str, is_known: bool) -> tuple[int, str, bytes]:
        match path:
            case "/healthz":
                return 200, "application/json", b'{"status":"ok"}'
            case "/readyz":
                body = {"status": "unavailable" if worker.problem else "ok", "checks": {"nats": worker.problem or "ok"}}
                return 503 if worker.problem else 200, "application/json", json.dumps(body).encode()
            case "/metrics" if is_known or not client_ca:
                return 200, exposition.CONTENT_TYPE_LATEST, exposition.generate_latest(REGISTRY)
            case "/metrics":
                return 401, "text/plain", b"a client certificate is needed\n"
        return 404, "text/plain", b"not found\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode(errors="replace").partition("?")[0]
                status, kind, body = answer(path, bool(writer.get_extra_info("peercert")))
                head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(serve, host.strip("[]") or None, int(port), ssl=context) if port else None
