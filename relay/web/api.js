// Everything that goes to the relay and comes back, but streams (stream.js).

export class RelayError extends Error {
  constructor(status, body) {
    super(body?.message ?? `the relay answered ${status}`);
    this.status = status;
    this.code = body?.code ?? "";
    this.details = body?.details ?? {};
  }
}

// Away is thrown where no answer came at all.
export class Away extends Error {}

// events tells the page: "refused" when the relay wants a token, "session" when who we are changed.
export const events = new EventTarget();

let behind = 0; // ms that this machine's clock is behind the relay's

// now is the relay's time. Date has whole seconds, so small differences are none.
export const now = () => Date.now() + behind;

export function keepTime(response) {
  const d = Date.parse(response.headers.get("Date") ?? "");
  if (!Number.isNaN(d)) behind = Math.abs(d - Date.now()) > 2000 ? d - Date.now() : 0;
}

async function call(method, path, body, signal) {
  let response;
  try {
    response = await fetch(path, {
      method, signal, cache: "no-store", credentials: "same-origin", redirect: "error",
      headers: { Accept: "application/json", ...(method === "GET" ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw new Away("the relay does not answer", { cause });
  }
  keepTime(response);
  const text = await response.text();
  let doc = null;
  try {
    doc = JSON.parse(text);
  } catch { /* no JSON: a proxy's word */ }
  if (!response.ok) {
    if (response.status === 401 && path !== "/v1/session") refused();
    throw new RelayError(response.status, doc);
  }
  return doc;
}

export const get = (path, signal) => call("GET", path, undefined, signal);
export const post = (path, body = {}) => call("POST", path, body);

// path puts ids into an address: run ids come from outside.
export function path(strings, ...ids) {
  return strings.reduce((s, part, i) => s + part + (i < ids.length ? encodeURIComponent(ids[i]) : ""), "");
}

// Who we are. Scopes are what the relay told us; it checks them itself at each request.
export const session = { name: "", scopes: ["read"], cookie: false };

export const may = (scope) => session.scopes.includes(scope) || session.scopes.includes("admin");

export async function whoAmI() {
  try {
    become(await get("/v1/session"));
  } catch (e) {
    if (e instanceof RelayError && e.status === 401) become({ scopes: [] });
    else if (!(e instanceof RelayError)) throw e;
  }
  return session;
}

function become(doc) {
  session.name = doc?.name ?? "";
  session.scopes = doc?.scopes ?? [];
  session.cookie = doc?.via === "session";
  events.dispatchEvent(new Event("session"));
}

export function refused() {
  events.dispatchEvent(new Event("refused"));
}

export async function login(token) {
  await post("/v1/session", { token });
  await whoAmI();
}

export async function logout() {
  await call("DELETE", "/v1/session");
  await whoAmI();
}

// explain says an error in a sentence.
export function explain(e) {
  if (e instanceof Away) return "The relay does not answer. Nothing was sent twice; try again.";
  if (!(e instanceof RelayError)) return String(e?.message ?? e);
  const d = e.details;
  switch (e.code) {
    case "already_answered":
      return `Somebody else was first: ${d.decision ?? "answered"}${d.actor ? " by " + d.actor : ""}.`;
    case "ask_closed":
      return `This is open no more${d.reason ? ": " + String(d.reason).replaceAll("_", " ") : ""}.`;
    case "unauthorized":
      return "This needs a token with more rights.";
    case "forbidden":
      return "Your token may not do this" + (d.scope ? `: it lacks the scope ${d.scope}.` : ".");
    default:
      return e.message + ".";
  }
}
