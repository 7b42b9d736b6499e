"""The worker that the checks of the bus run: every function of the library in one step. It is no example."""

from __future__ import annotations

import asyncio

from keb_worker import Operation, Outcome, Override, StepError, retry, step, wait_for_event
from keb_worker.main import main


@step("Python_Check", component="python-check")
async def python_check(op: Operation) -> Outcome | None:
    """Does what the parameter "do" of the order says."""
    match op.parameters.get("do"):
        case "sleep":
            await asyncio.sleep(op.parameters["seconds"])
        case "ignore":
            end = asyncio.get_running_loop().time() + op.parameters["seconds"]
            while (left := end - asyncio.get_running_loop().time()) > 0:
                try:
                    await asyncio.sleep(left)
                except asyncio.CancelledError:
                    op.log.warning("it goes on")
        case "extend":
            await op.extend(600)
        case "fail":
            raise StepError("it was told to fail", reason="err_told")
        case "event" if op.event is None:
            return wait_for_event(f"approval.{op.id}", 60, "waiting for the approval")
        case "memory":
            if (token := await op.recall("token")) is None:
                return retry(0, "the token is not there")
            overrides = await op.overrides()
            op.remember("token", token + b"+")
            op.save_details({"token": len(token), "overrides": len(overrides)})
        case "claim":
            claimed = await op.claim_credentials(op.credentials[0])
            raise StepError(f"the system refuses {claimed}", component="python-system", reason="err_refused")
        case "keep":
            kept = await op.kept() or 0
            await op.keep(kept + 1)
            op.save_details({"kept": kept + 1})
    if op.parameters.get("do") is None:
        op.set_overrides("component-name", [Override("some.key", "a-value-that-is-secret", secret=True)])
    op.save_details({"checked": op.runtime["name"]})
    return None


async def answer(question: object) -> object:
    return {"question": question}


if __name__ == "__main__":
    main("python-check", "1.0.0", [python_check], {"keb.ask.python-check.echo": answer})
