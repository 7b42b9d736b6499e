// Removes credentials from texts that people read, as libs/mask does for the services.
const REDACTED = "[redacted]";
const MIN_SECRET = 8; // bytes; shorter texts occur in ordinary words
const MIN_SECRET_WORD = 24; // bytes of a word in a longer text, such as a token in a kubeconfig

const NAMED = new RegExp(
  String.raw`((?:\b|[a-z0-9_-])(pass(?:word|wd|phrase)|\bpass|pwd|secret|token|authorization|api[_-]?key|` +
    String.raw`access[_-]?key|private[_-]?key|kubeconfig|signature|\bsig)\\?["']?\s*[:=]\s*)` +
    String.raw`(\[redacted\]|"[^"]*"?|'[^']*'?|\S+)`, "gi");
const DIGEST = /sha(?:256|512):$/; // before a checksum, which is no secret
// Words after "token: " in an error such as "fetch the token: uaa: status 401", and names of steps.
const PROSE = /^(?:[A-Z]?[a-z]{1,15}[:,]?|[A-Z][A-Za-z]{0,20}(?:_[A-Z][A-Za-z]{0,20}){1,5})$/;
const NO_CREDENTIAL = /^(?:auth|authentication|authorization|tokens?|credentials|realm|is|was|of|and|or)[.=]*$/i;

const describes = (before, name, value, rest) =>
  !/^(pass|pwd$)/i.test(name) && before.endsWith(": ") && PROSE.test(value) && /^ +["'(\[`]?\p{L}/u.test(rest);

const isRandom = (part) => /^[^-_]{40,}$/.test(part) || /^(?=.*[A-Z])(?=.*[a-z])(?=.*\d).{20,}$/.test(part);

/** What looks like a credential, and by what it is replaced. */
const RULES = [
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g, REDACTED],
  [/([a-zA-Z][a-zA-Z0-9+.-]{0,30}:\/\/)[^\s/?#"'\\]+@/g, `$1${REDACTED}@`],
  [/\b(bearer|basic)\s+([A-Za-z0-9._~+/=-]+)/gi, (all, name, value) => (NO_CREDENTIAL.test(value) ? all : `${name} ${REDACTED}`)],
  [NAMED, (all, before, name, value, at, whole) =>
    (describes(before, name, value, whole.slice(at + all.length)) ? all : before + REDACTED)],
  [/\beyJ[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*){1,4}/g, REDACTED],
  [/[A-Za-z0-9+/_-]{40,}={0,2}/g, (run, at, whole) =>
    (run.replace(/=+$/, "").split("/").some(isRandom) && !DIGEST.test(whole.slice(0, at)) ? REDACTED : run)],
];

/** Returns the text without passwords, tokens, keys and user names in addresses. */
export const maskText = (text) => RULES.reduce((masked, [pattern, by]) => masked.replace(pattern, /** @type {any} */ (by)), text);

/** Returns all texts in a JSON value. */
const texts = (value) => (typeof value === "string" ? [value] : Object.values(Object(value)).flatMap(texts));

/** Returns the secrets in a text: all of it, and its long words. An address is none, because errors need addresses. */
function secretsIn(text) {
  const words = text.split(/[ \t\r\n"',]+/).filter((word) => word !== text && Buffer.byteLength(word) >= MIN_SECRET_WORD);
  const isAddress = (secret) => secret.includes("://") && !secret.includes("@");
  return [text.trim(), ...words].filter((secret) => Buffer.byteLength(secret) >= MIN_SECRET && !isAddress(secret) && !secret.endsWith(":"));
}

/** The secrets that a step receives. */
export class Secrets {
  #known = [];

  /** Records the secrets in a JSON value. */
  learn(value) {
    let decoded = value;
    try {
      if (typeof value === "string") decoded = JSON.parse(value);
    } catch {} // the text itself is the secret
    if (typeof decoded === "number") decoded = String(value); // such as a PIN
    this.#known.push(...texts(decoded).flatMap(secretsIn));
    this.#known.sort((a, b) => b.length - a.length); // a secret may contain another one
  }

  /** Reports whether a JSON value contains a secret. */
  isIn(value) {
    return texts(value).some((text) => this.#known.some((secret) => text.includes(secret)));
  }

  /** Removes secrets and credentials from a text, also the start of a secret where the text was cut. Other values become texts. */
  redact(value) {
    let text = String(value);
    for (const secret of this.#known) {
      text = text.replaceAll(secret, REDACTED);
      for (let n = secret.length; text.endsWith("...") && n >= MIN_SECRET; n--) {
        if (text.endsWith(`${secret.slice(0, n)}...`)) text = text.slice(0, -n - 3) + REDACTED;
      }
    }
    return maskText(text);
  }
}
