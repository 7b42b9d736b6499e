// Tests of the steps, without a server.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { run } from "@kyma-project/keb-worker/testing";
import { Rejected, steps, system } from "./worker.mjs";

let records, creates, error;

// A system in memory. With error it does nothing and throws it.
system.create = async (name) => {
  if (error) throw error;
  creates++;
  records.add(`record-${name}`);
  return `record-${name}`;
};
system.delete = async (record) => {
  if (error) throw error;
  records.delete(record);
};

beforeEach(() => { [records, creates, error] = [new Set(), 0, undefined]; });

async function expect(step, operation, outcome) {
  const result = await run(step, operation);
  assert.equal(result.outcome, outcome, result.error?.message);
  return result;
}

const operation = { worker: "my-worker" };

test("a repeated step creates one record", async () => {
  const first = await expect(steps.My_Worker_Create, operation, "succeeded");
  await expect(steps.My_Worker_Create, first.next(), "succeeded");
  assert.deepEqual([creates, records.size], [1, 1]);
});

test("a deleted record is gone", async () => {
  const created = await expect(steps.My_Worker_Create, operation, "succeeded");
  const deleted = await expect(steps.My_Worker_Delete, created.next(), "succeeded");
  await expect(steps.My_Worker_Delete, deleted.next(), "skipped");
  assert.equal(records.size, 0);
});

test("errors decide the outcome", async () => {
  const created = await expect(steps.My_Worker_Create, operation, "succeeded");
  for (const [thrown, outcome] of [[new Error("connection refused"), "retry"], [new Rejected("no"), "failed"]]) {
    error = thrown;
    await expect(steps.My_Worker_Create, operation, outcome);
    await expect(steps.My_Worker_Delete, created.next(), outcome);
  }
});
