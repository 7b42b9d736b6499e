// The worker my-worker runs the steps My_Worker_Create and My_Worker_Delete.
import { realpathSync } from "node:fs";
import { fail, retry, skip, worker } from "@kyma-project/keb-worker";

const WORKER = "my-worker"; // as in overlay/my-worker.yaml
const VERSION = "0.1.0";

// A request that cannot succeed, however often it is repeated. Every other error is temporary.
export class Rejected extends Error {}

// What the steps call. Replace the two functions with calls of your system, and pass signal to them.
export const system = {
  // Returns the id of the record with the name, and creates it if it does not exist.
  async create(name, signal) { return `record-${name}`; },
  // Deletes a record. It succeeds if the record does not exist.
  async delete(record, signal) {},
};

export const steps = {
  // Can run more than once for one operation: it looks for what an earlier run has saved, and names the record after the instance.
  async My_Worker_Create(op, { signal, log }) {
    if (op.details().record) return;
    let record;
    try {
      record = await system.create(op.instanceId, signal);
    } catch (error) {
      return failure("create the record", error);
    }
    log.info("record created", { record });
    return op.saveDetails({ record }); // in the clear: never a secret
  },

  // Deletes what My_Worker_Create has saved in an earlier operation of the same instance.
  async My_Worker_Delete(op, { signal, log }) {
    const { record } = op.details();
    if (!record) return skip("there is no record");
    try {
      await system.delete(record, signal);
    } catch (error) {
      return failure("delete the record", error);
    }
    log.info("record deleted", { record });
    return op.saveDetails({ record: null }); // null removes the member
  },
};

// Fails the step after a rejection, and lets it run again after retry.every of the overlay otherwise.
function failure(attempt, cause) {
  if (cause instanceof Rejected) return fail({ component: WORKER, reason: "err_rejected", message: attempt, cause });
  return retry(0, { component: WORKER, message: attempt, cause });
}

// The tests import this file, and must not start the worker. The name of the module has no symbolic links.
if (realpathSync(process.argv[1] ?? "") === import.meta.filename) await worker(WORKER, steps, { version: VERSION }).run();
