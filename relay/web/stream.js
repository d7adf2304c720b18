// Server-sent events over fetch. An EventSource would do the same, but hides the heartbeats, by
// which a silent stream is told from a dead one, and the reason why a relay says no.

import { keepTime, refused } from "./api.js";

const beat = Number(document.documentElement.dataset.heartbeat) || 12_000;

// After staleAfter without a byte the page says so; after dropAfter it connects anew.
export const staleAfter = 2 * beat + 1000;
const dropAfter = 3 * beat + 2000;
const retryMax = 15_000;

// A Stream follows one address until it ends, and comes back by itself behind the last id it has
// seen. tell is called with each event {id, name, data}, status with what became of the connection:
// connecting, live, stale, away, ended, refused, missing.
export class Stream {
  constructor(address, { after, tell, status }) {
    Object.assign(this, { address, id: after === undefined ? "" : String(after), tell, status });
    this.retry = 1000;
    this.failed = 0;
    this.closed = false;
    this.state = "";
    this.heard = performance.now();
    this.watch = setInterval(() => this.look(), 500);
    this.hurry = () => this.wake?.();
    addEventListener("online", this.hurry);
    this.done = this.run();
  }

  close() {
    this.closed = true;
    this.stop?.abort();
    this.wake?.();
    clearInterval(this.watch);
    removeEventListener("online", this.hurry);
  }

  be(state, more = {}) {
    if (this.closed) return;
    this.state = state;
    this.status({ state, silent: performance.now() - this.heard, ...more });
  }

  // look notices silence.
  look() {
    const silent = performance.now() - this.heard;
    if (this.state === "live" && silent > staleAfter) this.be("stale");
    else if (this.state === "stale" || this.state === "away") this.be(this.state, { retryAt: this.retryAt });
    if ((this.state === "live" || this.state === "stale" || this.state === "connecting") && silent > dropAfter && !this.given) {
      this.given = true;
      this.stop?.abort();
    }
  }

  async run() {
    while (!this.closed) {
      const end = await this.connect();
      if (this.closed) return;
      if (end) {
        this.be(end);
        this.close();
        return;
      }
      await this.pause();
    }
  }

  // connect reads one connection to its end. It returns a word where there is nothing to come back for.
  async connect() {
    this.stop = new AbortController();
    this.given = false;
    if (this.state !== "stale") this.be(this.failed ? "away" : "connecting");
    try {
      const headers = { Accept: "text/event-stream" };
      if (this.id !== "") headers["Last-Event-ID"] = this.id;
      const response = await fetch(this.address, { headers, signal: this.stop.signal, cache: "no-store", credentials: "same-origin", redirect: "error" });
      keepTime(response);
      switch (response.status) {
        case 200:
          break;
        case 204:
          return "ended";
        case 401:
          refused();
          return "refused";
        case 403:
          return "refused";
        case 404:
        case 410:
          return "missing";
        default:
          throw new Error("status " + response.status);
      }
      this.heard = performance.now();
      this.failed = 0;
      this.be("live");
      await this.read(response.body.getReader());
    } catch {
      this.failed++;
    }
    return "";
  }

  async read(reader) {
    const decoder = new TextDecoder();
    const parser = new Parser((e) => {
      if (e.id !== undefined) this.id = e.id;
      this.tell(e);
    }, (ms) => (this.retry = ms));
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.closed) return;
      this.heard = performance.now();
      if (this.state !== "live") this.be("live");
      parser.feed(decoder.decode(value, { stream: true }));
    }
  }

  // pause waits before the next try: as long as the relay said, longer each time nothing comes.
  async pause() {
    const wait = Math.min(retryMax, this.retry * 2 ** Math.max(0, this.failed - 1)) * (0.75 + Math.random() / 2);
    this.retryAt = performance.now() + wait;
    this.be(this.failed ? "away" : "connecting", { retryAt: this.retryAt });
    await new Promise((resolve) => {
      const t = setTimeout(resolve, wait);
      this.wake = () => (clearTimeout(t), resolve());
    });
    this.wake = null;
  }
}

// A Parser takes text as it comes, in whatever pieces, and tells whole events. Lines end with LF, as
// the relay writes them, or CR LF.
export class Parser {
  constructor(tell, retry) {
    Object.assign(this, { tell, retry, rest: "", event: {} });
  }

  feed(text) {
    this.rest += text;
    let from = 0;
    for (let to; (to = this.rest.indexOf("\n", from)) >= 0; from = to + 1) {
      this.line(this.rest.slice(from, this.rest[to - 1] === "\r" ? to - 1 : to));
    }
    this.rest = this.rest.slice(from);
  }

  line(s) {
    if (s === "") {
      const e = this.event;
      this.event = {};
      if (e.data !== undefined) this.tell({ id: e.id, name: e.event ?? "message", data: e.data });
      return;
    }
    const colon = s.indexOf(":");
    if (colon === 0) return; // a comment: the heartbeat
    const field = colon < 0 ? s : s.slice(0, colon);
    const value = colon < 0 ? "" : s.slice(s[colon + 1] === " " ? colon + 2 : colon + 1);
    switch (field) {
      case "data":
        this.event.data = this.event.data === undefined ? value : this.event.data + "\n" + value;
        break;
      case "id":
      case "event":
        this.event[field] = value;
        break;
      case "retry":
        if (/^\d{1,6}$/.test(value)) this.retry(Number(value));
    }
  }
}
