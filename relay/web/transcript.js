// The transcript: a window over the run's events. It holds at most so many blocks, in memory and on
// the screen, whatever the run's length: it opens at the end, and reads what is before or behind it
// from the relay when one goes there. At the end it grows with the stream and forgets its beginning.

import { el, text } from "./dom.js";
import * as api from "./api.js";
import { Builder } from "./blocks.js";
import { BlockView } from "./blockviews.js";
import { decode } from "./events.js";
import { count, number } from "./format.js";

export const windowSize = 400; // blocks
const pageSize = 400; // events
const near = 300; // px from an end, from where on more is read

export class Transcript {
  constructor(run, { nameOf, goToAsk }) {
    Object.assign(this, { run, names: { nameOf, goToAsk } });
    this.views = new Map();
    this.dirty = new Set();
    this.following = true;
    this.attached = true; // the window reaches the end of what the stream told
    this.live = 0; // seq of the newest event of the stream
    this.first = 1; // seq of the first event that is kept
    this.head = el("p.edge");
    this.older = el("button.quiet", { type: "button", onclick: () => this.readOlder() }, "Read what was before");
    this.body = el("div.blocks");
    this.scroller = el("div.scroller", { tabindex: 0, role: "log", "aria-label": "Transcript", "aria-live": "off", onscroll: () => this.scrolled() }, this.head, this.body);
    this.jump = el("button.jump", { type: "button", hidden: true, onclick: () => this.toEnd() });
    this.node = el("div.transcript", {}, this.scroller, this.jump);
    this.reset(0);
  }

  reset(after) {
    this.builder = new Builder((b) => this.touch(b));
    this.dirty.clear();
    this.views.clear();
    this.body.replaceChildren();
    this.from = after; // everything up to here is not in the window
    this.hi = after; // everything up to here is known
    this.epoch = (this.epoch ?? 0) + 1;
    this.showEdges();
  }

  close() {
    this.closed = true;
    cancelAnimationFrame(this.frame);
  }

  // take is called with each event of the stream.
  take(e, seq) {
    this.live = Math.max(this.live, seq);
    if (!this.attached) return this.soon();
    if (seq !== 0 && seq <= this.hi) return;
    if (seq === 0) e.seq = this.hi; // a relay's word stands where it was heard
    this.apply(e, seq);
    if (this.builder.blocks.length > windowSize * 1.5) {
      if (this.following || document.hidden) this.trimTop();
      else this.attached = false;
    }
  }

  apply(e, seq) {
    try {
      this.builder.apply(e);
    } catch (cause) {
      // An agent can write what no one foresaw; it is shown as it is, and the rest goes on.
      this.builder.note("dim", `an event that this page cannot read (${seq})`, String(cause?.message ?? cause));
    }
    this.hi = Math.max(this.hi, seq);
  }

  touch(b) {
    this.dirty.add(b);
    this.soon();
  }

  soon() {
    if (this.closed) return;
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.paint();
    });
  }

  // paint brings the screen up to date, once for all that came since the last time.
  paint() {
    if (this.following && this.attached && this.builder.blocks.length > windowSize) this.trimTop();
    const blocks = this.builder.blocks;
    for (const b of this.dirty) this.views.get(b)?.update();
    this.dirty.clear();
    let at = this.body.firstChild;
    const keep = new Set(blocks);
    for (const [b, v] of this.views) {
      if (keep.has(b)) continue;
      if (v.node === at) at = at.nextSibling;
      v.node.remove();
      this.views.delete(b);
    }
    at = this.body.firstChild;
    for (const b of blocks) {
      let v = this.views.get(b);
      if (!v) {
        v = new BlockView(b, this.names);
        this.views.set(b, v);
      }
      if (v.node === at) at = at.nextSibling;
      else this.body.insertBefore(v.node, at);
    }
    this.showEdges();
    if (this.following) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  showEdges() {
    const more = this.from >= this.first;
    if (more && this.older.parentNode !== this.head) this.head.replaceChildren(this.older);
    if (!more) {
      const s = this.first > 1 ? `Events 1 to ${number(this.first - 1)} are no longer kept.` : this.hi > 0 ? "The run begins here." : "Nothing has been said yet.";
      this.head.replaceChildren(el("span.dim", {}, s));
    }
    const behind = this.live - this.hi;
    this.jump.hidden = this.following;
    text(this.jump, !this.attached && behind > 0 ? `↓ ${count(behind, "newer event")}` : "↓ Latest");
  }

  // forgetting: what leaves the window can be read again.
  trimTop() {
    const gone = this.builder.blocks.splice(0, this.builder.blocks.length - windowSize);
    if (gone.length === 0) return;
    this.builder.drop(gone);
    this.from = this.builder.blocks[0].seq - 1;
  }

  trimEnd() {
    const gone = this.builder.blocks.splice(windowSize);
    if (gone.length === 0) return;
    this.builder.drop(gone);
    this.hi = Math.max(this.builder.blocks.at(-1).seq, gone[0].seq - 1);
    this.attached = false;
  }

  scrolled() {
    const s = this.scroller;
    const toEnd = s.scrollHeight - s.scrollTop - s.clientHeight;
    const following = this.attached && toEnd < 40;
    if (following !== this.following) {
      this.following = following;
      this.soon();
    }
    if (s.scrollTop < near && !following) this.readOlder();
    if (toEnd < near && !this.attached) this.readNewer();
  }

  async page(after, limit) {
    const doc = await api.get(api.path`/v1/runs/${this.run}/events` + `?after=${after}&limit=${limit}`);
    doc.events = doc.events.map(decode);
    return doc;
  }

  // readOlder puts the events before the window in front of it, and keeps what is seen where it is.
  async readOlder() {
    if (this.reading || this.from < this.first) return;
    this.reading = true;
    const epoch = this.epoch;
    try {
      const to = this.from;
      const after = Math.max(this.first - 1, to - pageSize);
      const doc = await this.page(after, pageSize);
      if (this.closed || epoch !== this.epoch) return;
      const part = new Builder();
      part.first = this.builder.first;
      let begin = after;
      for (const e of doc.events) {
        if (e.seq > to) break;
        if (e.piece && part.blocks.length === 0) begin = e.seq; // the rest of a line that begins earlier
        else part.apply(e);
      }
      if (doc.gap) this.first = doc.gap.first;
      this.prepend(part, begin);
    } catch (e) {
      if (!this.closed) this.head.replaceChildren(this.older, el("span.trouble", {}, " " + api.explain(e)));
    } finally {
      this.reading = false;
    }
    if (this.scroller.scrollTop < near && this.builder.blocks.length < windowSize) this.readOlder();
  }

  prepend(part, begin) {
    const s = this.scroller;
    this.following = false;
    const anchor = [...this.body.children].find((n) => n.getBoundingClientRect().bottom > s.getBoundingClientRect().top);
    const top = anchor?.getBoundingClientRect().top;
    this.builder.behind(part);
    this.from = begin;
    if (this.builder.blocks.length > windowSize) this.trimEnd();
    this.paint();
    if (anchor?.isConnected) s.scrollTop += anchor.getBoundingClientRect().top - top;
  }

  // readNewer goes on behind the window, until it has caught up with the stream.
  async readNewer() {
    if (this.reading || this.attached) return;
    this.reading = true;
    const epoch = this.epoch;
    try {
      const doc = await this.page(this.hi, pageSize);
      if (this.closed || epoch !== this.epoch) return;
      for (const e of doc.events) if (e.seq > this.hi) this.apply(e, e.seq);
      this.hi = Math.max(this.hi, doc.next);
      if (this.hi >= this.live) this.attached = true;
      this.trimTop();
      this.paint();
    } catch { /* the next scroll tries again */ } finally {
      this.reading = false;
    }
  }

  // toEnd follows the run again.
  async toEnd() {
    if (!this.attached) {
      const after = Math.max(this.first - 1, this.live - pageSize);
      if (after > this.hi) this.reset(after);
      for (let n = 0; n < 20 && !this.attached && !this.closed; n++) await this.readNewer();
    }
    this.following = true;
    this.paint();
  }

  // gap says that events between are not kept: the window begins behind them.
  gap(g) {
    this.first = Math.max(this.first, g.first || 1);
    if (g.first > 0 && this.hi < g.first - 1 && this.builder.blocks.length === 0) {
      this.from = this.hi = g.first - 1;
    } else if (g.first > 0) {
      this.builder.e = { seq: g.first, at: NaN, parent: "" };
      this.builder.add("gap", { text: `Events ${number(g.asked + 1)} to ${number(g.first - 1)} are no longer kept.` });
    }
    this.soon();
  }
}
