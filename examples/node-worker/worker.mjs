// A step worker of KEB in JavaScript. Copy the folder, and change the steps.
import { realpathSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { fail, retry, StepError, worker } from "@kyma-project/keb-worker";

const GREETER = process.env.HELLO_URL || "http://127.0.0.1:8099/";

export const steps = {
  // Calls an external service, saves a part of the answer, and passes the secret part to the steps that create the cluster.
  async Hello_World(op, { signal, log }) {
    log.info("step started", { said_before: op.details().helloWorlds !== undefined });
    let response;
    try {
      response = await fetch(GREETER, { signal });
    } catch (cause) { // the network: temporary
      return retry("1s", { component: "hello-world", message: "call the greeter", cause });
    }
    const problem = { component: "hello-world", reason: "err_http_status_code", message: `the greeter answered ${response.status}` };
    if (response.status >= 500) return retry("1s", problem);
    if (!response.ok) return fail(problem);
    // Leave out the parser's error, because it may contain the token.
    const answer = await response.json().catch(() => undefined);
    if (typeof answer?.data !== "string" || typeof answer.token !== "string") {
      throw new StepError({ component: "hello-world", message: "the greeter's answer is not the JSON object expected" });
    }
    op.setOverrides("component-name", [{ key: "some.key", value: answer.token, secret: true }]);
    return op.saveDetails({ helloWorlds: answer.data });
  },

  // Greets after a time, without an external system.
  async Node_Greeting(op, { signal }) {
    const { greeting } = op.details();
    if (greeting) return op.saveDetails({ greeting });
    const { delaySeconds = 0 } = op.parameters;
    if (delaySeconds < 0) return fail({ component: "node-greeter", reason: "err_input", message: "delaySeconds must not be negative" });
    await sleep(delaySeconds * 1000, undefined, { signal });
    return op.saveDetails({ greeting: `Hello, ${op.runtime.name}!` });
  },
};

// The tests import this file, and must not start the worker. The name of the module has no symbolic links.
if (realpathSync(process.argv[1] ?? "") === import.meta.filename) await worker("node-greeter", steps, { version: "1.0.0" }).run();
