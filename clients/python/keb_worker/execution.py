"""One execution of a step, without a bus: a worker and the test kit use it."""

from __future__ import annotations

import asyncio
import socket
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from . import wire
from .operation import Operation, Outcome, StageLost, StepError, Unavailable

GRACE = 3.0  # seconds after execute_before, until a step that goes on is abandoned
FLUSH_TIMEOUT = 5.0
DAY = 86_400
_NETWORK = ((ConnectionRefusedError, "err_connection_refused"), (socket.gaierror, "err_unknown_host"), (ConnectionError, "err_network"),
            (TimeoutError, "err_keb_timeout"))

Run = Callable[[Operation], Awaitable[Outcome | None]]
Wanted = Callable[[], Awaitable[bool]]


async def _always() -> bool:
    return True


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


def _reason(error: BaseException) -> str:
    """Returns the reason of an error that has none. urllib has its cause as the reason."""
    cause = next((e for e in (getattr(error, "reason", None), error.__cause__) if isinstance(e, OSError)), error)
    return next((reason for kind, reason in _NETWORK if isinstance(cause, kind)), "err_step_failed")


@dataclass
class Execution:
    """An execution of a step. ended is why its task was cancelled: time limit, cancelled or stopping."""

    step: Step
    op: Operation
    grace: float = GRACE
    ended: str = ""
    _text: str = ""
    _task: asyncio.Task[Outcome | None] | None = field(default=None, repr=False)

    def end(self, why: str, text: str) -> None:
        """Cancels the task of the step, once for each cause."""
        if self._task and not self._task.done():
            self.ended, self._text = why, text
            self._task.cancel(text)

    async def run(self, on_abandoned: Callable[[], None] = lambda: None, wanted: Wanted = _always) -> wire.Result | None:
        """Runs the step once, and ends it at execute_before. It returns what is to be published, if wanted after the step has returned."""
        result = wire.Result(started_at=datetime.now(UTC))
        self._task = task = asyncio.ensure_future(self.step.run(self.op))
        left = 1.0
        while not task.done() and left > 0:  # the step may get more time meanwhile
            left = (self.op.execute_before - datetime.now(UTC)).total_seconds()
            await asyncio.wait({task}, timeout=max(left, 0))
        if not task.done():
            self.end("time limit", "the time limit of the step has passed")
            if not (await asyncio.wait({task}, timeout=self.grace))[0]:
                on_abandoned()
                await asyncio.wait({task})
        if not await wanted():
            return None
        self._close()
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._judge(result, error, None if error else task.result())
        await self._settle(result)
        result.message = self.op.secrets.redact(result.message)
        result.finished_at = datetime.now(UTC)
        return result

    def _close(self) -> None:
        """Ends what the step can say. Details with a secret fail it."""
        op = self.op
        op.closed = True
        leaking = next((name for name, value in op.patch.items() if op.secrets.are_in(value)), None)
        if leaking is not None and not op.invalid:
            op.invalid = f"details member {leaking!r} holds a secret; keep secrets in the stage memory"

    def _judge(self, r: wire.Result, error: BaseException | None, returned: Any) -> None:
        """Sets the outcome from what the step raised or returned."""
        classified = isinstance(error, StepError) and not isinstance(error, Unavailable)
        r.details = None if self.op.invalid else self.op.patch or None
        if self.op.invalid:
            self._fail_invalid(r, self.op.invalid)
        elif error is not None and self.ended and not classified:
            reason = "err_keb_cancelled" if self.ended == "cancelled" else "err_keb_timeout"
            text = f"{self._text}: {error}" if str(error) not in ("", self._text) else self._text
            r.outcome, r.error = "retry", self._report(StepError(text, component="keb", reason=reason))
            r.interrupted = self.ended == "stopping" and not r.details
        elif isinstance(error, (StepError, TimeoutError)):
            r.outcome, r.error = "retry" if getattr(error, "temporary", True) else "failed", self._report(error)
        elif error is not None:
            text = f"the step raised {type(error).__name__}: {error}"
            r.outcome, r.panicked = "failed", True
            r.error = self._report(StepError(text, component=self.op.worker, reason="err_step_panicked"))
            self.op.log.error("step raised an exception: %s", self.op.secrets.redact("".join(traceback.format_exception(error))))
        else:
            self._returned(r, Outcome("succeeded") if returned is None else returned)

    def _fail_invalid(self, r: wire.Result, problem: str) -> None:
        r.outcome = "failed"
        r.error = self._report(StepError(f"invalid result: {problem}", component=self.op.worker, reason="err_step_result"))

    def _returned(self, r: wire.Result, out: Any) -> None:
        if not isinstance(out, Outcome) or out.outcome not in wire.OUTCOMES:
            self._fail_invalid(r, f"the step returned {type(out).__name__}, want None or an outcome")
        elif not 0 <= out.after <= DAY:
            self._fail_invalid(r, f"the retry delay is {out.after}: want 0 to {DAY} seconds")
        elif out.event_key and not wire.is_event_key(out.event_key):
            self._fail_invalid(r, "event.key: want letters, digits, hyphens and underscores, with dots between")
        else:
            r.outcome, r.message, r.retry_after, r.event_key = out.outcome, wire.clean_text(out.message), out.after, out.event_key
            r.error = self._report(out.error) if out.error else None

    def _report(self, error: BaseException) -> dict[str, str]:
        """Returns the error of a result, with the texts of all causes and without secrets."""
        texts, cause = [str(error) or type(error).__name__], error.__cause__
        while cause is not None and len(texts) < 10:
            if str(cause) and str(cause) not in texts[-1]:
                texts.append(str(cause))
            cause = cause.__cause__
        component = getattr(error, "component", "") or self.step.component or self.op.worker
        reason = isinstance(error, StepError) and error.reason or _reason(error)
        members = {"component": component, "reason": reason, "message": ": ".join(texts)}
        return {name: self.op.secrets.redact(wire.clean_text(text)) for name, text in members.items()}

    async def _settle(self, r: wire.Result) -> None:
        """Writes the stage memory of a step that is done. A lost memory overrides every other outcome."""
        op = self.op
        problem = op.unreadable if r.outcome in ("failed", "not completed") else None
        try:
            if not op.lost and r.outcome in ("succeeded", "skipped"):
                async with asyncio.timeout(FLUSH_TIMEOUT):
                    r.stage_memory = await op.flush()
        except StageLost:
            pass
        except Exception as e:
            problem = Unavailable(f"stage memory: {e}")
        if problem:
            r.outcome, r.message, r.error = "retry", "", self._report(problem)
        if op.lost:
            r.outcome, r.message = "stage lost", "the stage memory is lost"
            r.retry_after, r.event_key, r.error, r.interrupted = 0, "", None, False
