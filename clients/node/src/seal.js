// Seals values of the stage memory as libs/seal does: "v1.<key id>.<base64url of nonce, ciphertext and tag>", AES-256-GCM.
import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";

const KEY_ID = /^[A-Za-z0-9_-]{1,64}$/;
const NONCE = 12;
const TAG = 16;

export class Keyring {
  #keys = new Map();
  #first = "";

  // Parses "id1:base64key,id2:base64key". The first key seals, all keys open. Errors contain no keys.
  constructor(text) {
    text.trim().split(",").forEach((part, i) => {
      const [id, encoded] = part.trim().split(/:(.*)/s);
      const bad = (problem) => new Error(`key ${i + 1}: ${problem}`);
      if (encoded === undefined) throw bad('want "<id>:<base64 of 32 bytes>"');
      if (!KEY_ID.test(id)) throw bad("the id: want 1 to 64 letters, digits, hyphens or underscores");
      if (this.#keys.has(id)) throw bad(`the id ${JSON.stringify(id)} is duplicated`);
      if (!/^(?:[A-Za-z0-9+/]*|[A-Za-z0-9_-]*)=*$/.test(encoded)) throw bad("the key is not base64");
      const key = Buffer.from(encoded, "base64");
      if (key.length !== 32) throw bad(`the key has ${key.length} bytes: want 32`);
      this.#first ||= id;
      this.#keys.set(id, key);
    });
  }

  get ids() {
    return [...this.#keys.keys()];
  }

  // Encrypts a value and binds it to the text associated.
  seal(plain, associated, nonce = randomBytes(NONCE)) {
    const prefix = `v1.${this.#first}.`;
    const cipher = createCipheriv("aes-256-gcm", (this.#keys.get(this.#first)), nonce);
    cipher.setAAD(Buffer.from(prefix + associated));
    return prefix + Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]).toString("base64url");
  }

  // Decrypts a sealed value.
  open(sealed, associated) {
    const [, id, encoded] = /^v1\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]*)$/.exec(sealed) ?? [];
    const damaged = () => new Error("open: sealed value is damaged or belongs to another owner");
    if (id === undefined) throw damaged();
    const key = this.#keys.get(id);
    if (!key) throw new Error(`open: key id ${JSON.stringify(id)}: sealed with an unknown key`);
    const raw = Buffer.from(encoded, "base64url");
    // Another text of the same bytes is not what was sealed.
    if (raw.length < NONCE + TAG || raw.toString("base64url") !== encoded) throw damaged();
    try {
      const decipher = createDecipheriv("aes-256-gcm", key, raw.subarray(0, NONCE), { authTagLength: TAG });
      decipher.setAAD(Buffer.from(`v1.${id}.${associated}`)).setAuthTag(raw.subarray(-TAG));
      return Buffer.concat([decipher.update(raw.subarray(NONCE, -TAG)), decipher.final()]);
    } catch {
      throw damaged();
    }
  }
}
