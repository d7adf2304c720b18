import { createEventSource } from "eventsource-client";
import { addresses, end, fail, say, token } from "./say.mjs";

function follow(address, tell, over) {
  let status;
  const source = createEventSource({
    url: address,
    headers: { Authorization: `Bearer ${token}` },
    fetch: async (address, init) => {
      const response = await fetch(address, init);
      status = response.status;
      if (status === 429 || status >= 500) throw new Error(`status ${status}`); // it comes back
      if (status >= 400) queueMicrotask(() => (source.close(), over(status))); // it would come back for ever
      return response;
    },
    onMessage: tell,
    onDisconnect: () => status === 204 && over(status), // the run has ended; it closes itself
  });
}

addresses.forEach((address, stream) =>
  follow(
    address,
    (e) => say(stream, { name: e.event, id: e.id, data: e.data }),
    (status) => (status === 204 ? end(stream) : fail(stream, status)),
  ),
);
