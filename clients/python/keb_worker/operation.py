"""One execution of a step, without a bus: what the step receives, what it returns or raises, and the result that becomes of it."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import re
import socket
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from . import wire
from .mask import Secrets

MAX_VALUE = 256 << 10  # of saved details and kept values, in bytes of JSON
MAX_REMEMBERED = 512 << 10  # bytes of a remembered value
MAX_PROGRESS = 200
MAX_REMOVED, MAX_OBJECT = 100, 256
FLUSH_TIMEOUT = 5.0
MEMORY_DELAY = 5.0  # until a stage is repeated whose memory did not answer: the time in the process file is for external systems
DAY = 86_400
KEPT_BROKEN = "the kept value cannot be opened: see the broker's log"
# A call that the network failed: types, names of types in the usual libraries, and the reason.
_NETWORK: tuple[tuple[type[Exception], str, str], ...] = (
    (ConnectionRefusedError, "", "err_connection_refused"), (socket.gaierror, "", "err_unknown_host"),
    (TimeoutError, r"\w*Timeout(Error)?", "err_network_timeout"),
    (ConnectionError, "RemoteProtocolError|ProtocolError|ServerDisconnectedError|(Read|Write)Error|IncompleteRead|SSLEOFError", "err_network"))
_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)


class StepError(Exception):
    """A classified error. It fails the step, or, if it is temporary, retries it. Operators see its texts, so they must hold no secret."""

    def __init__(self, message: str, *, component: str = "", reason: str = "", temporary: bool = False) -> None:
        super().__init__(message)
        self.component, self.reason, self.temporary = component, reason, temporary


class Unavailable(StepError):
    """The broker or the stage memory did not answer, or refused. It is temporary."""

    def __init__(self, message: str) -> None:
        super().__init__(message, component="keb", reason="err_keb_internal", temporary=True)


class NoAnswer(OSError):
    """The stage memory has not answered, or does not exist at present."""


class StageLost(StepError):
    """The stage memory is lost. A step need not handle it: the stage is repeated."""


@dataclass(frozen=True)
class Outcome:
    """What a step returns; None means that it is done."""

    outcome: str
    message: str = ""
    after: float = 0
    error: Exception | None = None
    event_key: str = ""


def _error(error: Exception | str) -> Exception:
    return StepError(error) if isinstance(error, str) else error


def _chain(error: BaseException | None) -> list[BaseException]:
    """Lists an error and its causes, also those that urllib names as the reason."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        inner, context = getattr(error, "reason", None), None if error.__suppress_context__ else error.__context__
        error = inner if isinstance(inner, BaseException) else error.__cause__ or context
    return found


def _network_reason(error: BaseException) -> str:
    """Returns the reason of a call that the network failed, or ""."""
    errors = [e for e in _chain(error) if not isinstance(e, StepError)]
    found = [reason for e in errors for kind, names, reason in _NETWORK if isinstance(e, kind) or re.fullmatch(names, type(e).__name__)]
    # Wrappers such as httpx.ConnectError know less than their causes.
    is_call = any("Connect" in type(e).__name__ or isinstance(e, OSError) and e.errno in _UNREACHABLE for e in errors)
    return found[0] if found else "err_network" if is_call else ""


def retry(after: float, error: Exception | str) -> Outcome:
    """Runs the stage (or with scope: step the step) again after seconds, because of an error; 0 means retry.every."""
    return Outcome("retry", after=after, error=_error(error))


def wait(after: float, message: str) -> Outcome:
    """Looks again after seconds, without an error; 0 means wait.every or retry.every."""
    return Outcome("retry", message, after)


def wait_for_event(key: str, fallback: float, message: str) -> Outcome:
    """Waits until the event with the key comes, and at most so many seconds. The key should contain op.id."""
    return Outcome("retry", message, fallback, event_key=key)


def skip(message: str) -> Outcome:
    """Ends the step without work."""
    return Outcome("skipped", message)


def not_completed(error: Exception | str) -> Outcome:
    """Gives up with work left to do. The operation continues and records the step."""
    return Outcome("not completed", error=_error(error))


def retry_without_fail(op: Operation, after: float, budget: float, error: Exception | str) -> Outcome:
    """Retries until the budget has passed since op.first_tried_at; after that the step is not completed."""
    return retry(after, error) if datetime.now(UTC) - op.first_tried_at < timedelta(seconds=budget) else not_completed(error)


@dataclass(frozen=True)
class Override:
    """A setting of a component, with a key such as global.domainName. The consumer keeps a secret one in a Secret."""

    key: str
    value: str
    secret: bool = False


class Log(logging.LoggerAdapter[logging.Logger]):
    """A log whose lines have fields, besides those that a call gives as extra."""

    def process(self, msg: Any, kwargs: Any) -> Any:
        return msg, {**kwargs, "extra": {**(self.extra or {}), **(kwargs.get("extra") or {})}}


#: Sends a request to the broker or the orchestrator: kind (credentials, keep, kept or extend) and members, to the members of the answer.
Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class Operation:
    """The order, the position of the operation, and access to its details, stage memory and credentials. memory is None, a StageMemory
    or one of the test kit."""

    def __init__(self, command: wire.Command, worker: str, memory: Any, ask: Ask, log: Log) -> None:
        o: dict[str, Any] = command["operation"]
        self.id: str = o["id"]
        self.type: str = o["type"]
        self.instance_id: str = o["instanceId"]
        #: Objects with the names of docs/events.md, for example op.runtime["shootName"].
        self.plan: dict[str, str] = o.get("plan") or {}
        self.context: dict[str, str] = o.get("context") or {}
        self.runtime: dict[str, str] = o.get("runtime") or {}
        self.parameters: dict[str, Any] = o.get("parameters") or {}
        self.update: dict[str, Any] | None = o.get("update")
        self.upgrade: dict[str, Any] | None = o.get("upgrade")
        self.credentials: list[str] = o.get("credentials") or []
        self.temporary: bool = o.get("temporary") is True
        self.purpose: str = o.get("purpose") or ""
        self.user_agent: str = o.get("userAgent") or ""
        self.stage: str = command["stage"]
        self.step: str = command["step"]
        self.stage_attempt: int = command["stageAttempt"]
        self.step_attempt: int = command["stepAttempt"]
        self.first_tried_at = datetime.fromisoformat(command.get("firstTriedAt") or "0001-01-01T00:00:00Z")
        self.execute_before = datetime.fromisoformat(command["executeBefore"])
        #: The event that the step has waited for: key, source, id, receivedAt and data; None if none has come.
        self.event: dict[str, Any] | None = command.get("event")
        self.log, self.worker = log, worker
        self._command, self.memory, self._ask_service = command, memory, ask
        # What the step has said so far, and what it has learned.
        self.patch: dict[str, Any] = {}
        self.removed: list[str] = []
        self.notices: list[dict[str, Any]] = []  # of progress, not yet sent
        self.secrets = Secrets()
        self.invalid = ""
        self.lost = self.closed = False
        self.unreadable: Exception | None = None
        self.values: dict[str, bytes] = {}  # by their names in the stage memory

    def is_overdue(self, seconds: float = 0) -> bool:
        """Reports whether so much time has passed since the time limit, which the step may have extended."""
        return self.seconds_left() + seconds <= 0

    def seconds_left(self) -> float:
        """Returns the time until the time limit; negative after it."""
        return (self.execute_before - datetime.now(UTC)).total_seconds()

    def details(self, worker: str = "") -> dict[str, Any]:
        """Returns what a worker has saved in this or an earlier operation of the instance; by default this worker."""
        saved = (self._command.get("details") or {}).get(worker or self.worker) or {}
        return merge_details(saved, self.patch if worker in ("", self.worker) else {})

    def save_details(self, members: Mapping[str, Any]) -> None:
        """Saves members of the worker's own details; None removes one. They are stored in the clear, so they must hold no secret."""
        try:
            if self.closed:
                raise ValueError("the step has already returned")
            self.patch = wire.decode_json(_storable({**self.patch, **members}))
        except (TypeError, ValueError) as e:
            raise self._reject(f"save details: {e}") from None

    def _reject(self, problem: str) -> StepError:
        """Returns an error that fails the step, even if the step catches it."""
        self.invalid = self.invalid or problem
        return StepError(problem)

    def remember(self, key: str, value: bytes) -> None:
        """Stores a value, which may be secret, for later steps of the stage, when this step is done or skipped."""
        if not key or len(value) > MAX_REMEMBERED:
            raise self._reject(f"remember {key!r}: want a key, and at most {MAX_REMEMBERED} bytes")
        self._need_memory(f"remember {key!r}")
        self.values[f"value.{key}"] = bytes(value)

    def set_overrides(self, component: str, entries: Sequence[Override]) -> None:
        """Stores settings of a component (empty: of all) for the stage. They replace those of an earlier run of this step."""
        if not all(e.key and isinstance(e.value, str) for e in entries):
            raise self._reject(f"overrides of component {component!r}: want entries with a key and a text")
        self._need_memory(f"overrides of component {component!r}")
        content = [{name: v for name, v in asdict(e).items() if v is not False} for e in entries]
        stored = {"component": component, "cursor": self._command["cursor"], "entries": content}
        self.values[f"override.{self.step}.{component}"] = wire.encode_json(stored)

    def _need_memory(self, what: str) -> None:
        if self.memory is None:
            raise self._reject(f"{what}: this worker has no stage memory: set KEB_STAGE_KEYS")

    async def recall(self, key: str) -> bytes | None:
        """Returns what a step of this stage has remembered, or None."""
        if (name := f"value.{key}") in self.values:
            return self.values[name]
        value: bytes | None = await self._read(f"recall {key!r}", lambda: self.memory.read(name))
        self.secrets.learn((value or b"").decode(errors="replace"))
        return value

    async def overrides(self) -> dict[str, list[Override]]:
        """Returns the overrides of this stage by component, each ordered by key. A later step wins."""
        stored = await self._read("overrides", lambda: self.memory.list("override."))
        others = [wire.decode_json(value) for name, value in stored.items() if name not in self.values]
        for value in (e["value"] for s in others for e in s["entries"] if e.get("secret")):
            self.secrets.learn(value)  # each may be JSON
        own = [wire.decode_json(value) for name, value in self.values.items() if name.startswith("override.")]
        found: dict[str, dict[str, Override]] = {}
        for s in sorted(others, key=lambda s: int(s["cursor"])) + own:
            merged = {e["key"]: Override(e["key"], e["value"], e.get("secret", False)) for e in s["entries"]}
            found.setdefault(s["component"], {}).update(merged)
        return {component: [e for _, e in sorted(found[component].items())] for component in sorted(found)}

    async def _read(self, what: str, read: Callable[[], Any]) -> Any:
        self._need_memory(what)
        try:
            if not (found := await read()):
                await self.check_lost()
            return found
        except StageLost:
            raise
        except Exception as e:
            self.unreadable = Unavailable(f"{what}: {e}")
            raise self.unreadable from e

    async def check_lost(self) -> None:
        if self._command.get("stageMemory") is True and await self.memory.is_lost():
            self.lost = True
            raise StageLost("the stage memory is lost")

    async def _ask(self, kind: str, what: str, **members: Any) -> dict[str, Any]:
        try:
            return await self._ask_service(kind, {"operationId": self.id, **members})
        except Exception as e:
            raise (StepError if str(e) == KEPT_BROKEN else Unavailable)(f"{what}: {e}") from None

    async def _claim(self, name: str) -> Any:
        answer = await self._ask("credentials", f"claim credentials {name!r}", instanceId=self.instance_id, name=name)
        if (claimed := answer.get("credentials")) is None:
            raise Unavailable(f"claim credentials {name!r}: the broker's answer holds no credentials")
        return claimed

    async def claim_credentials(self, name: str) -> Any:
        """Asks the broker for credentials that op.credentials lists. Neither log nor save them."""
        if name not in self.credentials:
            raise StepError(f"claim credentials {name!r}: the operation has {self.credentials}")
        claimed = await self._claim(name)
        self.secrets.learn(claimed)
        return claimed

    async def neighbours(self) -> int:
        """Returns the number of other instances in the subaccount."""
        return int((await self._claim("neighbours"))["count"])

    async def keep(self, value: Any) -> None:
        """Lets the broker keep a sealed value of the instance for this worker, at once and whatever the outcome."""
        if len(wire.encode_json(value)) > MAX_VALUE:
            raise StepError(f"keep a value: at most {MAX_VALUE} bytes of JSON are allowed")
        await self._ask("keep", "keep a value", instanceId=self.instance_id, value=value)

    async def kept(self) -> Any:
        """Returns the value that this worker has kept of the instance, or None."""
        return (await self._ask("kept", "read what is kept", instanceId=self.instance_id)).get("value")

    async def extend(self, seconds: float) -> datetime:
        """Asks the orchestrator for so much time from now on, and returns the granted limit. After an error the old limit stays."""
        answer = await self._ask("extend", "ask for more time", cursor=self._command["cursor"], seconds=seconds)
        self.execute_before = max(self.execute_before, datetime.fromisoformat(answer["executeBefore"]))
        return self.execute_before

    def note_removed(self, object_name: str) -> None:
        """Reports that the step deleted an object in its external system, for example "evaluation 12". A missing object does not count."""
        if not self.closed and len(self.removed) < MAX_REMOVED and str(object_name) not in self.removed:
            self.removed.append(str(object_name))

    def progress(self, message: str, percent: int | None = None) -> None:
        """Shows operators how far the step is, for example "3 of 7 nodes". The last report of each second is sent, and may be lost."""
        if percent is not None and not math.isfinite(percent):
            percent = None
        notice = {"operationId": self.id, "cursor": self._command["cursor"],
                  "message": wire.clean_text(self.secrets.redact(message), MAX_PROGRESS)}
        self.notices.append(notice if percent is None else notice | {"percent": min(max(round(percent), 0), 100)})


def merge_details(saved: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Applies a patch to the details of a worker, as the orchestrator does."""
    return {name: value for name, value in {**saved, **patch}.items() if name not in patch or value is not None}


def _storable(members: dict[str, Any]) -> bytes:
    """Encodes details, and rejects what cannot be stored."""
    raw = wire.encode_json(members)
    if re.search(rb"(?<!\\)(\\\\)*\\u0000", raw):
        raise ValueError("a text holds a NUL character, which cannot be stored")
    if len(raw) > MAX_VALUE:
        raise ValueError(f"{len(raw)} bytes, at most {MAX_VALUE} are allowed")
    return raw


Run = Callable[[Operation], Awaitable[Outcome | None]]
Wanted = Callable[[], Awaitable[bool]]


@dataclass(frozen=True)
class Step:
    """A step of a process. component is the system in errors that name none."""

    name: str
    run: Run
    component: str = ""

    def __post_init__(self) -> None:
        if not wire.is_step(self.name):
            raise ValueError(f'step name {self.name!r}: use letters, digits, "_" and "-", at most 64 of them')


def step(name: str, component: str = "") -> Callable[[Run], Step]:
    """Makes a step of a coroutine function."""
    return lambda run: Step(name, run, component)


class Execution:
    """An execution of a step. ended is why its task was cancelled (time limit, cancelled or stopping), and a text for the error."""

    def __init__(self, step: Step, op: Operation) -> None:
        self.step, self.op = step, op
        self.ended = ("", "")
        self._task: asyncio.Task[tuple[Any, BaseException | None]] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def end(self, why: str, text: str) -> None:
        """Cancels the task of the step, once for each cause."""
        if self._task and not self._task.done():
            self.ended = (why, text)
            self._task.cancel(text)

    async def _call(self) -> tuple[Any, BaseException | None]:
        """Returns what the step returned, and what it raised: raised by a task, SystemExit would end the process."""
        try:
            return await self.step.run(self.op), None
        except BaseException as e:
            return None, e

    async def run(self, wanted: Wanted | None = None) -> dict[str, Any] | None:
        """Runs the step once, and ends it at execute_before. It returns the outcome and the members of the result: interrupted if nothing
        is to be published because the worker stops, and None if the result is not wanted after the step has returned."""
        op, started = self.op, datetime.now(UTC)
        self._task = task = asyncio.ensure_future(self._call())
        left = 1.0
        while not task.done() and left > 0:  # the step begins even if it is late, and may get more time meanwhile
            left = op.seconds_left()
            await asyncio.wait({task}, timeout=max(left, 0))
        self.end("time limit", "the time limit of the step has passed")
        await asyncio.wait({task})
        if wanted and not await wanted():
            return None
        op.closed = True
        leaking = next((name for name, value in op.patch.items() if op.secrets.are_in(value)), None)
        if leaking is not None:
            op.invalid = op.invalid or f"details member {leaking!r} holds a secret; keep secrets in the stage memory"
        returned, error = (None, asyncio.CancelledError()) if task.cancelled() else task.result()
        try:
            judged = self._judge(error, returned)
        except Exception as e:  # such as that of an error without a text
            judged = self._invalid(f"{type(e).__name__}: {e}")
        result = await self._settle(judged)
        times = {"startedAt": wire.format_time(started), "finishedAt": wire.format_time(datetime.now(UTC))}
        removed = [wire.clean_text(op.secrets.redact(name), MAX_OBJECT) for name in op.removed]
        return result | {"details": None if op.invalid else op.patch or None, "removed": removed or None} | times

    def _judge(self, error: BaseException | None, returned: Any) -> dict[str, Any]:
        """Returns the outcome from what the step raised or returned."""
        op, (why, text) = self.op, self.ended
        if op.invalid:
            return self._invalid(op.invalid)
        if error is not None and why and (isinstance(error, Unavailable) or not isinstance(error, StepError)):
            reason = "err_keb_cancelled" if why == "cancelled" else "err_keb_timeout"
            message = f"{text}: {error}" if str(error) not in ("", text) else text
            interrupted = why == "stopping" and not (op.patch or op.removed)
            return self._result("retry", StepError(message, component="keb", reason=reason)) | {"interrupted": interrupted}
        if isinstance(error, (StepError, TimeoutError)):
            return self._result("retry" if getattr(error, "temporary", True) else "failed", error)
        if error is not None:
            op.log.error("step raised an exception: %s", op.secrets.redact("".join(traceback.format_exception(error))))
            message, reason = f"the step raised {type(error).__name__}: {error}", _network_reason(error) or "err_step_panicked"
            return self._result("failed", StepError(message, component=op.worker, reason=reason)) | {"panicked": True}
        out = Outcome("succeeded") if returned is None else returned
        if not isinstance(out, Outcome) or out.outcome not in wire.OUTCOMES:
            return self._invalid(f"the step returned {type(out).__name__}, want None or an outcome")
        if not isinstance(out.after, (int, float)) or not 0 <= out.after <= DAY:
            return self._invalid(f"the retry delay is {out.after}: want 0 to {DAY} seconds")
        if out.event_key and not wire.is_event_key(out.event_key):
            return self._invalid("event.key: want letters, digits, hyphens and underscores, with dots between")
        message, event = wire.clean_text(op.secrets.redact(out.message or "")), {"key": out.event_key} if out.event_key else None
        return self._result(out.outcome, out.error) | {"message": message, "retryAfter": out.after, "event": event}

    def _invalid(self, problem: str) -> dict[str, Any]:
        return self._result("failed", StepError(f"invalid result: {problem}", component=self.op.worker, reason="err_step_result"))

    def _result(self, outcome: str, error: BaseException | None) -> dict[str, Any]:
        """Returns an outcome, and an error with the texts of all causes and without secrets."""
        if error is None:
            return {"outcome": outcome}
        texts, cause = [str(error) or type(error).__name__], error.__cause__
        for _ in range(10):  # an error can be its own cause
            if cause is None:
                break
            if str(cause) and str(cause) not in texts[-1]:
                texts.append(str(cause))
            cause = cause.__cause__
        component = getattr(error, "component", "") or self.step.component or self.op.worker
        network = _network_reason(error)
        if network == "err_network_timeout" and self.ended[0] == "time limit":
            network = "err_keb_timeout"  # the call had no more time
        reason = isinstance(error, StepError) and error.reason or network or "err_step_failed"
        members = {"component": component, "reason": reason, "message": ": ".join(texts)}
        cleaned = {name: wire.clean_text(self.op.secrets.redact(text)) for name, text in members.items()}
        return {"outcome": outcome, "error": cleaned, "retryAfter": 0}

    async def _settle(self, result: dict[str, Any]) -> dict[str, Any]:
        """Writes the stage memory of a step that is done. A lost memory overrides every other outcome."""
        op, wrote = self.op, False
        problem = op.unreadable if result["outcome"] in ("failed", "not completed") else None
        try:
            if op.values and not op.lost and result["outcome"] in ("succeeded", "skipped"):
                async with asyncio.timeout(FLUSH_TIMEOUT):
                    await op.check_lost()  # or this write would make a lost memory look complete
                    for name, value in op.values.items():
                        await op.memory.put(name, value)
                        wrote = True
        except Exception as e:
            problem = Unavailable(f"stage memory: {e}")
            problem.__cause__ = e
        if op.lost:
            return {"outcome": "stage lost", "message": "the stage memory is lost"}
        if problem:
            result = self._result("retry", problem)
        cause = getattr(problem or op.unreadable, "__cause__", None)
        is_own = result["outcome"] == "retry" and (result.get("error") or {}).get("component") == "keb"
        if is_own and not result["retryAfter"] and isinstance(cause, (TimeoutError, NoAnswer)):
            result["retryAfter"] = MEMORY_DELAY
        return result | ({"stageMemory": True} if wrote else {})
