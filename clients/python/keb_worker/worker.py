"""Pulls commands, executes steps and publishes their results (docs/wire-contract.md)."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NATSError

from . import wire
from .mask import mask_text
from .memory import StageMemory
from .metrics import Metrics, execution_attributes, note, span_of
from .operation import Execution, Log, Operation, Step
from .settings import Settings

log = logging.getLogger("keb_worker")

PULL_EXPIRY = 1.0
PAUSE = 0.25  # until the worker looks for the consumer again
FROZEN = 3.0  # age of a pull whose commands another replica may have executed meanwhile
BUSY = 1.0  # seconds until a command that is given back comes again
UNPUBLISHED = 5.0
ABANDONED = 3.0  # for a step to return after its time limit
TOO_LARGE = (10054, 10097)  # error codes of a stream
EXTENDED = 600.0  # for which a late command is kept without an answer whether it was extended
WAIT = 5.0  # for the answer to a question without a valid Keb-Wait
MAX_QUESTIONS = 64  # that are answered at once
STOP_GRACE = 2.0
REQUEST_TIMEOUT = 5.0

#: Answers a question: from its JSON to that of the answer.
Question = Callable[[Any], Awaitable[Any]]


class _Taken(Execution):
    """A command between its delivery and its acknowledgement."""

    def __init__(self, msg: Msg, command: wire.Command, step: Step, op: Operation) -> None:
        super().__init__(step, op)
        self.msg, self.command, self.id = msg, command, wire.command_id(command)
        self.abandoned = False
        self.ticking: asyncio.Task[None] | None = None


class _Refused(OSError):
    """A stream will never accept a message, because it or its headers are too large."""


class _Ignored(Exception):
    """A command that must not be executed here and now, and what settles it."""

    def __init__(self, reason: str, settle: Awaitable[Any] | None) -> None:
        self.reason, self.settle = reason, settle


async def settle(what: Awaitable[Any]) -> None:
    """Sends an acknowledgement or an answer. If an acknowledgement is lost, the command is delivered again."""
    try:
        await what
    except NATSError as e:
        log.warning("message not settled: %s", e)


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
        self.metrics = Metrics(name, self.steps)
        self.metrics.running.set_function(lambda: len(self._running(False)))
        self.metrics.abandoned.set_function(lambda: len(self._running(True)))
        self.metrics.concurrency.set(settings.concurrency)
        self.metrics.connected.set_function(lambda: int(nc.is_connected))
        self.is_running = False
        self._connected_at = datetime.now(UTC).timestamp()
        self._refused = ""  # why the last result was not stored
        self._taken: dict[str, _Taken] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._answering = asyncio.Semaphore(MAX_QUESTIONS)
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()
        self._draining = False
        self._kept_back: list[Msg] = []  # to give back when no pull is open: earlier, they would come back
        self._next_start = 0.0

    def _running(self, abandoned: bool) -> list[str]:
        return [t.step.name for t in list(self._taken.values()) if t.is_running and t.abandoned == abandoned]

    def _slots(self) -> list[str]:
        return [t.id for t in self._taken.values() if not t.abandoned]

    @property
    def problem(self) -> str:
        """Why the worker is not ready; empty if it is."""
        return self._refused if self.nc.is_connected else "not connected"

    async def connected(self) -> None:
        """Tells the worker that it has a new connection. What the bus stored before that may have been delivered before."""
        self._connected_at = datetime.now(UTC).timestamp()

    async def run(self, stop: asyncio.Event) -> list[str]:
        """Executes steps until stop is set, then drains. It returns the steps that did not end."""
        self.is_running, self._stop = True, stop
        served = await self._serve()
        log.info("worker %s %s started, steps %s", self.name, self.version, ",".join(sorted(self.steps)))
        pulling = asyncio.create_task(self._pull())
        await stop.wait()
        self._changed.set()
        for sub in served:
            await settle(sub.unsubscribe())
        await pulling
        for msg in self._kept_back:
            await settle(msg.nak())
        await self._idle(self.settings.drain_timeout)
        for t in self._taken.values():
            t.end("stopping", "the worker stops")
        self._draining = True
        await self._idle(STOP_GRACE)
        log.info("worker %s stopped", self.name)
        return sorted(self._running(False) + self._running(True))

    async def _idle(self, within: float) -> None:
        """Waits until no slot is used. Abandoned steps use none."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._slots():
                    await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _serve(self) -> list[Any]:
        """Registers the micro service, and subscribes to pings, questions and notices. It returns the subscriptions that a drain ends."""
        service, steps = f"keb-worker-{self.name}", sorted(self.steps)
        identity = {"name": service, "id": secrets.token_hex(11), "version": wire.service_version(self.version),
                    "metadata": {"worker": self.name, "version": self.version, "steps": ",".join(steps)}
                    | ({"ramped": "true"} if self.settings.ramped else {})}
        ping = {"name": "ping", "subject": wire.worker_subject(self.name, "ping"), "queue_group": "q"}
        idle = {"num_requests": 0, "num_errors": 0, "last_error": "", "processing_time": 0, "average_processing_time": 0}
        started = wire.format_time(datetime.now(UTC))

        async def answer(subject: str, body: Callable[[], dict[str, Any]], queue: str = "") -> Any:
            async def respond(msg: Msg) -> None:
                await settle(self.nc.publish(msg.reply, wire.encode_json(body())))
            return await self.nc.subscribe(subject, queue=queue, cb=respond)

        answers: dict[str, Callable[[], dict[str, Any]]] = {
            "ping": dict,
            "info": lambda: {"description": f"KEB step worker {self.name}", "endpoints": [ping]},
            "stats": lambda: {"started": started, "endpoints": [ping | idle | {"data": {"commands": self._slots()}}]}}
        subs = [await answer(ping["subject"], lambda: {"worker": self.name, "version": self.version, "steps": steps}, "q")]
        for verb, scope in itertools.product(answers, ("", f".{service}", f".{service}.{identity['id']}")):
            def reply(verb: str = verb) -> dict[str, Any]:
                return identity | {"type": f"io.nats.micro.v1.{verb}_response"} | answers[verb]()
            subs.append(await answer(f"$SRV.{verb.upper()}{scope}", reply))
        if self.settings.ramped:  # it reports its commands while it drains
            subs = []
        for subject, ask in self.questions.items():
            async def question(msg: Msg, ask: Question = ask) -> None:
                self._spawn(self._answer(msg, ask))
            subs.append(await self.nc.subscribe(subject, queue=service, cb=question))
        await self.nc.subscribe(wire.worker_subject(self.name, "cancel"), cb=self._cancel)  # also while it drains
        return subs

    async def _answer(self, msg: Msg, ask: Question) -> None:
        headers = msg.headers or {}
        wait = headers.get("Keb-Wait", "")
        seconds = min(int(wait) / 1000, 60) if re.fullmatch(r"[1-9]\d{0,8}", wait, re.ASCII) else WAIT
        span = span_of(f"answer {msg.subject}", "SERVER", {"messaging.destination.name": msg.subject}, headers.get("traceparent", ""))
        async with self._answering:
            with span:
                try:
                    async with asyncio.timeout(seconds):
                        body = wire.encode_json(await ask(wire.decode_json(msg.data)))
                    if len(body) > self.nc.max_payload:
                        raise ValueError(f"the answer has {len(body)} bytes, at most {self.nc.max_payload} are possible: ask for less")
                except Exception as e:
                    body = wire.encode_json({"error": mask_text(str(e) or type(e).__name__)})
        await settle(self.nc.publish(msg.reply, body))

    async def _cancel(self, msg: Msg) -> None:
        try:
            notice = wire.decode_json(msg.data)
            t = self._taken.get(f"{notice['operationId']}/{notice['cursor']}")
        except (ValueError, TypeError, KeyError) as e:
            return log.warning("notice of a cancelled command is unreadable: %s", type(e).__name__)
        if t:
            t.end("cancelled", f"the command was cancelled: {notice.get('reason', '')}")

    async def _pull(self) -> None:
        """Asks for as many commands as there are free slots, again and again."""
        while not self._stop.is_set():
            if (free := self.settings.concurrency - len(self._slots())) <= 0 or not self.steps:
                await self._change()
                continue
            try:
                if not self.nc.is_connected or not await self._pull_once(free):
                    await asyncio.sleep(PAUSE)
            except (NATSError, TimeoutError) as e:  # the request or its answer was lost
                log.debug("no commands: %s", e)
                await asyncio.sleep(PAUSE)

    async def _pull_once(self, batch: int) -> bool:
        """Reports whether the consumer exists."""
        inbox = self.nc.new_inbox()
        sub = await self.nc.subscribe(inbox)
        try:
            consumer = f"{self.name}_ramped" if self.settings.ramped else self.name
            request = wire.encode_json({"batch": batch, "expires": int(PULL_EXPIRY * 1e9)})
            await self.nc.publish(f"$JS.API.CONSUMER.MSG.NEXT.{wire.STREAM}.{consumer}", request, reply=inbox)
            asked = time.time()
            while batch:
                msg = await self._next(sub)
                if time.time() - asked > FROZEN:  # a step blocked the event loop, or the machine was suspended
                    await self.connected()
                if msg.reply.startswith("$JS.ACK."):
                    batch -= 1
                    self._spawn(self._handle(msg))
                    await asyncio.sleep(0)  # the command takes its slot
                elif (status := (msg.headers or {}).get("Status")) != "100":
                    return bool(status == "408")  # otherwise the consumer is missing or was deleted, or its server stops
            return True
        finally:
            await sub.unsubscribe()

    async def _next(self, sub: Any) -> Msg:
        try:
            msg: Msg = await sub.next_msg(timeout=PULL_EXPIRY + 1)
        except TimeoutError:  # if a step blocked the event loop, messages are still in the socket: the answer to a ping comes after them
            await self.nc.flush(REQUEST_TIMEOUT)
            msg = await sub.next_msg(timeout=0.01)
        return msg

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, msg: Msg) -> None:
        """Executes a command, or settles one that must not be executed here and now."""
        t: _Taken | None = None
        self.metrics.consumed.inc()
        self.metrics.redelivered.inc(int(msg.metadata.num_delivered > 1))
        try:
            t = self._take(msg)
            await self._check(t)
            await self._execute(t)
        except _Ignored as e:
            if e.reason:
                self.metrics.ignored[e.reason].inc()
            if e.settle:
                await settle(e.settle)
        except Exception:
            log.exception("command not executed, it comes again")
        finally:
            if t and t.ticking:
                t.ticking.cancel()
                self._taken.pop(t.id, None)
            self._changed.set()

    def _is_again(self, msg: Msg) -> bool:
        """Reports whether a command may have been delivered before. A server that lost its power counts from 1 again."""
        return int(msg.metadata.num_delivered) > 1 or msg.metadata.timestamp.timestamp() < self._connected_at

    def _take(self, msg: Msg) -> _Taken:
        try:
            c = wire.read_command(msg.headers, msg.data)
        except (ValueError, RecursionError) as e:
            raise _Ignored("unreadable", self._dead(msg, mask_text(str(e)))) from None
        if c["step"] not in self.steps:
            raise _Ignored("unknown_step", msg.nak(delay=BUSY))  # another version may have it
        memory = StageMemory(self.nc, self.keys, c) if self.keys else None
        fields = {"operation_id": c["operation"]["id"], "instance_id": c["operation"]["instanceId"], "stage": c["stage"], "step": c["step"],
                  "attempt": c["stepAttempt"], "event_id": wire.dispatch_id(c)}
        op = Operation(c, self.name, memory, self._ask, Log(logging.getLogger("keb_worker.step"), fields))
        t = _Taken(msg, c, self.steps[c["step"]], op)
        other = self._taken.get(t.id)
        if op.is_overdue() and not self._is_again(msg):  # one that was delivered before may have got more time
            raise _Ignored("late", msg.ack())  # the orchestrator sends it again if it needs it
        if other and other.op.is_overdue():
            raise _Ignored("overdue", msg.nak(delay=BUSY))
        if other:  # the running execution answers for both
            raise _Ignored("duplicate", msg.ack() if other.command["dispatch"] != c["dispatch"] else None)
        if self._stop.is_set():
            self._kept_back.append(msg)
            raise _Ignored("", None)
        self._taken[t.id] = t
        t.ticking = asyncio.create_task(self._tick(t))
        return t

    async def _tick(self, t: _Taken) -> None:
        """Sends the progress that a step has reported, keeps its command from being delivered again, and frees the slot of a step that does
        not return after its time limit."""
        while True:
            left = t.op.seconds_left() + ABANDONED
            await asyncio.sleep(left if 0 < left < 1 else 1)
            if t.op.notices:
                await settle(self.nc.publish(wire.worker_subject(self.name, "progress"), wire.encode_json(t.op.notices[-1])))
                t.op.notices.clear()
            if not t.op.is_overdue():
                await settle(t.msg.in_progress())
            if t.is_running and not t.abandoned and t.op.is_overdue(ABANDONED):
                t.abandoned = True
                self._changed.set()
                t.op.log.error("step did not return after its time limit and is abandoned")

    async def _check(self, t: _Taken) -> None:
        """Ignores a command whose result is published, or not wanted in time. It waits until the rate limit allows a start."""
        current = await self._is_current(t, 1.0) if self._is_again(t.msg) else True
        if current is None and not t.op.is_overdue(EXTENDED):
            raise _Ignored("unchecked", t.msg.nak(delay=BUSY))
        if current is False:
            raise _Ignored("outdated", t.msg.ack())
        if self.settings.rate_limit:
            now = asyncio.get_running_loop().time()
            self._next_start = max(self._next_start + 1 / self.settings.rate_limit, now)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), self._next_start - now)
        if self._stop.is_set():
            raise _Ignored("", t.msg.nak())
        if t.op.is_overdue():
            raise _Ignored("late", t.msg.ack())

    async def _is_current(self, t: _Taken, timeout: float) -> bool | None:
        """Asks whether the orchestrator still waits for a command, and until when it was extended; None without an answer."""
        ref = {"operationId": t.op.id, "cursor": t.command["cursor"]}
        try:
            answer = await self._ask("current", {"commands": [ref]}, timeout)
            for e in answer.get("extended") or []:
                if ref.items() <= e.items() and e["dispatch"] == t.command["dispatch"]:
                    t.op.execute_before = datetime.fromisoformat(e["executeBefore"])
            return any(ref.items() <= c.items() for c in answer["current"])
        except Exception as e:
            log.warning("no answer whether a command is current, it is delayed: %s", mask_text(str(e)))
            return None

    async def _ask(self, kind: str, members: dict[str, Any], timeout: float = 10.0) -> dict[str, Any]:
        subject = wire.ask_subject(self.name, kind)
        with span_of(f"request {subject}", "CLIENT", {"messaging.destination.name": subject}) as (_, traceparent):
            headers = {"Keb-Wait": str(int(timeout * 1000)), "traceparent": traceparent}
            answer = wire.decode_json((await self.nc.request(subject, wire.encode_json(members), timeout=timeout, headers=headers)).data)
        if answer.get("error"):
            raise OSError(answer["error"])
        return dict(answer)

    async def _execute(self, t: _Taken) -> None:
        c, subject = t.command, t.msg.subject
        attributes = execution_attributes(self.name, subject, c, t.msg.metadata.num_delivered)
        with span_of(f"process {subject}", "CONSUMER", attributes, c["traceparent"]) as (span, traceparent):
            if span and span.is_recording():
                t.op.log.extra = {**(t.op.log.extra or {}), "trace_id": f"{span.get_span_context().trace_id:032x}"}
            r = await t.run(lambda: self._is_wanted(t))
            note(span, r)
        if not r:
            return
        if r.get("interrupted"):
            raise _Ignored("", t.msg.nak())
        took = datetime.fromisoformat(r["finishedAt"]) - datetime.fromisoformat(r["startedAt"])
        self.metrics.total[c["step"], r["outcome"]].inc()
        self.metrics.duration[c["step"]].observe(took.total_seconds())
        self.metrics.panics.inc(int(r.get("panicked", False)))
        level = logging.ERROR if r["outcome"] == "failed" else logging.WARNING if r.get("error") else logging.DEBUG
        t.op.log.log(level, "step ended: %s %s", r["outcome"], r.get("error") or r.get("message", ""))
        await self._publish(t, *wire.result_message(self.name, self.version, c, r, traceparent))

    async def _is_wanted(self, t: _Taken) -> bool:
        """Reports whether the result of a step that has returned is still wanted."""
        current = None if t.abandoned or t.op.is_overdue(ABANDONED) else True  # a blocked event loop abandons nothing
        while current is None and not self._draining:
            if (current := await self._is_current(t, REQUEST_TIMEOUT)) is None:
                await asyncio.sleep(BUSY)
        return current is True

    async def _publish(self, t: _Taken, subject: str, headers: dict[str, str], body: bytes) -> None:
        """Publishes a result until the stream has stored it, and then acknowledges the command."""
        while True:
            connected_at = self._connected_at
            try:
                await self._stored(subject, body, headers)
                break
            except (NATSError, OSError, TimeoutError) as e:
                lost = not self.nc.is_connected or connected_at != self._connected_at
                if not lost or self._draining:
                    self._refused = "the last result was not stored"
                    self.metrics.unpublished.inc()
                    self.metrics.failures.inc()
                    t.op.log.error("result not published, the step will be executed again: %s", e)
                    raise _Ignored("", t.msg.nak(delay=UNPUBLISHED)) from None
            await asyncio.sleep(0.1)
        self._refused = ""
        self.metrics.published.inc()
        await settle(t.msg.ack())

    async def _stored(self, subject: str, body: bytes, headers: dict[str, str]) -> None:
        answer = wire.decode_json((await self.nc.request(subject, body, timeout=REQUEST_TIMEOUT, headers=headers)).data)
        if error := answer.get("error"):
            kind = _Refused if error.get("err_code") in TOO_LARGE else OSError
            raise kind(f"the stream refuses it: {error.get('description')}")

    async def _dead(self, msg: Msg, reason: str) -> None:
        """Copies an unreadable message to the dead letters, cut to the limit of the server, and terminates it."""
        tokens = msg.reply.split(".")  # $JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<sequence of the consumer>.<time>.<pending>
        start = 2 if len(tokens) == 9 else 4  # after <domain>.<account>
        sequence, nanoseconds = tokens[start + 3], tokens[start + 5]
        headers, data = wire.dead_letter(self.name, reason, msg.subject, sequence, nanoseconds, msg.headers, msg.data, self.nc.max_payload)
        try:
            await self._stored(f"keb.dead.{wire.STREAM}", data, headers)
            self.metrics.dead.inc()
            await msg.term()
            log.warning("message moved to dead letters: %s", reason)
        except (NATSError, OSError, TimeoutError) as e:
            log.error("dead letter not published: %s", e)
            delay = min(UNPUBLISHED * 2 ** min(msg.metadata.num_delivered - 1, 10), 300)
            await (msg.term() if isinstance(e, _Refused) else msg.nak(delay=delay))
