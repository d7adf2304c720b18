package run

import (
	"strings"

	"github.com/cbcast/cbcast/internal/dialect"
)

// totals is what a result restates. Claude Code's cost is a running total of
// the process and its usage is that of one turn; CodeBuddy's cost and usage are
// running totals of the session (measured with 2.117 and 2.163: 11, 22, 33
// tokens for three equal turns).
type totals struct {
	cost   float64
	tokens Tokens
}

type usage struct {
	cost     float64
	tokens   Tokens
	sessions map[string]totals // by session; "" is the process
	models   map[string]ModelUsage
}

// count adds a result to its turn and to the run, nothing twice. A total that
// goes down inside one process adds nothing and is a warning.
func (s *State) count(session string, f *dialect.Frame, t *turn) {
	costKey := ""
	if s.dialect == dialect.CBC {
		costKey = session
	}
	before, known := s.use.sessions[costKey]
	if !known && len(s.use.sessions) >= maxSessions {
		return
	}
	after := totals{cost: dollars(f.Get("total_cost_usd")), tokens: tokensOf(f.Get("usage"))}
	if c := f.Get("total_cost_usd"); odd(f.Get("usage")) || dollars(c) != c.Float() {
		s.warn(s.lastResult, "odd_usage", "")
	}
	if after.cost < before.cost {
		s.warn(s.lastResult, "cost_went_down", "")
		after.cost = before.cost
	}
	t.cost += after.cost - before.cost
	s.use.cost += after.cost - before.cost
	add := after.tokens
	if s.dialect == dialect.CBC {
		add = Tokens{
			Input: rise(before.tokens.Input, after.tokens.Input), Output: rise(before.tokens.Output, after.tokens.Output),
			CacheRead:   rise(before.tokens.CacheRead, after.tokens.CacheRead),
			CacheCreate: rise(before.tokens.CacheCreate, after.tokens.CacheCreate),
		}
	}
	t.tokens.add(add)
	s.use.tokens.add(add)
	s.use.sessions[costKey] = after
	for k, v := range f.Get("modelUsage").Fields {
		name := clip(string(k), maxText)
		if _, ok := s.use.models[name]; !ok && len(s.use.models) >= maxModels {
			continue
		}
		s.use.models[name] = ModelUsage{
			Tokens: Tokens{
				Input: number(v.Get("inputTokens")), Output: number(v.Get("outputTokens")),
				CacheRead: number(v.Get("cacheReadInputTokens")), CacheCreate: number(v.Get("cacheCreationInputTokens")),
			},
			CostUSD: dollars(v.Get("costUSD")),
		}
	}
}

func rise(before, after int64) int64 { return max(0, after-before) }

func (t *Tokens) add(u Tokens) {
	t.Input += u.Input
	t.Output += u.Output
	t.CacheRead += u.CacheRead
	t.CacheCreate += u.CacheCreate
}

func tokensOf(v dialect.Value) Tokens {
	return Tokens{
		Input: number(v.Get("input_tokens")), Output: number(v.Get("output_tokens")),
		CacheRead: number(v.Get("cache_read_input_tokens")), CacheCreate: number(v.Get("cache_creation_input_tokens")),
	}
}

// maxTokens is more than any agent uses, and far from where sums overflow.
const maxTokens = 1 << 42

// number is a count of tokens, 0 where it cannot be one.
func number(v dialect.Value) int64 {
	if n := v.Int(); n > 0 && n <= maxTokens {
		return n
	}
	return 0
}

// maxDollars is more than any run costs.
const maxDollars = 1e9

// dollars is a cost, 0 where it cannot be one.
func dollars(v dialect.Value) float64 {
	if f := v.Float(); f > 0 && f <= maxDollars {
		return f
	}
	return 0
}

// odd reports whether one of the counts in usage cannot be one.
func odd(usage dialect.Value) bool {
	for _, k := range []string{"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"} {
		if v := usage.Get(k); v.Int() != number(v) {
			return true
		}
	}
	return false
}

// resumed reports whether the child was told to go on with a session.
func (s *State) resumed() bool {
	for _, a := range s.started.Argv {
		name, _, _ := strings.Cut(a, "=")
		switch name {
		case "--resume", "-r", "--continue", "-c", "--session-id":
			return true
		}
	}
	return false
}
