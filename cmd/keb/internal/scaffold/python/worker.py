"""The worker my-worker runs the steps My_Worker_Create and My_Worker_Delete."""

from keb_worker import Operation, Outcome, StepError, retry, skip, step

WORKER = "my-worker"  # as in overlay/my-worker.yaml
VERSION = "0.1.0"


class Rejected(Exception):
    """A request that cannot succeed, however often it is repeated."""


class System:
    """What the steps call. Replace the two methods with calls of your system; an OSError means that it is unavailable."""

    async def create(self, name: str) -> str:
        """Returns the id of the record with the name, and creates it if it does not exist."""
        return f"record-{name}"

    async def delete(self, record: str) -> None:
        """Deletes a record. It succeeds if the record does not exist."""


system = System()


@step("My_Worker_Create", component=WORKER)
async def create(op: Operation) -> Outcome | None:
    """Can run more than once for one operation: it looks for what an earlier run has saved, and names the record after the instance."""
    if op.details().get("record"):
        return None
    try:
        record = await system.create(op.instance_id)
    except OSError as e:
        return retry(0, StepError(f"create the record: {e}"))  # after retry.every of the overlay
    except Rejected as e:
        raise StepError(f"create the record: {e}", reason="err_rejected") from e
    op.save_details({"record": record})  # in the clear: never a secret
    op.log.info("record created", extra={"record": record})
    return None


@step("My_Worker_Delete", component=WORKER)
async def delete(op: Operation) -> Outcome | None:
    """Deletes what create has saved in an earlier operation of the same instance."""
    record = op.details().get("record")
    if not record:
        return skip("there is no record")
    try:
        await system.delete(record)
    except OSError as e:
        return retry(0, StepError(f"delete the record: {e}"))
    except Rejected as e:
        raise StepError(f"delete the record: {e}", reason="err_rejected") from e
    op.save_details({"record": None})  # None removes the member
    op.log.info("record deleted", extra={"record": record})
    return None


if __name__ == "__main__":
    from keb_worker.main import main

    main(WORKER, VERSION, [create, delete])
