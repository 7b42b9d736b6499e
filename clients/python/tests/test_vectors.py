"""Every vector of api/vectors, which Go code has written."""

from __future__ import annotations

import base64
import json
import unittest
from datetime import datetime
from pathlib import Path
from typing import Any

from keb_worker import Override, StepError, step, wire
from keb_worker.mask import mask_text
from keb_worker.operation import Operation, merge_details
from keb_worker.settings import SettingError, Settings
from keb_worker.testing import DictMemory, Given, run

try:
    from keb_worker import memory
except ImportError:
    memory = None  # type: ignore[assignment]

VECTORS = Path(__file__).parents[3] / "api" / "vectors"
CANNOT_SEAL = "python3-cryptography is not installed"


NAMES: dict[str, Any] = {
    "commandSubject": lambda worker, step: f"keb.command.{worker}.{step}",
    "resultSubject": wire.result_subject,
    "deadSubject": lambda: f"keb.dead.{wire.STREAM}",
    "cancelSubject": lambda worker: wire.worker_subject(worker, "cancel"),
    "pingSubject": lambda worker: wire.worker_subject(worker, "ping"),
    "extendSubject": lambda worker: wire.ask_subject(worker, "extend"),
    "currentSubject": lambda worker: wire.ask_subject(worker, "current"),
    "credentialsSubject": lambda worker: wire.ask_subject(worker, "credentials"),
    "keepSubject": lambda worker: wire.ask_subject(worker, "keep"),
    "keptSubject": lambda worker: wire.ask_subject(worker, "kept"),
    "signalSubject": lambda key: f"keb.signal.{key}",
    "commandId": lambda operation, cursor: wire.command_id(command(operation, cursor, "1")),
    "dispatchId": lambda operation, cursor, dispatch: wire.dispatch_id(command(operation, cursor, dispatch)),
    "source": lambda worker: f"/keb/worker/{worker}",
    "user": lambda worker: f"worker-{worker}",
    "inboxPrefix": lambda user: f"_INBOX_{user}",
    "service": lambda worker: f"keb-worker-{worker}",
    "serviceVersion": wire.service_version,
    "isWorker": lambda name: bool(wire.is_worker(name)),
    "isStep": lambda name: bool(wire.is_step(name)),
    "isEventKey": lambda key: bool(wire.is_event_key(key)),
}


def command(operation: str, cursor: str, dispatch: str) -> wire.Command:
    return {"operation": {"id": operation}, "cursor": int(cursor), "dispatch": int(dispatch)}


class TestVectors(unittest.IsolatedAsyncioTestCase):
    maxDiff = None

    def cases(self, name: str) -> list[tuple[Any, Any]]:
        cases = json.loads((VECTORS / f"{name}.json").read_text())["cases"]
        self.assertTrue(cases)
        return [(case["in"], case["out"]) for case in cases]

    def test_every_file_is_tested(self) -> None:
        tested = {"commands", "results", "messages", "names", "percent", "stage-keys", "sealed", "keyrings", "overrides", "details",
                  "errors", "masking", "retry-after", "dead-letters", "settings"}
        self.assertEqual({file.stem for file in VECTORS.glob("*.json")}, tested)

    def test_commands(self) -> None:
        for given, want in self.cases("commands"):
            with self.subTest(str(given)[:200]):
                try:
                    c = wire.read_command(given["headers"], given["body"].encode())
                except ValueError:
                    self.assertEqual(want, {"unreadable": True})
                    continue
                op = Operation(c, "test", None, Given().ask, None)  # type: ignore[arg-type]
                got = {"commandId": wire.command_id(c), "dispatchId": wire.dispatch_id(c), "step": op.step,
                       "executeBefore": wire.format_time(op.execute_before), "stageMemory": c.get("stageMemory", False),
                       "traceparent": c["traceparent"]}
                self.assertEqual(got | ({"event": op.event} if op.event else {}), want)

    def test_results(self) -> None:
        for given, want in self.cases("results"):
            with self.subTest(str(given)[:200]):
                c, worker = given["command"], given["worker"]
                position = {"operation": {"id": c["operationId"]}, **c}
                result = {name: value for name, value in given.items() if name not in ("command", "worker")}
                subject, headers, body = wire.result_message(
                    worker["name"], worker.get("version", ""), position, result, c.get("traceparent", ""))
                self.assertEqual({"subject": subject, "headers": headers, "body": json.loads(body)}, want | {"body": json.loads(want["body"])})

    def test_messages(self) -> None:
        for given, want in self.cases("messages"):
            with self.subTest(str(given)[:200]):
                self.assertEqual(wire.decode_json(want), given["value"])
                self.assertEqual(json.loads(wire.encode_json(given["value"])), json.loads(want))

    def test_names(self) -> None:
        for given, want in self.cases("names"):
            with self.subTest(str(given)[:200]):
                self.assertEqual(NAMES[given["function"]](*given["arguments"]), want)

    def test_percent(self) -> None:
        for given, want in self.cases("percent"):
            with self.subTest(str(given)[:200]):
                if "text" in given:
                    self.assertEqual(wire.escape(given["text"]), want["header"])
                    self.assertEqual(wire.unescape(want["header"]), given["text"])
                elif want.get("error"):
                    self.assertRaises(ValueError, wire.unescape, given["header"])
                else:
                    self.assertEqual(wire.unescape(given["header"]), want["text"])

    @unittest.skipUnless(memory, CANNOT_SEAL)
    def test_stage_keys(self) -> None:
        for given, want in self.cases("stage-keys"):
            with self.subTest(str(given)[:200]):
                name = f"value.{given['value']}" if "value" in given else ""
                if "component" in given:
                    name = f"override.{given['step']}.{given['component']}"
                stage = given["stage"]
                if "deathsOf" in given:
                    stage, name = f"{stage}/deaths", given["deathsOf"]
                key = memory.stage_prefix(given["operationId"], stage, given["stageAttempt"]) + (memory.encode_key(name) if name else "=")
                self.assertEqual({"key": key, "subject": f"$KV.keb_stage.{key}"}, want)
                self.assertEqual(memory.decode_key(memory.encode_key(name)), name)

    @unittest.skipUnless(memory, CANNOT_SEAL)
    def test_sealed(self) -> None:
        for given, want in self.cases("sealed"):
            with self.subTest(str(given)[:200]):
                keys = memory.Keyring(given["keyring"])
                if "sealed" in given and "error" in want:
                    with self.assertRaisesRegex(ValueError, want["error"].split()[0]):
                        keys.open(given["sealed"], given["associated"])
                    continue
                plain = base64.b64decode(given.get("plainBase64", want.get("plainBase64")))
                if "nonce" in given:
                    self.assertEqual(keys.seal(plain, given["associated"], bytes.fromhex(given["nonce"])), want["sealed"])
                self.assertEqual(keys.open(given.get("sealed", want.get("sealed")), given["associated"]), plain)

    @unittest.skipUnless(memory, CANNOT_SEAL)
    def test_keyrings(self) -> None:
        for given, want in self.cases("keyrings"):
            with self.subTest(str(given)[:200]):
                if want.get("error"):
                    self.assertRaises(ValueError, memory.Keyring, given["keyring"].strip())
                else:
                    self.assertEqual(memory.Keyring(given["keyring"].strip()).ids, want["ids"])

    async def test_overrides(self) -> None:
        for given, want in self.cases("overrides"):
            with self.subTest(str(given)[:200]):
                stored = DictMemory({name: value.encode() for name, value in given["stored"].items()})
                g = Given()
                op = Operation(g.command(given["step"]), "test", stored, g.ask, None)  # type: ignore[arg-type]
                for own in given["own"]:
                    op.set_overrides(own["component"], [Override(**e) for e in own["entries"]])
                got = [{"component": c, "entries": [{k: v for k, v in vars(e).items() if v is not False} for e in entries]}
                       for c, entries in (await op.overrides()).items()]
                self.assertEqual(got, want)

    def test_details(self) -> None:
        for given, want in self.cases("details"):
            with self.subTest(str(given)[:200]):
                self.assertEqual(merge_details(given["saved"] or {}, given["patch"]), want)

    async def test_errors(self) -> None:
        for given, want in self.cases("errors"):
            with self.subTest(str(given)[:200]):
                @step("Fails")
                async def fails(op: Operation, error: dict[str, str] = given["error"]) -> None:
                    for name in op.credentials:
                        await op.claim_credentials(name)
                    raise StepError(error["message"], component=error["component"], reason=error["reason"])
                claimed = {"all": given["credentials"]} if given.get("credentials") else {}
                self.assertEqual((await run(fails, Given(credentials=claimed))).error, want)

    def test_masking(self) -> None:
        for given, want in self.cases("masking"):
            with self.subTest(str(given)[:200]):
                self.assertEqual(mask_text(given["text"]), want["text"])
                self.assertEqual(mask_text(want["text"]), want["text"])

    def test_dead_letters(self) -> None:
        for given, want in self.cases("dead-letters"):
            with self.subTest(str(given)[:200]):
                m = given["message"]
                at = datetime.fromisoformat(m["time"])
                nanoseconds = f"{int(at.timestamp())}{m['time'].partition('.')[2].rstrip('Z').ljust(9, '0')}"
                headers, body = wire.dead_letter(
                    given["worker"], given["reason"], m["subject"], str(m["sequence"]), nanoseconds, m["headers"], m["body"].encode(),
                    given["maxPayload"])
                lists = {k: [v] if isinstance(v, str) else v for k, v in headers.items()}
                self.assertEqual({"subject": f"keb.dead.{wire.STREAM}", "headers": lists, "body": body.decode()}, want)

    def test_settings(self) -> None:
        for given, want in self.cases("settings"):
            with self.subTest(str(given)):
                try:
                    s = Settings(given)
                    got = {"concurrency": s.concurrency, "rateLimit": s.rate_limit, "drainMilliseconds": s.drain_timeout * 1000,
                           "ramped": s.ramped}
                except SettingError as e:
                    got = {"error": str(e).startswith(next(iter(given)))}
                self.assertEqual(got, want)

    def test_retry_after(self) -> None:
        """The orchestrator reads this number; the library only writes it, so each readable one must come out as it went in."""
        for given, want in self.cases("retry-after"):
            with self.subTest(str(given)[:200]):
                try:
                    number = wire.decode_json(given["retryAfter"])
                    ok = not isinstance(number, bool) and (number is None or 0 <= number < float("inf"))
                except (ValueError, TypeError):
                    ok = False
                self.assertEqual(ok, "error" not in want)


if __name__ == "__main__":
    unittest.main()
