// The runs as the relay lists them, kept up to date by one stream.

import * as api from "./api.js";
import { Stream } from "./stream.js";

const most = 200; // runs that the list begins with

export class RunFeed {
  constructor({ changed, status }) {
    Object.assign(this, { changed, runs: new Map(), told: new Set(), asked: new Set(), next: "", loaded: false, trouble: "" });
    this.stream = new Stream(`/v1/stream?runs=only&limit=${most}`, {
      tell: (e) => this.take(e),
      status: (c) => {
        if (c.state === "connecting" || c.state === "away") this.told.clear();
        this.trouble = { missing: "The relay has no list.", refused: "Your token may not read." }[c.state] ?? "";
        status(c);
        changed();
      },
    });
  }

  close() {
    this.stream.close();
  }

  list() {
    return [...this.runs.values()];
  }

  take(e) {
    switch (e.name) {
      case "run": {
        const r = JSON.parse(e.data);
        if (r.gone || r.matches === false) this.runs.delete(r.run);
        else this.runs.set(r.run, r);
        this.told.add(r.run);
        break;
      }
      case "ready": {
        // What was not told is gone from the list; what one asked for beyond it stays.
        for (const id of [...this.runs.keys()]) if (!this.told.has(id) && !this.asked.has(id)) this.runs.delete(id);
        this.told.clear();
        if (!this.loaded && JSON.parse(e.data).more) this.findNext();
        this.loaded = true;
        break;
      }
      default:
        return;
    }
    this.changed();
  }

  // findNext learns where the list goes on.
  async findNext() {
    try {
      this.next = (await api.get(`/v1/runs?limit=${most}`)).next ?? "";
      this.changed();
    } catch { /* then there is no button */ }
  }

  async older() {
    try {
      const doc = await api.get(`/v1/runs?limit=${most}&cursor=${encodeURIComponent(this.next)}`);
      for (const r of doc.runs) {
        this.asked.add(r.run);
        if (!this.runs.has(r.run)) this.runs.set(r.run, r);
      }
      this.next = doc.next ?? "";
    } catch (e) {
      this.trouble = api.explain(e);
    }
    this.changed();
  }
}
