// A worker for keb worker check: its step receives secrets in every way, must not repeat them, and can ask for more time.
import { worker } from "../src/index.js";

const steps = {
  async Secrets(op) {
    const found = [];
    const token = await op.recall("token");
    if (token) found.push("token");
    for (const name of op.credentials) if (await op.claimCredentials(name)) found.push(name);
    op.remember("later", token ?? "a value for later steps").setOverrides("component", [{ key: "key", value: "secret-override-value", secret: true }]);
    const { entries } = (await op.overrides()).find(({ component }) => component === "component");
    if (op.parameters.longer) await op.extend("10m");
    if (op.parameters.tell) throw new Error(`the token is ${token}, and the password=${token}`);
    return op.saveDetails({ found, overrides: entries.length });
  },
};

await worker("node-secrets", steps, { version: "1.0.0" }).run();
