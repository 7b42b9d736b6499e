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
from .worker import Config, Question, Worker

class _JSON(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        known = logging.makeLogRecord({}).__dict__
        extra = {k: v for k, v in record.__dict__.items() if k not in known and k not in ("message", "asctime", "taskName")}
        at, level = format_time(datetime.fromtimestamp(record.created, UTC)), record.levelname.replace("WARNING", "WARN")
        line = {"time": at, "level": level, "msg": record.getMessage(), **extra}
        return json.dumps(line | ({"err": self.formatException(record.exc_info)} if record.exc_info else {}), default=str)


def main(name: str, version: str, steps: Iterable[Step], questions: Mapping[str, Question] = {}) -> None:
    """Runs a worker until SIGTERM or SIGINT, and ends the process."""
    try:
        settings = Settings()
        config = Config(name, version, settings.concurrency, settings.rate_limit, settings.drain_timeout, settings.keys(), questions)
        handler = logging.StreamHandler()
        handler.setFormatter(_JSON() if settings.log_format == "json" else logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logging.basicConfig(level=settings.log_level.upper().replace("WARN", "WARNING"), handlers=[handler])
        stuck = asyncio.run(run(settings, config, list(steps)))
    except (SettingError, ValueError, OSError, nats.errors.Error) as e:
        sys.exit(f"keb-worker-{name}: {e}")
    sys.exit(f"keb-worker-{name}: steps did not stop: {', '.join(stuck)}" if stuck else 0)


async def run(settings: Settings, config: Config, steps: list[Step]) -> list[str]:
    """Runs a worker until a signal. It returns the steps that did not stop."""
    nc, stop = Client(), asyncio.Event()
    worker = Worker(config, steps, nc)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: os._exit(1) if stop.is_set() else stop.set())
    server = await _serve_health(settings, worker)
    stopping, connecting = asyncio.create_task(stop.wait()), asyncio.create_task(_connect(settings, nc, worker, stop))
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
        print(f"keb-worker-{config.name}: steps did not stop: {', '.join(stuck)}", file=sys.stderr, flush=True)
        os._exit(1)
    return stuck


async def _connect(s: Settings, nc: Client, worker: Worker, stop: asyncio.Event) -> None:
    """Connects, and retries for ever. Only rejected credentials and certificates are an error, and a connection that the server closes."""
    log = logging.getLogger("keb_worker")
    options: dict[str, Any] = {}
    logged, logged_at = "", 0.0
    if s.user:
        options |= {"user": s.user, "password": s.password, "inbox_prefix": f"_INBOX_{s.user}"}
    if s.ca or s.cert or s.tls_first:
        context = ssl.create_default_context(cafile=s.ca or None)
        options["tls"] = context
    if s.tls_first:
        options["tls_handshake_first"] = True

    def load() -> None:
        if s.cert:
            context.load_cert_chain(s.cert, s.key)

    async def error(e: Exception) -> None:
        nonlocal logged, logged_at
        is_final = "authorization" in str(e).lower() or isinstance(e, ssl.SSLError)
        if is_final and not worker.is_running:
            raise e
        text, now = str(e) or type(e).__name__, asyncio.get_running_loop().time()
        if text != logged or now > logged_at + 10:  # a lost connection is retried five times a second
            logged, logged_at = text, now
            log.warning("bus: %s", text)

    async def disconnected() -> None:
        worker.metrics.connected.set(0)
        load()  # the files are renewed

    async def closed() -> None:
        stop.set()

    load()
    await nc.connect(
        s.urls, name=f"keb-worker-{worker.config.name}", max_reconnect_attempts=-1, reconnect_time_wait=0.2,  # type: ignore[arg-type]
        connect_timeout=5, ping_interval=5, error_cb=error, disconnected_cb=disconnected, closed_cb=closed,
        reconnected_cb=worker.reconnected, **options)


async def _serve_health(s: Settings, worker: Worker) -> asyncio.Server | None:
    """Serves /healthz, /readyz and /metrics."""
    if not s.metrics_address:
        return None
    host, _, port = s.metrics_address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise SettingError(f"KEB_METRICS_ADDR {s.metrics_address!r}: want an address such as :9090")
    context = None
    if s.metrics_cert:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(s.metrics_cert, s.metrics_key)

    def answer(path: str) -> tuple[int, str, bytes]:
        if path == "/metrics":
            return 200, exposition.CONTENT_TYPE_LATEST, exposition.generate_latest(REGISTRY)
        problem = "" if path == "/healthz" else worker.problem
        if path not in ("/healthz", "/readyz"):
            return 404, "text/plain", b"not found\n"
        body: dict[str, Any] = {"status": "unavailable" if problem else "ok"}
        if path == "/readyz":
            body["checks"] = {"nats": problem or "ok"}
        return 503 if problem else 200, "application/json", json.dumps(body).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                head = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = answer(head.split(b" ")[1].decode(errors="replace").partition("?")[0])
                reason = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}[status]
                writer.write(f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                             "Connection: close\r\n\r\n".encode() + body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(serve, host.strip("[]") or None, int(port), ssl=context)
