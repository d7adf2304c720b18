import { EventSource } from "eventsource";
import { addresses, end, fail, say, token } from "./say.mjs";

// An EventSource gives up at any status but 200. What a proxy says while the relay is away becomes
// a failed connection, after which it comes back.
const ask = async (address, init) => {
  const response = await fetch(address, { ...init, headers: { ...init.headers, Authorization: `Bearer ${token}` } });
  if (response.status === 429 || response.status >= 500) throw new Error(`status ${response.status}`);
  return response;
};

const kinds = ["life", "msg", "task", "end", "ask", "cmd", "raw", "gap", "reset", "lost", "resumed"];

function follow(address, tell, over) {
  const source = new EventSource(address, { fetch: ask });
  for (const kind of kinds) source.addEventListener(kind, tell);
  source.addEventListener("error", (e) => {
    if (source.readyState === EventSource.CLOSED) over(e.code); // 204: the run has ended
  });
}

addresses.forEach((address, stream) =>
  follow(
    address,
    (e) => say(stream, { name: e.type, id: e.lastEventId, data: e.data }),
    (code) => (code === 204 ? end(stream) : fail(stream, code)),
  ),
);
