"""One execution of a step, without a bus: a worker and the test kit use it."""

from __future__ import annotations

import asyncio
import socket
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from . import wire
from .operation import CANCELLED, FAILED, INTERNAL, INVALID, PANICKED, TIMEOUT, Operation, Outcome, StageLost, StepError, Unavailable

GRACE = 3.0  # seconds after execute_before, until a step that goes on is abandoned
FLUSH_TIMEOUT = 5.0
_NETWORK = ((ConnectionRefusedError, "err_connection_refused"), (socket.gaierror, "err_unknown_host"), (ConnectionError, "err_network"))

Run = Callable[[Operation], Awaitable[Outcome | None]]


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


def _invalid(worker: str, problem: str) -> StepError:
    return StepError(f"invalid result: {problem}", component=worker, reason=INVALID)


def _network_reason(error: BaseException) -> str:
    """Returns the reason of a call that the network failed; empty for any other error. urllib has its cause as the reason."""
    cause = next((e for e in (getattr(error, "reason", None), error.__cause__) if isinstance(e, OSError)), error)
    return next((reason for kind, reason in _NETWORK if isinstance(cause, kind)), "")


@dataclass(frozen=True)
class Ended:
    """Why the task of a step was cancelled: time limit, cancelled or stopping."""

    why: str
    text: str


@dataclass
class Execution:
    """An execution of a step. ended is why its task was cancelled."""

    step: Step
    op: Operation
    ended: Ended | None = None
    grace: float = GRACE
    _task: asyncio.Task[Outcome | None] | None = field(default=None, repr=False)

    def end(self, why: str, text: str) -> None:
        """Cancels the task of the step, once for each cause."""
        if self._task and not self._task.done():
            self.ended = Ended(why, text)
            self._task.cancel(text)

    async def run(self, on_abandoned: Callable[[], None] = lambda: None) -> wire.Result:
        """Runs the step once, ends it at execute_before, and returns what is to be published."""
        result = wire.Result(started_at=self.op.now())
        self._task = asyncio.ensure_future(self.step.run(self.op))
        if not await self._returns((self.op.execute_before - result.started_at).total_seconds()):
            self.end("time limit", "the time limit of the step has passed")
            if not await self._returns(self.grace):
                on_abandoned()
                await self._returns(None)
        self.op.closed = True
        self._judge(result)
        await self._settle(result)
        self._guard(result)
        result.finished_at = self.op.now()
        return result

    async def _returns(self, within: float | None) -> bool:
        assert self._task
        done, _ = await asyncio.wait({self._task}, timeout=None if within is None else max(within, 0))
        return bool(done)

    def _judge(self, r: wire.Result) -> None:
        assert self._task
        error = asyncio.CancelledError() if self._task.cancelled() else self._task.exception()
        r.details = self.op.patch or None
        classified = isinstance(error, StepError) and not isinstance(error, Unavailable)
        if self.op.invalid:
            r.details = None
            self._fail(r, _invalid(self.op.worker, f"{self.op.invalid}"))
        elif error is not None and self.ended and not classified:
            reason = CANCELLED if self.ended.why == "cancelled" else TIMEOUT
            text = f"{self.ended.text}: {error}" if str(error) not in ("", self.ended.text) else self.ended.text
            r.outcome, r.error = "retry", {"component": "keb", "reason": reason, "message": wire.clean_text(text)}
            r.interrupted = self.ended.why == "stopping" and not r.details
        elif error is None:
            self._returned(r, self._task.result())
        elif isinstance(error, StepError) or isinstance(error, TimeoutError):
            r.outcome = "retry" if getattr(error, "temporary", True) else "failed"
            r.error = self._report(error)
        else:
            r.panicked = True
            self._fail(r, StepError(f"the step raised {type(error).__name__}: {error}", component=self.op.worker, reason=PANICKED))
            stack = "".join(traceback.format_exception(error))
            self.op.log.error("step raised an exception: %s", self.op.redact(stack))

    def _fail(self, r: wire.Result, error: Exception) -> None:
        r.outcome, r.retry_after, r.event_key, r.error = "failed", 0, "", self._report(error)

    def _returned(self, r: wire.Result, returned: Any) -> None:
        out = Outcome("succeeded") if returned is None else returned
        if not isinstance(out, Outcome) or out.outcome not in wire.OUTCOMES:
            return self._fail(r, _invalid(self.op.worker, f"the step returned {type(out).__name__}, want None or an outcome"))
        if not 0 <= out.after <= 86400:
            return self._fail(r, _invalid(self.op.worker, f"the retry delay is {out.after}: want 0 to 86400 seconds"))
        if out.event_key and not wire.is_event_key(out.event_key):
            return self._fail(r, _invalid(self.op.worker, "event.key: want letters, digits, hyphens and underscores, with dots between"))
        r.outcome, r.message, r.retry_after, r.event_key = out.outcome, wire.clean_text(out.message), out.after, out.event_key
        r.error = self._report(out.error) if out.error else None

    def _report(self, error: BaseException) -> dict[str, str]:
        texts, cause = [str(error) or type(error).__name__], error.__cause__
        while cause is not None and len(texts) < 10:
            if str(cause) and str(cause) not in texts[-1]:
                texts.append(str(cause))
            cause = cause.__cause__
        own = isinstance(error, Unavailable)
        reason = str(getattr(error, "reason", "")) if isinstance(error, StepError) else _network_reason(error)
        reason = reason or (TIMEOUT if isinstance(error, TimeoutError) else INTERNAL if own else FAILED)
        component = getattr(error, "component", "") or ("keb" if own else self.step.component or self.op.worker)
        members = {"component": component, "reason": reason, "message": ": ".join(texts)}
        return {name: wire.clean_text(text) for name, text in members.items()}

    async def _settle(self, r: wire.Result) -> None:
        """Writes the stage memory of a step that is done. A lost memory overrides every other outcome."""
        op = self.op
        if op.unreadable and r.outcome in ("failed", "not completed"):
            r.outcome, r.message, r.error = "retry", "", self._report(op.unreadable)
        try:
            if not op.lost and r.outcome in ("succeeded", "skipped"):
                async with asyncio.timeout(FLUSH_TIMEOUT):
                    r.stage_memory = await op.flush()
        except StageLost:
            pass
        except Exception as e:
            r.outcome, r.message, r.error = "retry", "", self._report(Unavailable(f"stage memory: {e}"))
        if op.lost:
            r.outcome, r.retry_after, r.event_key, r.error, r.interrupted = "stage lost", 0, "", None, False
            r.message = "the stage memory is lost"

    def _guard(self, r: wire.Result) -> None:
        """Removes received secrets, and what looks like a credential, from the texts, and rejects details with a received secret."""
        if r.details and (name := self.op.leaking_member()):
            r.details = None
            self._fail(r, _invalid(self.op.worker, f"details member {name!r} holds a secret; keep secrets in the stage memory"))
        r.message = self.op.redact(r.message)
        if r.error:
            r.error = {name: self.op.redact(text) for name, text in r.error.items()}
