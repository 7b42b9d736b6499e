"""The worker hello-world in Python: the step Hello_World asks a greeter, saves its answer and passes its token on. Copy and change it."""

import asyncio
import json
import os
import urllib.error
import urllib.request

from keb_worker import Operation, Outcome, Override, StepError, retry, step

COMPONENT = "hello-world"  # the system in the errors that an operator reads
MAX_ANSWER = 64 << 10


@step("Hello_World", component=COMPONENT)
async def hello_world(op: Operation) -> Outcome | None:
    """It is safe to repeat: a repeated stage starts with an empty memory, so it asks and sets the overrides again."""
    op.log.info("step started, said before: %s", "helloWorlds" in op.details())
    try:
        answer = await asyncio.to_thread(ask, os.environ.get("HELLO_URL", "http://127.0.0.1:8099/"))
    except urllib.error.HTTPError as e:
        error = StepError(f"the greeter answered {e.code} {e.reason}", component=COMPONENT, reason="err_http_status_code")
        if e.code >= 500:
            return retry(1, error)
        raise error from None
    except OSError as e:
        return retry(1, e)  # the reason says how the network failed
    except (ValueError, KeyError):  # the message may contain the token
        raise StepError("the greeter's answer is not the JSON object expected", component=COMPONENT) from None
    op.save_details({"helloWorlds": answer["data"]})
    op.set_overrides("component-name", [Override("some.key", answer["token"], secret=True)])
    return None


def ask(url: str) -> dict[str, str]:
    with urllib.request.urlopen(url, timeout=10) as response:
        answer: dict[str, str] = json.loads(response.read(MAX_ANSWER))
    return {"data": answer["data"], "token": answer["token"]}


if __name__ == "__main__":
    from keb_worker.main import main

    main(COMPONENT, "1.0.0", [hello_world])
