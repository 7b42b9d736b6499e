// Removes credentials from texts that people read, as libs/mask does for the services.
export const REDACTED = "[redacted]";

const PRIVATE_KEY = /-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g;
const USER_INFO = /([a-zA-Z][a-zA-Z0-9+.-]*:\/\/)[^\s/?#"'\\]+@/g;
const SCHEME = /\b(bearer|basic)\s+([A-Za-z0-9._~+/=-]+)/gi;
const NAMED = new RegExp(
  String.raw`((?:\b|[a-z0-9_-])(pass(?:word|wd|phrase)|\bpass|pwd|secret|token|authorization|api[_-]?key|access[_-]?key|` +
    String.raw`private[_-]?key|kubeconfig|signature|\bsig)\\?["']?\s*[:=]\s*)(\[redacted\]|"[^"]*"?|'[^']*'?|\S+)`, "gi");
const JWT = /\beyJ[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*){1,4}/g;
const LONG_RUN = /[A-Za-z0-9+/_-]{40,}={0,2}/g;
const DIGEST = /sha(?:256|512):$/; // before a checksum, which is no secret
// Words after "token: " in an error such as "fetch the token: uaa: status 401", and names of steps.
const PROSE = /^(?:[A-Z]?[a-z]{1,15}[:,]?|[A-Z][A-Za-z]{0,20}(?:_[A-Z][A-Za-z]{0,20}){1,5})$/;
const NO_CREDENTIAL = /^(?:auth|authentication|authorization|tokens?|credentials|realm|is|was|of|and|or)[.=]*$/i;

function describes(before, name, value, rest) {
  if (/^(pass|pwd$)/i.test(name) || !before.endsWith(": ") || !PROSE.test(value)) return false;
  return /^ +["'(\[`]?\p{L}/u.test(rest);
}

function isRandom(run) {
  return run.replace(/=+$/, "").split("/").some((part) =>
    (part.length >= 40 && !/[-_]/.test(part)) || (part.length >= 20 && /[A-Z]/.test(part) && /[a-z]/.test(part) && /\d/.test(part)));
}

/** Returns the text without passwords, tokens, keys and user names in addresses. */
export function maskText(text) {
  return text
    .replace(PRIVATE_KEY, REDACTED)
    .replace(USER_INFO, `$1${REDACTED}@`)
    .replace(SCHEME, (all, name, value) => (NO_CREDENTIAL.test(value) ? all : `${name} ${REDACTED}`))
    .replace(NAMED, (all, before, name, value, at, whole) =>
      describes(before, name, value, whole.slice(at + all.length)) ? all : before + REDACTED)
    .replace(JWT, REDACTED)
    .replace(LONG_RUN, (run, at, whole) => (isRandom(run) && !DIGEST.test(whole.slice(0, at)) ? REDACTED : run));
}
