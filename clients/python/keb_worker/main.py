"""The whole main program of a worker: settings, connection, health, signals."""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import signal
import ssl
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from nats.aio.client import Client
from nats.errors import Error as NATSError
from prometheus_client import REGISTRY, exposition

from .operation import Step
from .settings import SettingError, Settings
from .wire import format_time
from .worker import Question, Worker

_KNOWN = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
log = logging.getLogger("keb_worker")


class _Line(logging.Formatter):
    """A line of JSON, or a text with the fields of the line at its end."""

    def __init__(self, is_json: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._is_json = is_json

    def format(self, record: logging.LogRecord) -> str:
        fields = {k: v for k, v in record.__dict__.items() if k not in _KNOWN}
        if not self._is_json:
            return super().format(record) + (f" {json.dumps(fields, default=str)}" if fields else "")
        at, level = format_time(datetime.fromtimestamp(record.created, UTC)), record.levelname.replace("WARNING", "WARN")
        line = {"time": at, "level": level, "msg": record.getMessage()} | fields
        return json.dumps(line | ({"err": self.formatException(record.exc_info)} if record.exc_info else {}), default=str)


class _Client(Client):
    """A client that requires TLS before it sends a password, if TLS is wanted. nats-py lets the server decide."""

    def _connect_command(self) -> Any:
        if self.options.get("tls") and not self._server_info.get("tls_required"):
            raise NATSError("nats: the server offers no TLS, which the settings require")
        return super()._connect_command()


def main(name: str, version: str, steps: Iterable[Step], questions: Mapping[str, Question] = {}) -> None:
    """Runs a worker until SIGTERM or SIGINT, and ends the process."""
    try:
        settings = Settings()
        handler = logging.StreamHandler()
        handler.setFormatter(_Line(settings.log_format == "json"))
        logging.basicConfig(level=settings.log_level.upper().replace("WARN", "WARNING"), handlers=[handler])
        asyncio.run(run(settings, Worker(name, version, steps, questions, settings, _Client())))
    except (SettingError, ValueError, OSError, NATSError) as e:
        sys.exit(f"keb-worker-{name}: {e}")


async def run(settings: Settings, worker: Worker) -> None:
    """Runs a worker until a signal, and ends the process. A second signal ends it at once."""
    nc, stop = worker.nc, asyncio.Event()
    # Steps call asyncio.to_thread. A call that was cancelled keeps its thread until it returns.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2 * settings.concurrency))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: os._exit(1) if stop.is_set() else stop.set())
    await _serve_health(settings, worker)
    stopping, connecting = asyncio.create_task(stop.wait()), asyncio.create_task(_connect(settings, worker, stop))
    await asyncio.wait({connecting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not connecting.done():
        connecting.cancel()
        return
    connecting.result()
    stuck = await worker.run(stop)
    if nc.is_closed:
        raise ConnectionError(f"the bus has closed the connection: {nc.last_error}")
    with suppress(NATSError, TimeoutError):  # while the bus is away: it delivers the commands again
        await nc.flush(2)
    await nc.close()
    if stuck:
        print(f"keb-worker-{worker.name}: steps did not stop: {', '.join(stuck)}", file=sys.stderr)
    atexit._run_exitfuncs()  # such as that of OpenTelemetry
    sys.stdout.flush()
    os._exit(bool(stuck))  # asyncio.run would wait for a task that ignores its end, and the interpreter for a thread


def _tls(purpose: ssl.Purpose, variables: str, cert: str, key: str, ca: str) -> ssl.SSLContext:
    """Reads TLS files. An error names their variables."""
    try:
        context = ssl.create_default_context(purpose, cafile=ca or None)
        if cert:
            context.load_cert_chain(cert, key)
        return context
    except OSError as e:
        raise SettingError(f"{variables}: {e.strerror}") from None


async def _connect(s: Settings, worker: Worker, stop: asyncio.Event) -> None:
    """Connects, and retries for ever. Only rejected credentials and certificates are an error, and a connection that the server closes."""
    options: dict[str, Any] = {"tls_handshake_first": True} if s.tls_first else {}
    logged_at = 0.0
    if s.user:
        options |= {"user": s.user, "password": s.password, "inbox_prefix": f"_INBOX_{s.user}"}
    if s.ca or s.cert or s.tls_first:
        variables = "KEB_NATS_CA_FILE, KEB_NATS_CERT_FILE and KEB_NATS_KEY_FILE"
        options["tls"] = _tls(ssl.Purpose.SERVER_AUTH, variables, s.cert, s.key, s.ca)

    async def reload_files() -> None:
        try:
            if s.cert:
                options["tls"].load_cert_chain(s.cert, s.key)
            if s.ca:
                options["tls"].load_verify_locations(s.ca)
        except OSError as e:  # while they are renewed; an exception would end the attempts to connect
            log.warning("bus: TLS files not read: %s", e)

    async def error(e: Exception) -> None:
        nonlocal logged_at
        is_cut = isinstance(e, (ssl.SSLEOFError, ssl.SSLZeroReturnError))  # by a server that stops
        if not worker.is_running and ("authorization" in str(e).lower() or isinstance(e, ssl.SSLError) and not is_cut):
            raise e
        if (now := asyncio.get_running_loop().time()) > logged_at + 10:  # a lost connection is retried five times a second
            logged_at = now
            log.warning("bus: %s", str(e) or type(e).__name__)

    async def closed() -> None:
        stop.set()

    await worker.nc.connect(
        s.urls, name=f"keb-worker-{worker.name}", max_reconnect_attempts=-1, reconnect_time_wait=0.2,  # type: ignore[arg-type]
        connect_timeout=5, ping_interval=2, error_cb=error, disconnected_cb=reload_files,  # the files are renewed
        closed_cb=closed, reconnected_cb=worker.connected, **options)
    await worker.connected()


async def _serve_health(s: Settings, worker: Worker) -> web.AppRunner:
    """Serves /healthz, /readyz and /metrics until the process ends."""
    cert, key, client_ca = s.metrics_tls
    host, _, port = s.metrics_address.rpartition(":")

    def read_files() -> ssl.SSLContext:
        variables = ", ".join(f"KEB_METRICS_TLS_{name}_FILE" for name in ("CERT", "KEY", "CLIENT_CA"))
        context = _tls(ssl.Purpose.CLIENT_AUTH, variables, cert, key, client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL if client_ca else ssl.CERT_NONE
        return context

    def renew(connection: ssl.SSLObject, *_: Any) -> None:
        with suppress(SettingError):  # while the files are replaced
            connection.context = read_files()

    if context := read_files() if cert else None:
        context.sni_callback = renew

    async def health(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def ready(request: web.Request) -> web.Response:
        body = {"status": "unavailable" if worker.problem else "ok", "checks": {"nats": worker.problem or "ok"}}
        return web.json_response(body, status=503 if worker.problem else 200)

    async def metrics(request: web.Request) -> web.Response:
        if client_ca and not request.get_extra_info("peercert"):
            return web.Response(status=401, text="a client certificate is needed")
        return web.Response(body=exposition.generate_latest(REGISTRY), headers={"Content-Type": exposition.CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", health), web.get("/readyz", ready), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    if port:
        await web.TCPSite(runner, host.strip("[]") or None, int(port), ssl_context=context).start()
    return runner
