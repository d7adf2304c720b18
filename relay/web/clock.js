// The clock of agents. Their times are the child's own words; those of turns and tasks are the edge's. A
// replayed recording, or a machine whose clock is off, says other times than the edge does.

const close = 120_000; // ms that two clocks may differ, or a word may be late, without it being worth a word
const together = 7 * 86_400_000; // agents whose times lie further apart have no common clock

// clockOf says how an owner's agents (of a task or a turn, from when until when on the edge's clock)
// are to be placed: by is added to each of their times, so that the first starts with its owner where
// they do not fit into it, else 0; knows reports whether an agent's times go with those of the others.
export function clockOf(agents, from, to) {
  const real = agents.some((a) => a.started_ms > 0 && !a.cached) ? agents.filter((a) => !a.cached) : agents; // a cached result may be of an earlier run
  const starts = real.map((a) => a.started_ms).filter((t) => t > 0).sort((a, b) => a - b);
  if (starts.length === 0) return { by: 0, knows: () => true };
  const middle = starts[Math.floor(starts.length / 2)];
  const near = (t) => Math.abs(t - middle) < together;
  const first = starts.find(near);
  const last = Math.max(first, ...real.map((a) => a.ended_ms || a.started_ms).filter((t) => t > 0 && near(t)));
  const fits = Number.isNaN(from) || Math.abs(first - from) <= close || (first > from && last <= to + close);
  const knows = (a) => near(a.started_ms) && (!a.cached || a.started_ms >= first - close);
  return { by: fits ? 0 : from - first, knows };
}
