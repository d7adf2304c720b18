// Events as the relay sends them: CloudEvents in JSON, the agent's frame under data.

const prefix = "dev.cbcast.";

// decode makes an event easy to read. frames are the JSON objects in it (several where deltas share
// an event), bytes its data where that is no JSON.
export function decode(raw) {
  const ev = typeof raw === "string" ? JSON.parse(raw) : raw;
  const type = String(ev.type ?? "").replace(prefix, "");
  const dot = type.indexOf(".");
  const e = {
    seq: Number(ev.sequence ?? 0), at: Date.parse(ev.time ?? ""), stream: ev.stream ?? "", task: ev.task ?? "", parent: ev.parent ?? "",
    ask: ev.ask ?? "", dialect: type.slice(0, dot), what: type.slice(dot + 1), piece: Boolean(ev.chunk), ext: ev, frames: [], bytes: "",
  };
  if (ev.data_base64 !== undefined) {
    e.bytes = fromBase64(ev.data_base64);
    if (ev.datacontenttype === "application/x-ndjson") e.frames = e.bytes.split("\n").map(objectOf).filter(Boolean);
    else if (ev.datacontenttype === "application/json") e.frames = [objectOf(e.bytes)].filter(Boolean);
  } else if (typeof ev.data === "string") e.bytes = ev.data;
  else if (ev.data) e.frames = [ev.data];
  return e;
}

function objectOf(s) {
  try {
    const v = JSON.parse(s);
    return v && typeof v === "object" ? v : null;
  } catch {
    return null;
  }
}

function fromBase64(s) {
  const raw = atob(s);
  const b = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) b[i] = raw.charCodeAt(i);
  return new TextDecoder().decode(b);
}

// quiet are events that change nothing in a run's state that the page shows: it need not be read again.
export function quiet(e) {
  return e.what === "stream_event" || e.what.endsWith(".delta") || e.what.endsWith("outputDelta") || e.what.endsWith("TextDelta") || e.what === "keep_alive" || e.what === "stderr";
}
