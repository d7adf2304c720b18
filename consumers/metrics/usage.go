package metrics

import (
	"math"
	"slices"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// Token types.
var tokenTypes = [4]string{"input", "output", "cache_read", "cache_create"}

type tokens [4]int64

func (t tokens) zero() bool { return t == tokens{} }

// raise makes t no less than u.
func (t *tokens) raise(u tokens) {
	for i := range t {
		t[i] = max(t[i], u[i])
	}
}

// least is what both have.
func (t tokens) least(u tokens) tokens {
	for i := range t {
		t[i] = min(t[i], u[i])
	}
	return t
}

// rise is what b has more than t, and never less.
func (t tokens) rise(b tokens) (d tokens) {
	for i := range d {
		d[i] = max(0, b[i]-t[i])
	}
	return d
}

// used is what a process or a session had used when it last said so. Claude Code's
// cost and its usage by model are running totals of the process, its usage is that of
// one turn; CodeBuddy's are all running totals of the session.
type used struct {
	Cost   int64                 `json:"cost,omitempty"` // nano dollars
	Tokens tokens                `json:"tokens,omitzero"`
	Models map[string]*modelUsed `json:"models,omitempty"`
}

type modelUsed struct {
	Cost   int64  `json:"cost,omitempty"`
	Tokens tokens `json:"tokens,omitzero"`
}

// maxUsed and maxModels bound what is kept of one run, as the fold does.
const (
	maxUsed   = 64
	maxModels = 64
)

// result counts what a result says was used, nothing twice: repeated says that the
// frame was seen before.
func (c *tally) result(l *live, e *event.Event, f *dialect.Frame, repeated bool) {
	cbc := l.Dialect == string(dialect.CBC)
	key := ""
	if cbc {
		key = run.BoundID(e.Session)
	}
	before := l.Used[key]
	if before == nil {
		if len(l.Used) >= maxUsed {
			return
		}
		before = &used{}
		if cbc {
			before = c.earlier(l, key, f)
		}
		if l.Used == nil {
			l.Used = map[string]*used{}
		}
		l.Used[key] = before
	}
	c.rise(l, before, f, cbc, repeated)
	if cbc {
		c.sessions.put(runKey{l.Tenant, key}, before)
	}
}

// earlier is what a session had used before this run: what the last run of it said. Of a
// session that is gone on with and was not seen before it is what the first result says,
// which counts as used by nobody.
func (c *tally) earlier(l *live, session string, f *dialect.Frame) *used {
	for _, s := range []string{session, l.Resume} {
		if u := c.sessions.get(runKey{l.Tenant, s}); s != "" && u != nil {
			return u.clone()
		}
	}
	if !l.Again {
		return &used{}
	}
	u := &used{Cost: nanoUSD(f.Get("total_cost_usd").Float()), Tokens: tokensOf(f.Get("usage"))}
	for name, v := range f.Get("modelUsage").Fields {
		u.model(run.BoundID(string(name)), modelOf(v))
	}
	return u
}

// rise counts what a result has more than the totals before, which become its own.
// Claude Code's totals by model hold what sub-agents and helpers used, which its usage
// of the turn does not; CodeBuddy's may lag behind its usage, which is the total then.
func (c *tally) rise(l *live, before *used, f *dialect.Frame, session, repeated bool) {
	cost := nanoUSD(f.Get("total_cost_usd").Float())
	left := max(0, cost-before.Cost) // to be shared among the models
	before.Cost = max(cost, before.Cost)
	rest := tokensOf(f.Get("usage"))
	switch {
	case session:
		total := rest
		rest = before.Tokens.rise(total)
		before.Tokens.raise(total)
	case repeated:
		rest = tokens{}
	}
	main, any := c.modelName(l), false
	for name, v := range f.Get("modelUsage").Fields {
		now := modelOf(v)
		old := before.model(run.BoundID(string(name)), now)
		share, t := min(left, max(0, now.Cost-old.Cost)), old.Tokens.rise(now.Tokens)
		if left -= share; session {
			t = t.least(rest)
			rest = t.rise(rest)
		}
		c.spend(l, string(name), share, t)
		if !any {
			main, any = string(name), true
		}
	}
	if any && !session {
		rest = tokens{}
	}
	c.spend(l, main, left, rest)
}

// spend counts for one model.
func (c *tally) spend(l *live, model string, cost int64, t tokens) {
	if cost <= 0 && t.zero() {
		return
	}
	name := c.sets.models.of(model)
	c.add(mCost, cost, name, l.Who, l.Dialect)
	for i, n := range t {
		c.add(mTokens, n, tokenTypes[i], name, l.Who, l.Dialect)
	}
}

func (c *tally) modelName(l *live) string {
	if l.state != nil && l.state.Model() != "" {
		return l.state.Model()
	}
	return unknown
}

// told counts what the fold has more than before: of Codex, whose totals are of
// threads, and of a run whose only result is a document.
func (c *tally) told(l *live, before, after run.UsageView) {
	rest := tokensIn(before.Tokens).rise(tokensIn(after.Tokens))
	left := max(0, nanoUSD(after.CostUSD)-nanoUSD(before.CostUSD))
	for name, m := range after.Models {
		old := before.Models[name]
		t := tokensIn(old.Tokens).rise(tokensIn(m.Tokens))
		share := min(left, max(0, nanoUSD(m.CostUSD)-nanoUSD(old.CostUSD)))
		left -= share
		rest = t.rise(rest)
		c.spend(l, name, share, t)
	}
	c.spend(l, c.modelName(l), left, rest)
}

// model returns what a model had, and notes what it has.
func (u *used) model(name string, now modelUsed) (old modelUsed) {
	if m := u.Models[name]; m != nil {
		old = *m
		m.Cost = max(m.Cost, now.Cost)
		m.Tokens.raise(now.Tokens)
		return old
	}
	if len(u.Models) >= maxModels {
		return now // nothing of it is counted any more
	}
	if u.Models == nil {
		u.Models = map[string]*modelUsed{}
	}
	u.Models[name] = &now
	return old
}

func (u *used) clone() *used {
	v := &used{Cost: u.Cost, Tokens: u.Tokens}
	for name, m := range u.Models {
		v.model(name, *m)
	}
	return v
}

// nanoUSD is a cost in whole nano dollars.
func nanoUSD(v float64) int64 {
	if v != v || v <= 0 || v > 1e9 {
		return 0
	}
	return int64(math.Round(v * 1e9))
}

// maxTokens bounds what one report may say: more is no count of tokens.
const maxTokens = 1 << 50

func count(v dialect.Value) int64 {
	n := v.Int()
	if n < 0 || n > maxTokens {
		return 0
	}
	return n
}

func tokensOf(v dialect.Value) tokens {
	return tokens{
		count(v.Get("input_tokens")), count(v.Get("output_tokens")),
		count(v.Get("cache_read_input_tokens")), count(v.Get("cache_creation_input_tokens")),
	}
}

func modelOf(v dialect.Value) modelUsed {
	return modelUsed{nanoUSD(v.Get("costUSD").Float()), tokens{
		count(v.Get("inputTokens")), count(v.Get("outputTokens")),
		count(v.Get("cacheReadInputTokens")), count(v.Get("cacheCreationInputTokens")),
	}}
}

func tokensIn(t run.Tokens) tokens { return tokens{t.Input, t.Output, t.CacheRead, t.CacheCreate} }

// A sessionStore remembers what sessions had used, the latest ones.
type sessionStore struct {
	max   int
	m     map[runKey]*used
	order []runKey // may hold a key twice; the last place counts
}

func newSessionStore(limit int) *sessionStore {
	return &sessionStore{max: limit, m: map[runKey]*used{}}
}

func (s *sessionStore) get(k runKey) *used { return s.m[k] }

func (s *sessionStore) put(k runKey, u *used) {
	if _, ok := s.m[k]; ok {
		if i := slices.Index(s.order, k); i >= 0 && i < len(s.order)-1 {
			s.order = append(slices.Delete(s.order, i, i+1), k)
		}
	} else {
		if len(s.m) >= s.max {
			delete(s.m, s.order[0])
			s.order = s.order[1:]
		}
		s.order = append(s.order, k)
	}
	s.m[k] = u.clone()
}
