// follow tells every event of a run, and comes back also where a proxy said 502, at which an
// EventSource gives up.
function follow(run, tell) {
  const kinds = ["life", "msg", "task", "end", "ask", "cmd", "raw", "gap", "reset", "lost", "resumed"];
  let last = "0", ended = false;
  const open = () => {
    const source = new EventSource(`/v1/runs/${encodeURIComponent(run)}/stream?after=${last}`);
    for (const kind of kinds) {
      source.addEventListener(kind, (e) => {
        last = kind === "reset" ? "0" : e.lastEventId || last;
        const event = JSON.parse(e.data);
        ended ||= event.type === "dev.cbcast.edge.exited";
        tell(kind, event, e);
      });
    }
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) return; // it comes back by itself
      if (ended) tell("over");
      else setTimeout(open, 2000);
    };
  };
  open();
}
