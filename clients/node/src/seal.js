// Seals values of the stage memory: "v1.<key id>.<base64url of nonce, ciphertext and tag>", AES-256-GCM.
import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";

const NONCE = 12;
const TAG = 16;

export class Keyring {
  #keys = new Map();

  /** Parses "id1:base64key,id2:base64key". The first key seals, all keys open. Errors contain no key. */
  constructor(text) {
    text.trim().split(",").forEach((entry, i) => {
      const [, id, encoded = ""] = /^([A-Za-z0-9_-]{1,64}):([A-Za-z0-9+/]*|[A-Za-z0-9_-]*)=*$/.exec(entry.trim()) ?? [];
      const key = Buffer.from(encoded, "base64");
      if (key.length !== 32) throw new Error(`key ${i + 1}: want "<id>:<base64 of 32 bytes>", with an id of letters, digits, - and _`);
      if (this.#keys.has(id)) throw new Error(`key ${i + 1}: the id ${JSON.stringify(id)} is duplicated`);
      this.#keys.set(id, key);
    });
  }

  get ids() {
    return [...this.#keys.keys()];
  }

  /** Encrypts a value and binds it to the text associated. */
  seal(plain, associated, nonce = randomBytes(NONCE)) {
    const prefix = `v1.${this.ids[0]}.`;
    const cipher = createCipheriv("aes-256-gcm", this.#keys.get(this.ids[0]), nonce).setAAD(Buffer.from(prefix + associated));
    return prefix + Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()]).toString("base64url");
  }

  /** Decrypts a sealed value. */
  open(sealed, associated) {
    const [, id, encoded = ""] = /^v1\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]*)$/.exec(sealed) ?? [];
    if (id && !this.#keys.has(id)) throw new Error(`open: key id ${JSON.stringify(id)}: sealed with an unknown key`);
    const raw = Buffer.from(encoded, "base64url");
    try {
      if (raw.toString("base64url") !== encoded) throw new Error("another text of the same bytes");
      const decipher = createDecipheriv("aes-256-gcm", this.#keys.get(id), raw.subarray(0, NONCE), { authTagLength: TAG });
      decipher.setAAD(Buffer.from(`v1.${id}.${associated}`)).setAuthTag(raw.subarray(-TAG));
      return Buffer.concat([decipher.update(raw.subarray(NONCE, -TAG)), decipher.final()]);
    } catch {
      throw new Error("open: sealed value is damaged or belongs to another owner");
    }
  }
}
