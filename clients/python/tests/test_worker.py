"""Which commands may have been delivered before, and which steps are abandoned."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from keb_worker.operation import Operation
from keb_worker.settings import SettingError, Settings
from keb_worker.testing import Given

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from keb_worker import main
    from keb_worker.worker import Worker
    from nats.errors import TimeoutError as NATSTimeout
except ImportError:
    Worker = None  # type: ignore[assignment, misc]

# A worker whose step left a call in a thread.
STOPS = """
import asyncio, threading
from types import SimpleNamespace
from unittest import mock
from keb_worker import main
from keb_worker.settings import Settings

async def run(stop):
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    return [%s]
worker = SimpleNamespace(name="a", nc=mock.AsyncMock(is_closed=False), run=run)
main._connect = mock.AsyncMock()
print("a line that is not flushed")
asyncio.run(main.run(Settings(), worker))
"""


def write_certificate(folder: Path, serial: int) -> dict[str, str]:
    """Writes a certificate and its key, and returns the settings of the address of the metrics."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])
    now = datetime.now(UTC)
    certificate = x509.CertificateBuilder(name, name, key.public_key(), serial, now, now + timedelta(1)).sign(key, hashes.SHA256())
    (folder / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return {"KEB_METRICS_ADDR": "127.0.0.1:0", "KEB_METRICS_TLS_CERT_FILE": str(folder / "tls.crt"),
            "KEB_METRICS_TLS_KEY_FILE": str(folder / "tls.key")}


@unittest.skipUnless(Worker, "nats-py, cryptography or prometheus_client is not installed")
class TestWorker(unittest.IsolatedAsyncioTestCase):
    def test_command_older_than_connection_may_have_been_delivered(self) -> None:
        worker: Any = SimpleNamespace(_connected_at=1000.0)
        for deliveries, stored_at, want in ((1, 1001, False), (2, 1001, True), (1, 999, True)):
            metadata = SimpleNamespace(num_delivered=deliveries, timestamp=datetime.fromtimestamp(stored_at, UTC))
            msg: Any = SimpleNamespace(metadata=metadata)
            with self.subTest((deliveries, stored_at)):
                self.assertEqual(Worker._is_again(worker, msg), want)

    async def test_command_of_an_old_pull_may_have_been_delivered(self) -> None:
        for age, want in ((2, False), (4, True)):
            clock, connected = [1000.0], []

            async def wait(timeout: float, age: int = age, clock: list[float] = clock) -> Any:
                clock[0] += age  # a step blocks the event loop
                return SimpleNamespace(reply="$JS.ACK.a.b.1.1.1.1.0")

            async def reconnect(connected: list[bool] = connected) -> None:
                connected.append(True)

            nothing = mock.AsyncMock()
            nc = mock.Mock(subscribe=mock.AsyncMock(return_value=SimpleNamespace(next_msg=wait, unsubscribe=nothing)), publish=nothing)
            worker: Any = SimpleNamespace(
                nc=nc, name="a", settings=SimpleNamespace(ramped=False), connected=reconnect, _handle=mock.Mock(), _spawn=mock.Mock(),
                _next=lambda sub: sub.next_msg(timeout=1))
            with self.subTest(age), mock.patch("keb_worker.worker.time.time", lambda clock=clock: clock[0]):
                await Worker._pull_once(worker, 1)
                self.assertEqual(bool(connected), want)

    async def test_message_behind_a_blocked_event_loop_is_read(self) -> None:
        message = SimpleNamespace(reply="$JS.ACK.a.b.1.1.1.1.0")
        flushed: list[float] = []

        async def wait(timeout: float) -> Any:
            if not flushed:
                raise NATSTimeout
            return message

        async def flush(timeout: float) -> None:
            flushed.append(timeout)

        worker: Any = SimpleNamespace(nc=SimpleNamespace(flush=flush))
        self.assertIs(await Worker._next(worker, SimpleNamespace(next_msg=wait)), message)

    async def test_pulled_command_takes_its_slot_at_once(self) -> None:
        nothing, handled = mock.AsyncMock(), list[Any]()

        async def message(timeout: float) -> Any:
            return SimpleNamespace(reply="$JS.ACK.a.b.1.1.1.1.0")

        async def handle(msg: Any) -> None:
            handled.append(msg)

        nc = mock.Mock(subscribe=mock.AsyncMock(return_value=SimpleNamespace(next_msg=message, unsubscribe=nothing)), publish=nothing)
        worker: Any = SimpleNamespace(nc=nc, name="a", settings=SimpleNamespace(ramped=False), _handle=handle, _next=lambda sub: message(0),
                                      _spawn=asyncio.ensure_future)
        await Worker._pull_once(worker, 1)
        self.assertEqual(len(handled), 1)

    def test_half_a_pair_of_tls_files_is_an_error(self) -> None:
        with self.assertRaisesRegex(SettingError, "KEB_NATS_CERT_FILE and KEB_NATS_KEY_FILE"):
            Settings({"KEB_NATS_KEY_FILE": "key.pem"})

    async def test_missing_tls_file_names_its_variable(self) -> None:
        stop = asyncio.Event()
        with self.assertRaisesRegex(SettingError, "KEB_NATS_CA_FILE.*: No such file"):
            await main._connect(Settings({"KEB_NATS_CA_FILE": "none.pem"}), mock.Mock(), stop)
        with self.assertRaisesRegex(SettingError, "KEB_METRICS_TLS_CERT_FILE.*: No such file"):
            await main._serve_health(Settings({"KEB_METRICS_TLS_CERT_FILE": "none.pem"}), mock.Mock())

    def test_port_beyond_the_last_is_an_error(self) -> None:
        with self.assertRaisesRegex(SettingError, "KEB_METRICS_ADDR"):
            Settings({"KEB_METRICS_ADDR": ":65536"})

    async def test_renewed_certificate_of_the_metrics_is_served(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            runner = await main._serve_health(Settings(write_certificate(Path(folder), 1)), mock.Mock())
            client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
            for serial in (1, 2):
                write_certificate(Path(folder), serial)
                _, writer = await asyncio.open_connection(*runner.addresses[0], ssl=client)
                served = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(True))
                self.assertEqual(served.serial_number, serial)
                writer.close()
            await runner.cleanup()

    async def test_threads_are_enough_for_all_steps(self) -> None:
        barrier = threading.Barrier(32)

        async def steps(stop: asyncio.Event) -> list[str]:
            await asyncio.gather(*(asyncio.to_thread(barrier.wait, 10) for _ in range(32)))
            return []
        worker: Any = SimpleNamespace(name="a", nc=mock.AsyncMock(is_closed=False), run=steps)
        with (mock.patch("os.cpu_count", return_value=2), mock.patch("os._exit") as ended, mock.patch("atexit._run_exitfuncs"),
              mock.patch("keb_worker.main._connect", mock.AsyncMock())):
            await main.run(Settings({}), worker)
        ended.assert_called_once_with(False)

    def test_process_ends_while_a_thread_runs(self) -> None:
        for stuck, code in (("", 0), ("'Hangs'", 1)):
            with self.subTest(code):
                env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": ""}
                ended = subprocess.run([sys.executable, "-c", STOPS % stuck], capture_output=True, text=True, timeout=60, env=env)
                self.assertEqual((ended.returncode, ended.stdout, "Hangs" in ended.stderr), (code, "a line that is not flushed\n", code == 1))

    def test_text_lines_have_the_fields(self) -> None:
        record = logging.makeLogRecord({"msg": "record created", "levelname": "INFO", "operation_id": "op"})
        self.assertRegex(main._Line(False).format(record), r' INFO record created {"operation_id": "op"}$')

    async def test_question_without_valid_wait_has_five_seconds(self) -> None:
        worker: Any = SimpleNamespace(nc=mock.AsyncMock(max_payload=100), _answering=asyncio.Semaphore(1))
        for wait, want in (("700", 0.7), ("100000", 60), ("-1", 5), ("1.5", 5), ("x", 5), ("", 5)):
            msg: Any = SimpleNamespace(subject="x", reply="r", data=b"{}", headers={"Keb-Wait": wait})
            with self.subTest(wait), mock.patch("keb_worker.worker.asyncio.timeout", wraps=asyncio.timeout) as timeout:
                await Worker._answer(worker, msg, mock.AsyncMock(return_value=1))
                timeout.assert_called_once_with(want)
        self.assertEqual(worker.nc.publish.await_args_list, [mock.call("r", b"1")] * 6)

    async def test_at_most_64_questions_are_answered_at_once(self) -> None:
        worker = Worker("a", "", [], {"keb.ask.a.q": mock.AsyncMock()}, Settings({}), mock.AsyncMock(max_payload=100))
        running, most, begun, release = 0, 0, asyncio.Event(), asyncio.Event()

        async def ask(question: Any) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            begun.set()
            await release.wait()
            running -= 1
        msg: Any = SimpleNamespace(subject="x", reply="r", data=b"{}", headers=None)
        answers = [asyncio.create_task(worker._answer(msg, ask)) for _ in range(100)]
        await begun.wait()
        release.set()
        await asyncio.gather(*answers)
        self.assertEqual((running, most), (0, 64))

    async def test_drain_ends_questions_and_registration(self) -> None:
        for ramped, want in ((False, 11), (True, 1)):  # a ramped worker stays registered
            settings: Any = SimpleNamespace(ramped=ramped)
            worker: Any = SimpleNamespace(name="a", version="", steps={}, questions={"keb.ask.a.q": None}, settings=settings,
                                          nc=mock.AsyncMock(), _cancel=None)
            with self.subTest(ramped=ramped):
                self.assertEqual(len(await Worker._serve(worker)), want)

    async def test_password_is_not_sent_without_tls(self) -> None:
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def ends_with(what: Any) -> None:
            if what and not outcome.done():
                outcome.set_result(what)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b'INFO {"version": "2.12.0", "max_payload": 1000}\r\n')
            ends_with(await reader.read(100))

        async def failed(error: Exception) -> None:
            ends_with(str(error))

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            client: Any = main._Client()
            url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            connecting = asyncio.create_task(client.connect(
                url, user="a", password="secret", tls=ssl.create_default_context(), error_cb=failed, allow_reconnect=False))
            self.assertRegex(await outcome, "offers no TLS")
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)

    async def test_step_that_does_not_return_is_abandoned(self) -> None:
        given = Given(limit=-2.9)
        op = Operation(given.command("Ignores"), "test", None, given.ask, None)  # type: ignore[arg-type]
        op.log = SimpleNamespace(error=lambda text: None)  # type: ignore[assignment]
        worker: Any = SimpleNamespace(_changed=asyncio.Event())
        t: Any = SimpleNamespace(op=op, is_running=True, abandoned=False)
        ticking = asyncio.create_task(Worker._tick(worker, t))
        await worker._changed.wait()
        self.assertTrue(t.abandoned and op.is_overdue(3))
        ticking.cancel()

    async def test_late_result_of_a_blocked_event_loop_is_unwanted(self) -> None:
        given = Given(limit=-4)
        op = Operation(given.command("Blocks"), "test", None, given.ask, None)  # type: ignore[arg-type]
        worker: Any = SimpleNamespace(_draining=False, _is_current=mock.AsyncMock(return_value=False))
        self.assertFalse(await Worker._is_wanted(worker, SimpleNamespace(op=op, abandoned=False)))  # type: ignore[arg-type]

    async def test_dead_letter_that_the_stream_never_accepts_is_terminated(self) -> None:
        for code, want in ((10054, "term"), (10077, "nak")):
            answer = SimpleNamespace(data=json.dumps({"error": {"code": 400, "err_code": code}}).encode())
            worker: Any = SimpleNamespace(name="a", nc=SimpleNamespace(max_payload=1 << 20, request=mock.AsyncMock(return_value=answer)))
            worker._stored = lambda *message, worker=worker: Worker._stored(worker, *message)
            msg = mock.AsyncMock(subject="x", reply="$JS.ACK.a.b.1.1.1.1.0", data=b"", headers={}, metadata=SimpleNamespace(num_delivered=1))
            with self.subTest(code):
                await Worker._dead(worker, msg, "unreadable")
                self.assertEqual([name for name in ("term", "nak") if getattr(msg, name).await_count], [want])


if __name__ == "__main__":
    unittest.main()
