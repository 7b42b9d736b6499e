"""Pulls commands, executes steps and publishes their results (docs/wire-contract.md)."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NATSError

from . import wire
from .execution import Execution, Step
from .mask import mask_text
from .memory import StageMemory
from .metrics import Metrics, execution_span, span_of
from .operation import Operation
from .settings import Settings

log = logging.getLogger("keb_worker")

ACK_WAIT = 10.0
PULL_EXPIRY = 2.0
PAUSE = 0.25  # until the worker looks for the consumer again
BUSY = 1.0  # seconds until a command that is given back comes again
UNPUBLISHED = 5.0
EXTENDED = timedelta(minutes=10)  # for which a late command is kept without an answer whether it was extended
STOP_GRACE = 2.0
REQUEST_TIMEOUT = 5.0

#: Answers a question: from its JSON to that of the answer.
Question = Callable[[Any], Awaitable[Any]]


@dataclass(eq=False)
class _Taken:
    """A command between its delivery and its acknowledgement."""

    msg: Msg
    command: wire.Command
    execution: Execution | None = None
    abandoned: bool = False
    progress: dict[str, Any] | None = None  # reported and not yet sent

    @property
    def again(self) -> bool:
        return int(self.msg.metadata.num_delivered) > 1

    @property
    def overdue(self) -> bool:
        """Reports whether the time limit has passed, which the step or an earlier delivery may have extended."""
        limit = self.execution.op.execute_before if self.execution else self.command.execute_before
        return datetime.now(UTC) >= limit


class _Ignored(Exception):
    """A command that must not be executed here and now, and what settles it."""

    def __init__(self, reason: str, settle: Awaitable[Any] | None) -> None:
        self.reason, self.settle = reason, settle


class Worker:
    """Executes the steps of one worker."""

    def __init__(self, name: str, version: str, steps: Iterable[Step], questions: Mapping[str, Question], settings: Settings,
                 nc: Client) -> None:
        listed = list(steps)
        self.name, self.version, self.questions, self.settings, self.nc = name, version, questions, settings, nc
        self.steps = {step.name: step for step in listed}
        if not wire.is_worker(name):
            raise ValueError(f'worker name {name!r}: use lower-case letters, digits and "-", at most 32 of them')
        if len(self.steps) < len(listed) or not self.steps and not questions:
            raise ValueError("want at least one step or question, and each step once")
        if wrong := [subject for subject in questions if not subject.startswith("keb.ask.")]:
            raise ValueError(f"question {wrong[0]!r}: the subject must begin with keb.ask")
        self.keys = settings.keys()
        self.metrics = Metrics(name, self.steps, {
            "keb_worker_steps_running": ("Steps that run now.", lambda: len(self._running(False))),
            "keb_worker_steps_abandoned": ("Steps that have not returned after their time limit.", lambda: len(self._running(True))),
            "keb_worker_concurrency": ("The most steps that run at once.", lambda: settings.concurrency)})
        self.metrics.connected.set_function(lambda: int(nc.is_connected))
        self.is_running = False
        self._refused = ""  # why the last result was not stored
        self._taken: dict[str, _Taken] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrivals: asyncio.Queue[Msg | None] = asyncio.Queue()
        self._freed = asyncio.Event()
        self._used = 0  # slots
        self._stopping = self._draining = False
        self._kept_back: list[Msg] = []
        self._connections = 0
        self._next_start = 0.0

    def _running(self, abandoned: bool) -> list[str]:
        return [t.command.step for t in self._taken.values() if t.execution and t.abandoned == abandoned]

    @property
    def problem(self) -> str:
        """Why the worker is not ready; empty if it is."""
        return self._refused if self.nc.is_connected else "not connected"

    async def reconnected(self) -> None:
        """Tells the worker that the connection was replaced: requests in flight are lost."""
        self._connections += 1
        self._arrivals.put_nowait(None)

    async def run(self, stop: asyncio.Event) -> list[str]:
        """Executes steps until stop is set, then drains. It returns the steps that did not end."""
        self.is_running = True
        served = await self._serve()
        log.info("worker %s %s started, steps %s", self.name, self.version, ",".join(sorted(self.steps)))
        pulling = asyncio.create_task(self._pull(stop)) if self.steps else None
        await stop.wait()
        self._stopping = True
        self._freed.set()
        for sub in served:
            await self._settle(sub.unsubscribe())
        if pulling:
            await pulling
        for msg in sorted(self._kept_back, key=lambda m: int(m.metadata.sequence.stream)):
            await self._settle(msg.nak())
        await self._idle(self.settings.drain_timeout)
        for t in self._taken.values():
            if t.execution:
                t.execution.end("stopping", "the worker stops")
        self._draining = True
        await self._idle(STOP_GRACE)
        log.info("worker %s stopped", self.name)
        return sorted(self._running(False) + self._running(True))

    async def _idle(self, within: float) -> None:
        """Waits until no slot is used. Abandoned steps use none."""
        try:
            async with asyncio.timeout(within):
                while self._used:
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            pass

    async def _serve(self) -> list[Any]:
        """Registers the micro service, and subscribes to pings, questions and notices."""
        service = f"keb-worker-{self.name}"
        identity = {"name": service, "id": secrets.token_hex(11), "version": wire.service_version(self.version),
                    "metadata": {"worker": self.name, "version": self.version, "steps": ",".join(sorted(self.steps))}}
        ping = {"name": "ping", "subject": wire.worker_subject(self.name, "ping"), "queue_group": "q"}
        idle = {"num_requests": 0, "num_errors": 0, "last_error": "", "processing_time": 0, "average_processing_time": 0}
        started = wire.format_time(datetime.now(UTC))

        def stats() -> dict[str, Any]:
            commands = [t.command.id for t in self._taken.values() if not t.abandoned]
            return {"type": "io.nats.micro.v1.stats_response", "started": started, "endpoints": [ping | idle | {"data": {"commands": commands}}]}

        async def answer(subject: str, body: Callable[[], dict[str, Any]], queue: str = "") -> Any:
            async def respond(msg: Msg) -> None:
                await self._settle(self.nc.publish(msg.reply, wire.encode_json(body())))
            return await self.nc.subscribe(subject, queue=queue, cb=respond)

        subs = [await answer(ping["subject"], lambda: {"worker": self.name, "version": self.version, "steps": sorted(self.steps)}, "q")]
        for of in ("", f".{service}", f".{service}.{identity['id']}"):
            subs += [await answer(f"$SRV.PING{of}", lambda: identity | {"type": "io.nats.micro.v1.ping_response"}),
                     await answer(f"$SRV.INFO{of}", lambda: identity | {
                         "type": "io.nats.micro.v1.info_response", "description": f"KEB step worker {self.name}", "endpoints": [ping]}),
                     await answer(f"$SRV.STATS{of}", lambda: identity | stats())]
        for subject, ask in self.questions.items():
            async def question(msg: Msg, ask: Question = ask) -> None:
                self._spawn(self._answer(msg, ask))
            subs.append(await self.nc.subscribe(subject, queue=service, cb=question))
        await self.nc.subscribe(wire.worker_subject(self.name, "cancel"), cb=self._cancel)  # also while it drains
        return subs

    async def _answer(self, msg: Msg, ask: Question) -> None:
        headers = msg.headers or {}
        with span_of(f"answer {msg.subject}", "SERVER", {"messaging.destination.name": msg.subject}, headers.get("traceparent", "")):
            try:
                wait = min(float(headers.get("Keb-Wait", 5000)) / 1000, 60)
                body = wire.encode_json(await asyncio.wait_for(ask(wire.decode_json(msg.data)), wait))
            except Exception as e:
                body = wire.encode_json({"error": mask_text(str(e) or type(e).__name__)})
        if len(body) > self.nc.max_payload:
            body = wire.encode_json({"error": f"the answer has {len(body)} bytes, at most {self.nc.max_payload} are possible: ask for less"})
        await self._settle(self.nc.publish(msg.reply, body))

    async def _cancel(self, msg: Msg) -> None:
        try:
            notice = wire.decode_json(msg.data)
            t = self._taken.get(f"{notice['operationId']}/{notice['cursor']}")
        except (ValueError, TypeError, KeyError) as e:
            return log.warning("notice of a cancelled command is unreadable: %s", type(e).__name__)
        if t and t.execution:
            log.info("step %s of operation %s cancelled: %s", t.command.step, t.command.operation["id"], notice.get("reason"))
            t.execution.end("cancelled", f"the command was cancelled: {notice.get('reason', '')}")

    async def _pull(self, stop: asyncio.Event) -> None:
        """Asks for as many commands as there are free slots, again and again."""
        inbox, number = self.nc.new_inbox(), 0

        async def arrive(msg: Msg) -> None:
            self._arrivals.put_nowait(msg)

        sub = await self.nc.subscribe(f"{inbox}.*", cb=arrive)
        while not stop.is_set():
            if (free := self.settings.concurrency - self._used) <= 0:
                self._freed.clear()
                await self._freed.wait()
                continue
            number += 1
            try:
                if not self.nc.is_connected or not await self._pull_once(f"{inbox}.{number}", free):
                    await asyncio.sleep(PAUSE)
            except NATSError as e:
                log.warning("no commands: %s", e)
                await asyncio.sleep(PAUSE)
        if self.nc.is_connected:
            await self._settle(sub.drain())  # type: ignore[no-untyped-call]  # the server has sent everything, and arrive has it
        while not self._arrivals.empty():
            if (msg := self._arrivals.get_nowait()) and msg.reply.startswith("$JS.ACK."):
                self._arrive(msg)

    async def _pull_once(self, reply: str, batch: int) -> bool:
        """Reports whether the consumer exists."""
        request = {"batch": batch, "expires": int(PULL_EXPIRY * 1e9)}
        await self.nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{wire.STREAM}.{self.name}", wire.encode_json(request), reply=reply)
        got = 0
        try:
            async with asyncio.timeout(PULL_EXPIRY + 3):  # without an answer by then, the request was lost
                while got < batch and (msg := await self._arrivals.get()):  # None: the connection was replaced, and the request is lost
                    status = (msg.headers or {}).get("Status")
                    if msg.reply.startswith("$JS.ACK."):
                        got += 1
                        self._arrive(msg)
                    elif msg.subject == reply and status != "100":
                        return status == "408"  # otherwise the consumer is missing or was deleted, or its server stops
        except TimeoutError:
            pass
        return True

    def _arrive(self, msg: Msg) -> None:
        if self._stopping:
            self._kept_back.append(msg)  # the open pull would get it again
        elif self._used >= self.settings.concurrency:  # of a pull before the connection was replaced
            self._spawn(self._settle(msg.nak(delay=BUSY)))
        else:
            self._used += 1
            self._spawn(self._handle(msg))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _free(self) -> None:
        self._used -= 1
        self._freed.set()

    async def _settle(self, what: Awaitable[Any]) -> None:
        """Sends an acknowledgement. If it is lost, the command is delivered again."""
        try:
            await what
        except NATSError as e:
            log.warning("command not settled: %s", e)

    async def _handle(self, msg: Msg) -> None:
        """Executes a command, or settles one that must not be executed here and now."""
        t: _Taken | None = None
        self.metrics.consumed.inc()
        self.metrics.redelivered.inc(int(msg.metadata.num_delivered > 1))
        try:
            t = self._take(msg)
            await self._execute(t)
        except _Ignored as e:
            if e.reason:
                self.metrics.ignored[e.reason].inc()
            if e.settle:
                await self._settle(e.settle)
        except Exception:
            log.exception("command not executed, it comes again")
        finally:
            if t:
                self._taken.pop(t.command.id, None)
            if not t or not t.abandoned:
                self._free()

    def _take(self, msg: Msg) -> _Taken:
        try:
            t = _Taken(msg, c := wire.read_command(msg.headers, msg.data))
        except (ValueError, RecursionError) as e:
            raise _Ignored("unreadable", self._dead(msg, str(e))) from None
        other = self._taken.get(c.id)
        if c.step not in self.steps:
            raise _Ignored("unknown_step", msg.nak(delay=BUSY))  # another version may have it
        if t.overdue and not t.again:  # one that was delivered before may have got more time
            raise _Ignored("late", msg.ack())  # the orchestrator sends it again if it needs it
        if other and other.overdue:
            raise _Ignored("overdue", msg.nak(delay=BUSY))
        if other:  # the running execution answers for both
            raise _Ignored("duplicate", msg.ack() if other.command.dispatch != c.dispatch else None)
        self._taken[c.id] = t
        return t

    async def _execute(self, t: _Taken) -> None:
        beats = asyncio.create_task(self._beat(t))
        try:
            current = await self._is_current(t, 1.0) if t.again else True
            if current is None and datetime.now(UTC) < t.command.execute_before + EXTENDED:
                raise _Ignored("unchecked", t.msg.nak(delay=BUSY))
            if current is False:
                raise _Ignored("outdated", t.msg.ack())
            await self._pace()
            if self._stopping:
                raise _Ignored("", t.msg.nak())
            if t.overdue:
                raise _Ignored("late", t.msg.ack())
            await self._run(t)
        finally:
            beats.cancel()

    async def _is_current(self, t: _Taken, timeout: float) -> bool | None:
        """Asks whether the orchestrator still waits for a command, and until when it was extended; None without an answer."""
        ref = {"operationId": t.command.operation["id"], "cursor": t.command.cursor}
        try:
            answer = await self._ask("current", {"commands": [ref]}, timeout)
            for e in answer.get("extended") or []:
                if ref.items() <= e.items() and e["dispatch"] == t.command.dispatch:
                    t.command = replace(t.command, execute_before=datetime.fromisoformat(e["executeBefore"]))
            return any(ref.items() <= c.items() for c in answer["current"])
        except Exception as e:
            log.warning("no answer whether a command is current, it is delayed: %s", mask_text(str(e)))
            return None

    async def _ask(self, kind: str, members: dict[str, Any], timeout: float = 10.0) -> dict[str, Any]:
        subject = wire.ask_subject(self.name, kind)
        with span_of(f"request {subject}", "CLIENT", {"messaging.destination.name": subject}) as span:
            headers = {"Keb-Wait": str(int(timeout * 1000)), "traceparent": span.traceparent}
            answer = wire.decode_json((await self.nc.request(subject, wire.encode_json(members), timeout=timeout, headers=headers)).data)
        if answer.get("error"):
            raise OSError(answer["error"])
        return dict(answer)

    async def _run(self, t: _Taken) -> None:
        c, o = t.command, t.command.operation
        memory = StageMemory(self.nc, self.keys, c) if self.keys else None
        fields = {"operation_id": o["id"], "instance_id": o["instanceId"], "stage": c.stage, "step": c.step, "attempt": c.step_attempt,
                  "event_id": c.dispatch_id}

        def report(notice: dict[str, Any]) -> None:
            t.progress = notice

        with execution_span(self.name, t.msg.subject, c, t.msg.metadata.num_delivered) as span:
            if span.trace_id:
                fields["trace_id"] = span.trace_id
            op = Operation(c, self.name, memory, self._ask, logging.LoggerAdapter(logging.getLogger("keb_worker.step"), fields), report)
            t.execution = Execution(self.steps[c.step], op)
            r = await t.execution.run(lambda: self._abandon(t), lambda: self._is_wanted(t))
            span.end(r or wire.Result(), "abandoned" if not r else "interrupted" if r.interrupted else r.outcome)
        if not r:
            return
        if r.interrupted:
            return await self._settle(t.msg.nak())
        self.metrics.executed(c.step, r)
        level = logging.ERROR if r.outcome == "failed" else logging.WARNING if r.error else logging.DEBUG
        op.log.log(level, "step ended: %s %s", r.outcome, r.error or r.message)
        await self._publish(t, wire.result_message(self.name, self.version, c, r, span.traceparent))

    async def _pace(self) -> None:
        """Waits for the rate limit, or until the worker stops."""
        if self.settings.rate_limit:
            loop = asyncio.get_running_loop()
            self._next_start = max(self._next_start + 1 / self.settings.rate_limit, loop.time())
            while (left := self._next_start - loop.time()) > 0 and not self._stopping:
                await asyncio.sleep(min(left, 0.5))

    async def _beat(self, t: _Taken) -> None:
        """Keeps a command from being delivered again, and each second sends the progress that its step has reported last."""
        loop = asyncio.get_running_loop()
        due = loop.time() + ACK_WAIT / 3
        while not t.overdue:
            await asyncio.sleep(min(1.0, due - loop.time()))
            if t.progress:
                await self._settle(self.nc.publish(wire.worker_subject(self.name, "progress"), wire.encode_json(t.progress)))
                t.progress = None
            if loop.time() >= due and not t.overdue:
                due += ACK_WAIT / 3
                await self._settle(t.msg.in_progress())

    def _abandon(self, t: _Taken) -> None:
        t.abandoned = True
        self._free()
        log.error("step %s of operation %s did not return after its time limit and is abandoned", t.command.step, t.command.operation["id"])

    async def _is_wanted(self, t: _Taken) -> bool:
        """Reports whether the result of a step that has returned is still wanted."""
        t.execution = None
        current: bool | None = None if t.abandoned else True
        while current is None and not self._draining:
            if (current := await self._is_current(t, REQUEST_TIMEOUT)) is None:
                await asyncio.sleep(BUSY)
        return current is True

    async def _publish(self, t: _Taken, message: tuple[str, dict[str, str], bytes]) -> None:
        """Publishes a result until the stream has stored it, and then acknowledges the command."""
        subject, headers, body = message
        while True:
            connection = self._connections
            try:
                await self._stored(subject, body, headers)
                break
            except (NATSError, OSError, TimeoutError) as e:
                problem = str(e)
            lost = not self.nc.is_connected or connection != self._connections
            if not lost or self._draining:
                self._refused = "the last result was not stored"
                self.metrics.unpublished.inc()
                self.metrics.failures.inc()
                log.error("result of %s not published, the step will be executed again: %s", t.command.dispatch_id, problem)
                return await self._settle(t.msg.nak(delay=UNPUBLISHED))
            await asyncio.sleep(0.1)
        self._refused = ""
        self.metrics.published.inc()
        await self._settle(t.msg.ack())

    async def _stored(self, subject: str, body: bytes, headers: dict[str, str]) -> None:
        answer = wire.decode_json((await self.nc.request(subject, body, timeout=REQUEST_TIMEOUT, headers=headers)).data)
        if error := answer.get("error"):
            raise OSError(f"the stream refuses it: {error.get('description')}")

    async def _dead(self, msg: Msg, reason: str) -> None:
        """Copies an unreadable message to the dead letters, cut to the limit of the server, and terminates it."""
        tokens = msg.reply.split(".")  # $JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<sequence of the consumer>.<time>.<pending>
        start = 2 if len(tokens) == 9 else 4  # after <domain>.<account>
        sequence, nanoseconds = tokens[start + 3], tokens[start + 5]
        headers, data = wire.dead_letter(self.name, reason, msg.subject, sequence, nanoseconds, msg.headers, msg.data, self.nc.max_payload)
        try:
            await self._stored(f"keb.dead.{wire.STREAM}", data, headers)
            self.metrics.dead.inc()
            await self._settle(msg.term())
            log.warning("message moved to dead letters: %s", mask_text(reason))
        except (NATSError, OSError, TimeoutError) as e:
            log.error("dead letter not published: %s", e)
            await self._settle(msg.nak(delay=min(UNPUBLISHED * 2 ** min(msg.metadata.num_delivered - 1, 10), 300)))
