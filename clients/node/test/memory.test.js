// The stage memory in a cluster, whose replicas may lag.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { headers } from "@nats-io/transport-node";
import { Keyring, stageKey, stageMemory } from "../src/memory.js";

const keyring = new Keyring(`a:${randomBytes(32).toString("base64")}`);
const command = { operation: { id: "op" }, stage: "s", stageAttempt: 1 };
const SUBJECTS = "$KV.keb_stage.";

/** Returns the memory of a bucket with a marker and values, of which a replica lacks the last ones for a number of reads. */
function lagging(values, { reads, lacks }) {
  const keys = [undefined, ...Object.keys(values)].map((name) => [stageKey("op", "s", 1, name), name]);
  const messages = keys.map(([key, name]) => ({
    subject: SUBJECTS + key, header: headers(), string: () => (name ? keyring.seal(values[name], key) : ""),
  }));
  const replica = () => (reads-- > 0 ? messages.slice(0, -lacks) : messages);
  const manager = Promise.resolve({
    direct: {
      getMessage: async (_, { last_by_subj: subject }) => replica().find((m) => m.subject === subject) ?? null,
      getLastMessagesFor: async () => replica(),
    },
    streams: {
      async info(_, { subjects_filter: filter }) {
        const matching = messages.filter(({ subject }) => (filter.endsWith("*") ? subject.startsWith(filter.slice(0, -1)) : subject === filter));
        return { state: matching.length ? { subjects: Object.fromEntries(matching.map(({ subject }) => [subject, 1])) } : {} };
      },
    },
  });
  const nc = { options: { inboxPrefix: "_INBOX" } };
  return stageMemory(nc, keyring, /** @type {any} */ (manager))(command);
}

test("a value that a replica lacks is read again", async () => {
  const memory = lagging({ "value.token": "secret" }, { reads: 2, lacks: 1 });
  assert.equal(String(await memory.get("value.token")), "secret");
  assert.equal(await memory.get("value.other"), undefined);
});

test("a marker that a replica lacks is not lost", async () => {
  assert.equal(await lagging({}, { reads: 2, lacks: 1 }).isLost(), false);
});

test("a list in which values are missing is read again", async () => {
  const values = await lagging({ "override.a": "1", "value.b": "2", "override.c": "3" }, { reads: 2, lacks: 2 }).list("override.");
  assert.deepEqual([...values].map(([name, value]) => [name, String(value)]), [["override.a", "1"], ["override.c", "3"]]);
});
