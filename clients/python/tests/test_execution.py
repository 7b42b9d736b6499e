"""Steps in the test kit: outcomes, details, stage memory, time limits, secrets."""

from __future__ import annotations

import asyncio
import errno
import gc
import math
import socket
import unittest
from typing import Any
from urllib.error import URLError

from keb_worker import (
    Operation, Outcome, Override, Step, StepError, not_completed, retry, retry_without_fail, skip, step, wait, wait_for_event)
from keb_worker.operation import Execution, NoAnswer
from keb_worker.testing import DictMemory, Given, run

SECRET = "a-password-that-was-claimed"


def returns(outcome: Any) -> Step:
    @step("Returns", component="system")
    async def returning(op: Operation) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome
    return returning


class TestOutcome(unittest.IsolatedAsyncioTestCase):
    async def test_each_return_has_its_outcome(self) -> None:
        failed = StepError("no", component="avs", reason="err_x")
        for returned, outcome, error in [
            (None, "succeeded", None),
            (skip("nothing to do"), "skipped", None),
            (wait(5, "not yet"), "retry", None),
            (retry(5, failed), "retry", ("avs", "err_x", "no")),
            (retry(5, ConnectionRefusedError("no")), "retry", ("system", "err_connection_refused", "no")),
            (retry(5, URLError(ConnectionResetError("reset"))), "retry", ("system", "err_network", "<urlopen error reset>")),
            (retry(5, "it is down"), "retry", ("system", "err_step_failed", "it is down")),
            (not_completed("gave up"), "not completed", ("system", "err_step_failed", "gave up")),
            (failed, "failed", ("avs", "err_x", "no")),
            (StepError("later", temporary=True), "retry", ("system", "err_step_failed", "later")),
            (TimeoutError("slow"), "retry", ("system", "err_network_timeout", "slow")),
            (KeyError("x"), "failed", ("test", "err_step_panicked", "the step raised KeyError: 'x'")),
            (wait(-1, ""), "failed", ("test", "err_step_result", "invalid result: the retry delay is -1: want 0 to 86400 seconds")),
            (wait(math.nan, ""), "failed", ("test", "err_step_result", "invalid result: the retry delay is nan: want 0 to 86400 seconds")),
            (7, "failed", ("test", "err_step_result", "invalid result: the step returned int, want None or an outcome")),
            (wait_for_event("a b", 1, ""), "failed", ("test", "err_step_result",
             "invalid result: event.key: want letters, digits, hyphens and underscores, with dots between")),
            (wait("5s", ""), "failed", ("test", "err_step_result", "invalid result: the retry delay is 5s: want 0 to 86400 seconds")),
            (retry(0, 404), "failed", ("test", "err_step_result", "invalid result: AttributeError: 'int' object has no attribute '__cause__'")),
            (StepError("no", reason=404), "failed", ("system", "404", "no")),  # type: ignore[arg-type]
            (skip(None), "skipped", None),  # type: ignore[arg-type]
            (skip(ValueError("no")), "skipped", None),  # type: ignore[arg-type]
        ]:
            with self.subTest(returned):
                got = await run(returns(returned))
                self.assertEqual((got.outcome, got.error and tuple(got.error.values())), (outcome, error))
                self.assertEqual(got.panicked, isinstance(returned, KeyError))

    async def test_network_failure_has_its_reason(self) -> None:
        def caused(error: BaseException, cause: BaseException | None, is_context: bool = False) -> Any:
            setattr(error, "__context__" if is_context else "__cause__", cause)
            return error

        def named(name: str) -> Exception:  # as of httpx, requests and aiohttp
            return type(name, (Exception,), {})("x")
        refused, reset, slow = ConnectionRefusedError("no"), ConnectionResetError("reset"), TimeoutError("slow")
        for error, reason in (
            (caused(StepError("x"), URLError(reset)), "err_network"),
            (URLError(slow), "err_network_timeout"),
            (URLError(refused), "err_connection_refused"),
            (caused(StepError("x"), slow), "err_network_timeout"),
            (OSError(errno.EHOSTUNREACH, "no route"), "err_network"),
            (caused(named("ConnectError"), caused(named("ConnectError"), socket.gaierror("x"))), "err_unknown_host"),
            (caused(named("ConnectionError"), caused(named("MaxRetryError"), refused), is_context=True), "err_connection_refused"),
            (named("ConnectError"), "err_network"),
            (caused(named("ReadTimeout"), refused, is_context=True), "err_network_timeout"),  # of the second call
            (named("ServerDisconnectedError"), "err_network"),
            (caused(named("Loop"), caused(StepError("x"), None)), "err_step_failed"),
        ):
            with self.subTest(repr(error)):
                self.assertEqual(((await run(returns(retry(0, error)))).error or {})["reason"], reason)
        own = StepError("x")
        own.__cause__ = own  # "raise e from e"
        self.assertEqual(((await run(returns(retry(0, own)))).error or {})["message"], "x")
        got = await run(returns(named("ReadTimeout")))
        self.assertEqual((got.outcome, got.panicked, (got.error or {})["reason"]), ("failed", True, "err_network_timeout"))

    async def test_step_without_async_or_that_exits_is_a_panic(self) -> None:
        async def exits(op: Operation) -> None:
            raise SystemExit(3)
        for run_step, message in ((lambda op: 1 / 0, "ZeroDivisionError: division by zero"), (exits, "SystemExit: 3")):
            with self.subTest(message):
                got = await run(Step("Panics", run_step))
                self.assertEqual((got.outcome, got.panicked, (got.error or {})["message"]), ("failed", True, f"the step raised {message}"))

    async def test_budget_is_spent_ends_not_completed(self) -> None:
        @step("Cleans_Up")
        async def cleans_up(op: Operation) -> Outcome:
            return retry_without_fail(op, 10, 300, "still there")
        first = await run(cleans_up, Given(first_tried=295))
        self.assertEqual((first.outcome, first.retry_after), ("retry", 10))
        self.assertEqual((await run(cleans_up, first.next())).outcome, "not completed")

    async def test_event_comes_with_the_next_command(self) -> None:
        @step("Waits")
        async def waits(op: Operation) -> Outcome | None:
            if op.event is None:
                return wait_for_event(f"approval.{op.id}", 60, "waiting")
            op.save_details({"approved": op.event["data"]["approved"]})
            return None
        first = await run(waits)
        self.assertEqual((first.outcome, first.event_key), ("retry", f"approval.{Given().id}"))
        self.assertEqual((await run(waits, first.next_with_event({"approved": True}))).details, {"approved": True})


class TestDetails(unittest.IsolatedAsyncioTestCase):
    async def test_members_are_merged_and_removed(self) -> None:
        @step("Saves")
        async def saves(op: Operation) -> None:
            op.save_details({"b": 2, "a": None})
            op.save_details({"c": op.details()})
        got = await run(saves, Given(details={"test": {"a": 1}, "other": {"x": 1}}))
        self.assertEqual(got.details, {"b": 2, "a": None, "c": {"b": 2}})
        self.assertEqual(got.next().details, {"test": {"b": 2, "c": {"b": 2}}, "other": {"x": 1}})

    async def test_invalid_details_fail_the_step(self) -> None:
        for members in ({"a": math.nan}, {"a": "\0"}, {"a": "x" * (256 << 10)}, {"a": object()}):
            @step("Saves")
            async def saves(op: Operation, members: Any = members) -> None:
                try:
                    op.save_details(members)
                except StepError:
                    pass
            with self.subTest(str(members)[:30]):
                got = await run(saves)
                self.assertEqual((got.outcome, got.details), ("failed", None))
                self.assertIn("invalid result: save details: ", (got.error or {})["message"])

    async def test_removed_objects_are_named(self) -> None:
        async def remove(op: Operation) -> None:
            op.note_removed("evaluation 12")
            op.note_removed("12")
            op.note_removed(12)  # type: ignore[arg-type]
            op.note_removed("ab " * 100)
        self.assertEqual(["evaluation 12", "12", "ab " * 84 + "a..."], (await run(Step("Remove", remove))).removed)

    async def test_progress_is_reported_without_secrets(self) -> None:
        @step("Reports")
        async def reports(op: Operation) -> None:
            op.progress("a part", 43.3)  # type: ignore[arg-type]
            op.progress("a part", math.nan)  # type: ignore[arg-type]
            op.progress("3 of 7 nodes", 43)
            op.progress(f"{(await op.claim_credentials('system'))['password']} {'x ' * 150}", 101)
        got = await run(reports, Given(credentials={"system": {"password": SECRET}}))
        self.assertEqual(got.progress[:3], [("a part", 43), ("a part", None), ("3 of 7 nodes", 43)])
        self.assertEqual((got.progress[3][0][:12], len(got.progress[3][0]), got.progress[3][1]), ("[redacted] x", 200, 100))

    async def test_received_secret_in_details_fails_the_step(self) -> None:
        @step("Leaks")
        async def leaks(op: Operation) -> None:
            op.save_details({"deep": [{"x": f"is {(await op.claim_credentials('system'))['password']}"}]})
        got = await run(leaks, Given(credentials={"system": {"password": SECRET}}))
        self.assertEqual((got.outcome, got.details), ("failed", None))
        self.assertNotIn(SECRET, str(got.error))

    async def test_received_secret_is_removed_from_texts(self) -> None:
        @step("Leaks")
        async def leaks(op: Operation) -> Outcome:
            return skip(f"it is {(await op.recall('token') or b'').decode()} and password=x")
        got = await run(leaks, Given(remembered={"token": SECRET.encode()}))
        self.assertEqual(got.message, "it is [redacted] and password=[redacted]")


class TestMemory(unittest.IsolatedAsyncioTestCase):
    async def test_values_are_written_when_the_step_is_done(self) -> None:
        @step("Remembers")
        async def remembers(op: Operation) -> Outcome | None:
            op.remember("k", b"v")
            op.set_overrides("c", [Override("a", "1"), Override("b", "2", secret=True)])
            return None if op.step_attempt > 1 else retry(0, "not yet")
        first = await run(remembers)
        self.assertEqual((first.remembered, first.stage_memory), ({}, False))
        second = await run(remembers, first.next())
        self.assertEqual((second.remembered, second.stage_memory), ({"k": b"v"}, True))
        self.assertEqual(second.overrides, {"c": [Override("a", "1"), Override("b", "2", secret=True)]})

        @step("Later")
        async def later(op: Operation) -> None:
            op.save_details({"value": (await op.recall("k") or b"").decode(), "missing": await op.recall("x"),
                             "overrides": len((await op.overrides())["c"])})
        self.assertEqual((await run(later, second.next())).details, {"value": "v", "missing": None, "overrides": 2})

    async def test_lost_memory_repeats_the_stage(self) -> None:
        @step("Reads")
        async def reads(op: Operation) -> None:
            await op.recall("k")

        @step("Writes")
        async def writes(op: Operation) -> None:
            op.remember("k", b"v")
        for s in (reads, writes):
            got = await run(s, Given(lost_memory=True))
            self.assertEqual((got.outcome, got.error), ("stage lost", None))

    async def test_unreadable_memory_is_a_retry(self) -> None:
        class Broken(DictMemory):
            async def read(self, name: str) -> bytes | None:
                raise OSError("sealed with an unknown key")

        async def reads(op: Operation) -> Any:
            try:
                await op.recall("k")
            except StepError:
                raise StepError("my own words") from None
        given = Given()
        op = Operation(given.command("Reads"), "test", Broken(), given.ask, None)  # type: ignore[arg-type]
        got = await Execution(Step("Reads", reads), op).run()
        assert got
        self.assertEqual(got["outcome"], "retry")
        self.assertIn("unknown key", str(got["error"]))

    async def test_partial_write_is_reported(self) -> None:
        class Full(DictMemory):
            async def put(self, name: str, value: bytes) -> None:
                if self:
                    raise OSError("it is full")
                self[name] = value

        async def writes(op: Operation) -> None:
            op.remember("a", b"v")
            op.remember("b", b"v")
        given = Given()
        op = Operation(given.command("Writes"), "test", Full(), given.ask, None)  # type: ignore[arg-type]
        got = await Execution(Step("Writes", writes), op).run() or {}
        self.assertEqual((got["outcome"], got.get("stageMemory")), ("retry", True))

    async def test_secret_override_of_json_is_removed_from_texts(self) -> None:
        @step("Leaks")
        async def leaks(op: Operation) -> Outcome:
            await op.overrides()
            return skip("it is short-s3cret")
        got = await run(leaks, Given(overrides={"c": [Override("k", '{"x": "short-s3cret"}', secret=True)]}))
        self.assertEqual(got.message, "it is [redacted]")

    async def test_silent_memory_is_a_retry_in_seconds(self) -> None:
        class Silent(DictMemory):
            error: Exception = TimeoutError()

            async def put(self, name: str, value: bytes) -> None:
                raise self.error

            async def read(self, name: str) -> bytes | None:
                raise self.error

        async def writes(op: Operation) -> None:
            op.remember("k", b"v")

        async def reads(op: Operation) -> None:
            await op.recall("k")
        given, memory = Given(), Silent()
        for memory.error, after in ((TimeoutError(), 5), (NoAnswer("no responders"), 5), (OSError("it is full"), 0)):
            for run_step in (writes, reads):
                op = Operation(given.command("Uses"), "test", memory, given.ask, None)  # type: ignore[arg-type]
                got = await Execution(Step("Uses", run_step), op).run()
                assert got
                self.assertEqual((got["outcome"], got["retryAfter"]), ("retry", after), f"{run_step.__name__}: {memory.error!r}")

    async def test_kept_value_is_there_in_the_next_operation(self) -> None:
        @step("Keeps")
        async def keeps(op: Operation) -> None:
            await op.keep({"n": (await op.kept() or {"n": 0})["n"] + 1})
            op.save_details({"neighbours": await op.neighbours()})
        given = Given(neighbours=3)
        for n in (1, 2):
            self.assertEqual((await run(keeps, given)).details, {"neighbours": 3})
            self.assertEqual(given.kept, {"test": {"n": n}})


class TestEnd(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.began = asyncio.Event()

    async def ended(self, why: str, saves: bool = False) -> Any:
        @step("Sleeps")
        async def sleeps(op: Operation) -> None:
            if saves:
                op.save_details({"id": 1})
            self.began.set()
            await asyncio.Event().wait()
        given = Given()
        execution = Execution(sleeps, Operation(given.command("Sleeps"), "test", None, given.ask, None))  # type: ignore[arg-type]
        running = asyncio.create_task(execution.run())
        await self.began.wait()
        execution.end(why, f"because of {why}")
        return await running

    async def test_cancelled_step_is_a_retry_with_its_details(self) -> None:
        got = await self.ended("cancelled", saves=True)
        self.assertEqual((got["outcome"], got["error"]["reason"], got["details"]), ("retry", "err_keb_cancelled", {"id": 1}))

    async def test_stopping_worker_gives_the_command_back(self) -> None:
        self.assertTrue((await self.ended("stopping"))["interrupted"])

    async def test_stopping_worker_publishes_saved_details(self) -> None:
        got = await self.ended("stopping", saves=True)
        self.assertEqual((got["interrupted"], got["outcome"], got["error"]["reason"]), (False, "retry", "err_keb_timeout"))

    async def test_time_limit_ends_the_step(self) -> None:
        @step("Sleeps")
        async def sleeps(op: Operation) -> None:
            await asyncio.Event().wait()
        got = await run(sleeps, Given(limit=0.01))
        self.assertEqual((got.outcome, (got.error or {})["reason"]), ("retry", "err_keb_timeout"))

    async def test_call_that_the_time_limit_ended_has_its_reason(self) -> None:
        @step("Calls")
        async def calls(op: Operation) -> Outcome | None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return retry(90, TimeoutError("slow"))
            return None
        got = await run(calls, Given(limit=0.01))
        self.assertEqual((got.retry_after, (got.error or {})["reason"]), (90, "err_keb_timeout"))

    async def test_log_of_a_step_keeps_extra_fields(self) -> None:
        @step("Logs")
        async def logs(op: Operation) -> None:
            op.log.warning("record created", extra={"record": 7})
        with self.assertLogs("keb_worker.step") as logged:
            await run(logs)
        self.assertEqual([(r.__dict__["step"], r.__dict__["record"]) for r in logged.records], [("Logs", 7)])

    async def test_late_step_begins_before_it_is_ended(self) -> None:
        @step("Begins")
        async def begins(op: Operation) -> None:
            op.save_details({"begun": True})
            await asyncio.Event().wait()
        got = await run(begins, Given(limit=-1))
        self.assertEqual((got.outcome, got.details), ("retry", {"begun": True}))

    async def test_step_that_asks_for_more_time_has_it(self) -> None:
        @step("Sleeps")
        async def sleeps(op: Operation) -> None:
            limit = await op.extend(60)
            await asyncio.sleep(0.1)
            op.save_details({"left": limit == op.execute_before})
        self.assertEqual((await run(sleeps, Given(limit=0.05))).details, {"left": True})
        got = await run(sleeps, Given(limit=0.05, extension=0.01))
        self.assertEqual((got.outcome, (got.error or {})["reason"]), ("retry", "err_keb_timeout"))

    async def test_step_that_ignores_its_end_is_overdue(self) -> None:
        release, ended = asyncio.Event(), asyncio.Event()

        async def ignores(op: Operation) -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    ended.set()
        given = Given(limit=0.01)
        op = Operation(given.command("Ignores"), "test", None, given.ask, None)  # type: ignore[arg-type]
        execution = Execution(Step("Ignores", ignores), op)
        running = asyncio.create_task(execution.run())
        await ended.wait()
        self.assertTrue(execution.is_running and execution.op.is_overdue() and not execution.op.is_overdue(60))
        release.set()
        self.assertEqual((await running or {})["outcome"], "succeeded")

    async def test_unwanted_exception_is_not_logged(self) -> None:
        async def unwanted() -> bool:
            return False
        given, logged = Given(), list[Any]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
        op = Operation(given.command("Returns"), "test", None, given.ask, None)  # type: ignore[arg-type]
        await Execution(returns(ValueError(SECRET)), op).run(wanted=unwanted)
        gc.collect()
        self.assertEqual(logged, [])

    async def test_unwanted_result_writes_nothing(self) -> None:
        @step("Writes")
        async def writes(op: Operation) -> None:
            op.remember("k", b"v")

        async def unwanted() -> bool:
            return False
        given, memory = Given(), DictMemory()
        execution = Execution(writes, Operation(given.command("Writes"), "test", memory, given.ask, None))  # type: ignore[arg-type]
        self.assertEqual((await execution.run(wanted=unwanted), memory), (None, {}))


if __name__ == "__main__":
    unittest.main()
