"""Pulls commands, executes steps and publishes their results (docs/wire-contract.md)."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NATSError

from . import wire
from .execution import Execution, Step
from .mask import mask_text
from .memory import StageMemory
from .metrics import Metrics, span_of
from .operation import Operation
from .seal import Keyring

log = logging.getLogger("keb_worker")

ACK_WAIT = 10.0
PULL_EXPIRY = 2.0
BUSY = 1.0  # seconds until a command that is given back comes again
UNPUBLISHED = 5.0
STOP_GRACE = 2.0
REQUEST_TIMEOUT = 5.0
REFUSED = 15.0

#: Answers a question: from its JSON to that of the answer.
Question = Callable[[Any], Awaitable[Any]]


@dataclass
class Config:
    """The settings of a worker."""

    name: str
    version: str = ""
    concurrency: int = 32
    rate_limit: float = 0  # steps started per second; 0 is no limit
    drain_timeout: float = 20.0
    keys: Keyring | None = None
    questions: Mapping[str, Question] = field(default_factory=dict)  # by subject

    def __post_init__(self) -> None:
        if not wire.is_worker(self.name):
            raise ValueError(f'worker name {self.name!r}: use lower-case letters, digits and "-", at most 32 of them')
        if not 1 <= self.concurrency <= 10_000 or self.rate_limit < 0 or self.drain_timeout < 0:
            raise ValueError("concurrency: want 1 to 10000; rate_limit and drain_timeout: must not be negative")
        for subject in self.questions:
            if not subject.startswith("keb.ask."):
                raise ValueError(f"question {subject!r}: the subject must begin with keb.ask")


@dataclass(eq=False)
class _Taken:
    """A command between its delivery and its acknowledgement."""

    msg: Msg
    command: wire.Command
    execution: Execution | None = None
    abandoned: bool = False


class Worker:
    """Executes the steps of one worker."""

    def __init__(self, config: Config, steps: Iterable[Step], nc: Client, metrics: Metrics | None = None) -> None:
        self.config, self.nc = config, nc
        listed = list(steps)
        self.steps = {step.name: step for step in listed}
        if len(self.steps) < len(listed) or not self.steps and not config.questions:
            raise ValueError("want at least one step or question, and each step once")
        self.metrics = metrics or Metrics(config.name, self.steps, config.concurrency)
        self._refused = ("", 0.0)  # why and when the last result was not stored
        self.is_running = False
        self._taken: dict[str, _Taken] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._arrivals: asyncio.Queue[Msg | None] = asyncio.Queue()
        self._freed = asyncio.Event()
        self._used = 0
        self._stopping = self._draining = False
        self._kept_back: list[Msg] = []
        self._connections = 0
        self._next_start = 0.0

    @property
    def problem(self) -> str:
        """Why the worker is not ready; empty if it is. A refusal that no later result confirms counts for 15 s."""
        text, at = self._refused
        return "not connected" if not self.nc.is_connected else text if asyncio.get_running_loop().time() < at + REFUSED else ""

    async def reconnected(self) -> None:
        """Tells the worker that the connection was replaced: requests in flight are lost."""
        self._connections += 1
        self.metrics.connected.set(1)
        self._arrivals.put_nowait(None)

    async def run(self, stop: asyncio.Event) -> list[str]:
        """Executes steps until stop is set, then drains. It returns the steps that did not end."""
        self.is_running = True
        self.metrics.connected.set(1)
        served = await self._serve()
        log.info("worker %s %s started, steps %s", self.config.name, self.config.version, ",".join(sorted(self.steps)))
        pulling = asyncio.create_task(self._pull(stop)) if self.steps else None
        await stop.wait()
        self._stopping = True
        self._freed.set()
        end = asyncio.get_running_loop().time() + self.config.drain_timeout
        for sub in served:
            await self._settle(sub.unsubscribe())
        if pulling:
            await pulling
        for msg in sorted(self._kept_back, key=lambda m: m.metadata.sequence.stream):
            await self._settle(msg.nak())
        await self._idle(end - asyncio.get_running_loop().time())
        for t in self._taken.values():
            if t.execution:
                t.execution.end("stopping", "the worker stops")
        self._draining = True
        await self._idle(STOP_GRACE)
        stuck = sorted({t.command.step for t in self._taken.values() if t.execution})
        log.info("worker %s stopped", self.config.name)
        return stuck

    async def _idle(self, within: float) -> None:
        """Waits for the tasks of commands, without those of abandoned steps."""
        end = asyncio.get_running_loop().time() + within
        while self._used and (left := end - asyncio.get_running_loop().time()) > 0:
            self._freed.clear()
            try:
                await asyncio.wait_for(self._freed.wait(), left)
            except TimeoutError:
                return

    async def _serve(self) -> list[Any]:
        """Registers the worker as a micro service, and listens for cancels and questions."""
        c, identity = self.config, secrets.token_hex(11)
        name, subs = f"keb-worker-{c.name}", []
        metadata = {"worker": c.name, "version": c.version, "steps": ",".join(sorted(self.steps))}
        about = {"name": name, "id": identity, "version": wire.service_version(c.version), "metadata": metadata}
        started = wire.format_time(datetime.now(UTC))
        ping: dict[str, Any] = {"name": "ping", "subject": wire.worker_subject(c.name, "ping"), "queue_group": "q", "metadata": None}

        def stats() -> dict[str, Any]:
            data = {"commands": [i for i, t in self._taken.items() if not t.abandoned]}
            figures = {"num_requests": 0, "num_errors": 0, "last_error": "", "processing_time": 0, "average_processing_time": 0}
            return {"started": started, "endpoints": [{**ping, **figures, "data": data}]}

        async def answer(msg: Msg, value: Any) -> None:
            if msg.reply:
                await self.nc.publish(msg.reply, wire.encode_json(value))

        answers: dict[str, Callable[[], dict[str, Any]]] = {
            "PING": dict, "INFO": lambda: {"description": f"KEB step worker {c.name}", "endpoints": [ping]}, "STATS": stats}
        for verb, more in answers.items():
            async def respond(msg: Msg, verb: str = verb, more: Callable[[], dict[str, Any]] = more) -> None:
                await answer(msg, {**about, "type": f"io.nats.micro.v1.{verb.lower()}_response", **more()})
            for subject in (f"$SRV.{verb}", f"$SRV.{verb}.{name}", f"$SRV.{verb}.{name}.{identity}"):
                subs.append(await self.nc.subscribe(subject, cb=respond))

        async def pong(msg: Msg) -> None:
            await answer(msg, {"worker": c.name, "version": c.version, "steps": sorted(self.steps)})

        subs.append(await self.nc.subscribe(ping["subject"], queue="q", cb=pong))
        for subject, ask in c.questions.items():
            async def question(msg: Msg, ask: Question = ask) -> None:
                self._spawn(self._answer(msg, ask))
            subs.append(await self.nc.subscribe(subject, queue=name, cb=question))
        await self.nc.subscribe(wire.worker_subject(c.name, "cancel"), cb=self._cancel)  # also while it drains
        return subs

    async def _answer(self, msg: Msg, ask: Question) -> None:
        try:
            wait = min(float((msg.headers or {}).get("Keb-Wait", 5000)) / 1000, 60)
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
            if (free := self.config.concurrency - self._used) <= 0:
                self._freed.clear()
                await self._freed.wait()
                continue
            number += 1
            try:
                if not self.nc.is_connected:
                    await self._pause(stop)
                    continue
                await self._pull_once(f"{inbox}.{number}", free, stop)
            except NATSError as e:
                log.warning("no commands: %s", e)
                await self._pause(stop)
        if self.nc.is_connected:
            await self._settle(sub.drain())  # type: ignore[no-untyped-call]  # the server has sent everything, and arrive has it
        while not self._arrivals.empty():
            if (msg := self._arrivals.get_nowait()) and msg.reply.startswith("$JS.ACK."):
                self._arrive(msg)

    async def _pull_once(self, reply: str, batch: int, stop: asyncio.Event) -> None:
        request = {"batch": batch, "expires": int(PULL_EXPIRY * 1e9)}
        await self.nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{wire.STREAM}.{self.config.name}", wire.encode_json(request), reply=reply)
        loop, got = asyncio.get_running_loop(), 0
        end = loop.time() + PULL_EXPIRY + 3  # without an answer by then, the request was lost
        while got < batch and (left := end - loop.time()) > 0:
            try:
                msg = await asyncio.wait_for(self._arrivals.get(), left)
            except TimeoutError:
                return
            if msg is None:
                return  # the connection was replaced, and the request is lost
            if msg.reply.startswith("$JS.ACK."):
                got += 1
                self._arrive(msg)
            elif msg.subject == reply and (status := (msg.headers or {}).get("Status")) != "100":
                if status != "408":  # the consumer is missing or was deleted, or its server stops
                    log.debug("no commands: %s %s", status, (msg.headers or {}).get("Description"))
                    await self._pause(stop)
                return

    async def _pause(self, stop: asyncio.Event) -> None:
        try:
            await asyncio.wait_for(stop.wait(), 0.25)
        except TimeoutError:
            pass

    def _arrive(self, msg: Msg) -> None:
        if self._stopping:
            self._kept_back.append(msg)  # the open pull would get it again
        elif self._used >= self.config.concurrency:  # of a pull before the connection was replaced
            self._spawn(self._settle(msg.nak(delay=BUSY)))
        else:
            self._used += 1
            self._spawn(self._handle(msg))

    def _spawn(self, work: Any) -> None:
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

    async def _ignore(self, reason: str, what: Awaitable[Any] | None = None) -> None:
        self.metrics.ignored[reason].inc()
        if what is not None:
            await self._settle(what)

    async def _handle(self, msg: Msg) -> None:
        taken: _Taken | None = None
        deliveries = msg.metadata.num_delivered
        self.metrics.consumed.inc()
        self.metrics.redelivered.inc(int(deliveries > 1))
        try:
            taken = await self._admit(msg)
            if taken:
                await self._execute(taken, deliveries)
        except Exception:
            log.exception("command not executed, it comes again")
        finally:
            if taken:
                self._taken.pop(taken.command.id, None)
            if not (taken and taken.abandoned):
                self._free()

    async def _admit(self, msg: Msg) -> _Taken | None:
        """Reads a command, and settles one that must not be executed."""
        try:
            command = wire.read_command(msg.headers, msg.data)
        except (ValueError, RecursionError) as e:
            await self._ignore("unreadable", self._dead(msg, str(e)))
            return None
        if command.step not in self.steps:
            await self._ignore("unknown_step", msg.nak(delay=BUSY))  # another version may have it
            return None
        now = datetime.now(UTC)
        if now >= command.execute_before:
            await self._ignore("late", msg.ack())  # the orchestrator sends it again if it needs it
            return None
        if other := self._taken.get(command.id):
            if now >= other.command.execute_before:
                await self._ignore("overdue", msg.nak(delay=BUSY))
            else:  # the running execution answers for both
                await self._ignore("duplicate", msg.ack() if other.command.dispatch != command.dispatch else None)
            return None
        taken = self._taken[command.id] = _Taken(msg, command)
        if msg.metadata.num_delivered > 1 and (current := await self._is_current(command, 1.0)) is not True:
            del self._taken[command.id]
            await self._ignore(*(("outdated", msg.ack()) if current is False else ("unchecked", msg.nak(delay=BUSY))))
            return None
        return taken

    async def _is_current(self, command: wire.Command, timeout: float) -> bool | None:
        """Asks whether the orchestrator still waits for a command; None without an answer."""
        ref = {"operationId": command.operation["id"], "cursor": command.cursor}
        try:
            answer = await self._ask("current", {"commands": [ref]}, timeout)
            return any(c == ref for c in answer["current"])
        except Exception as e:
            log.warning("no answer whether a command is current, it is delayed: %s", mask_text(str(e)))
            return None

    async def _ask(self, kind: str, members: dict[str, Any], timeout: float = 10.0) -> dict[str, Any]:
        subject = wire.ask_subject(self.config.name, kind)
        headers = {"Keb-Wait": str(int(timeout * 1000))}
        answer = wire.decode_json((await self.nc.request(subject, wire.encode_json(members), timeout=timeout, headers=headers)).data)
        if answer.get("error"):
            raise OSError(answer["error"])
        return dict(answer)

    async def _execute(self, t: _Taken, deliveries: int) -> None:
        beats = asyncio.create_task(self._progress(t))
        try:
            if not await self._paced():
                return await self._settle(t.msg.nak())
            await self._run(t, deliveries)
        finally:
            beats.cancel()

    async def _run(self, t: _Taken, deliveries: int) -> None:
        c, o = t.command, t.command.operation
        memory = StageMemory(self.nc, self.config.keys, c) if self.config.keys else None
        fields = {"operation_id": o["id"], "instance_id": o["instanceId"], "stage": c.stage, "step": c.step, "attempt": c.step_attempt}
        op = Operation(c, self.config.name, memory, self._ask, logging.LoggerAdapter(logging.getLogger("keb_worker.step"), fields))
        self.metrics.running.inc()
        with span_of(self.config.name, t.msg.subject, c, deliveries) as span:
            t.execution = Execution(self.steps[c.step], op)
            r = await t.execution.run(lambda: self._abandon(t))
            t.execution = None
            (self.metrics.abandoned if t.abandoned else self.metrics.running).dec()
            wanted = not t.abandoned or await self._is_wanted(c)
            span.end(r, "abandoned" if not wanted else "interrupted" if r.interrupted else r.outcome)
        if r.interrupted and wanted:
            await self._settle(t.msg.nak())
        if r.interrupted or not wanted:
            return
        self.metrics.executed(c.step, r)
        level = logging.ERROR if r.outcome == "failed" else logging.WARNING if r.error else logging.DEBUG
        op.log.log(level, "step ended: %s %s", r.outcome, r.error or r.message)
        await self._publish(t, span.traceparent, r)

    async def _paced(self) -> bool:
        """Waits for the rate limit. It reports False if the worker stops meanwhile."""
        if self.config.rate_limit:
            loop = asyncio.get_running_loop()
            self._next_start = max(self._next_start + 1 / self.config.rate_limit, loop.time())
            while (left := self._next_start - loop.time()) > 0 and not self._stopping:
                await asyncio.sleep(min(left, 0.5))
        return not self._stopping

    async def _progress(self, t: _Taken) -> None:
        while True:
            await asyncio.sleep(ACK_WAIT / 3)
            if datetime.now(UTC) >= t.command.execute_before:
                return
            await self._settle(t.msg.in_progress())

    def _abandon(self, t: _Taken) -> None:
        t.abandoned = True
        self.metrics.running.dec()
        self.metrics.abandoned.inc()
        self._free()
        log.error("step %s of operation %s did not return after its time limit and is abandoned", t.command.step, t.command.operation["id"])

    async def _is_wanted(self, c: wire.Command) -> bool:
        while (current := await self._is_current(c, REQUEST_TIMEOUT)) is None and not self._draining:
            await asyncio.sleep(BUSY)
        return current is True

    async def _publish(self, t: _Taken, traceparent: str, r: wire.Result) -> None:
        """Publishes a result until the stream has stored it, and then acknowledges the command."""
        subject, headers, body = wire.result_message(self.config.name, self.config.version, t.command, r)
        if traceparent:
            headers["ce-traceparent"] = traceparent
        while True:
            connection = self._connections
            try:
                await self._stored(subject, body, headers)
                break
            except (NATSError, OSError) as e:
                problem = str(e)
            lost = not self.nc.is_connected or connection != self._connections
            if not lost or self._draining:
                self._refused = (problem, asyncio.get_running_loop().time())
                self.metrics.unpublished.inc()
                self.metrics.failures.inc()
                log.error("result of %s not published, the step will be executed again: %s", t.command.dispatch_id, problem)
                return await self._settle(t.msg.nak(delay=UNPUBLISHED))
            await asyncio.sleep(0.1)
        self._refused = ("", 0.0)
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
        headers, data = wire.dead_letter(
            self.config.name, reason, msg.subject, sequence, nanoseconds, msg.headers, msg.data, self.nc.max_payload)
        try:
            await self._stored(f"keb.dead.{wire.STREAM}", data, headers)
            self.metrics.dead.inc()
            await self._settle(msg.term())
            log.warning("message moved to dead letters: %s", mask_text(reason))
        except (NATSError, OSError) as e:
            log.error("dead letter not published: %s", e)
            await self._settle(msg.nak(delay=min(UNPUBLISHED * 2 ** min(msg.metadata.num_delivered - 1, 10), 300)))
