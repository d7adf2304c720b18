package sink

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/run"
)

// A Payload is a notice for programs: the data of a webhook's CloudEvent, and what a
// command reads on its stdin. Names and labels in it are the child's text as it is:
// whoever shows it escapes it. Fields may be added.
type Payload struct {
	ID       string            `json:"id"`   // of the notice; the same for each attempt
	Kind     Kind              `json:"kind"` // finished, failed, lost, waiting …
	Time     time.Time         `json:"time"`
	Headline string            `json:"headline"` // one line, in words of cbcast
	Note     string            `json:"note,omitempty"`
	Mention  string            `json:"mention,omitempty"`
	Tenant   string            `json:"tenant,omitempty"`
	Run      string            `json:"run,omitempty"`
	Dialect  string            `json:"dialect,omitempty"`
	State    string            `json:"state,omitempty"`
	Name     string            `json:"name,omitempty"` // workflow, CI job, or the run's id
	Verdict  string            `json:"verdict,omitempty"`
	Evidence []run.Evidence    `json:"evidence,omitempty"`
	CI       map[string]string `json:"ci,omitempty"`
	Links    PayloadLinks      `json:"links"`

	Provisional bool           `json:"provisional,omitempty"` // the verdict may still change
	Reopened    bool           `json:"reopened,omitempty"`    // what was told last holds no longer
	StartedAt   *time.Time     `json:"started_at,omitempty"`
	EndedAt     *time.Time     `json:"ended_at,omitempty"`
	DurationMS  int64          `json:"duration_ms,omitempty"`
	CostUSD     float64        `json:"cost_usd,omitempty"`
	Tokens      *run.Tokens    `json:"tokens,omitempty"`
	Model       string         `json:"model,omitempty"`
	Tasks       *TaskCounts    `json:"tasks,omitempty"`
	Result      string         `json:"result,omitempty"` // what the agent said last
	Asks        []PayloadAsk   `json:"asks,omitempty"`   // that are open
	Digest      []PayloadLine  `json:"digest,omitempty"`
	Event       *PayloadEvent  `json:"event,omitempty"`   // that caused the notice
	Stalled     *event.Stalled `json:"stalled,omitempty"` // of a stalled notice
	// Left says what is not here because a notice is bounded: characters of a text,
	// entries of a list. The run's page has everything.
	Left map[string]int `json:"left,omitempty"`
}

// PayloadLinks are links for people.
type PayloadLinks struct {
	Run string `json:"run,omitempty"`
	CI  string `json:"ci,omitempty"`
}

// A PayloadAsk is an open ask.
type PayloadAsk struct {
	ID        string     `json:"id"`
	Class     string     `json:"class"`
	Kind      string     `json:"kind"`
	Tool      string     `json:"tool,omitempty"`
	Title     string     `json:"title,omitempty"`
	Asked     string     `json:"asked,omitempty"` // all of it as text, cut
	Ambiguous bool       `json:"ambiguous,omitempty"`
	InputHash string     `json:"input_sha256,omitempty"`
	OpenedAt  *time.Time `json:"opened_at,omitempty"`
}

// A PayloadLine is one line of a digest.
type PayloadLine struct {
	Kind    Kind      `json:"kind"`
	Tenant  string    `json:"tenant,omitempty"`
	Run     string    `json:"run,omitempty"`
	Verdict string    `json:"verdict,omitempty"`
	Text    string    `json:"text,omitempty"`
	Link    string    `json:"link,omitempty"`
	Count   int       `json:"count"`
	Time    time.Time `json:"time"`
}

// A PayloadEvent names the event that caused a notice.
type PayloadEvent struct {
	ID   string    `json:"id"`
	Type string    `json:"type"`
	Seq  uint64    `json:"seq,omitempty"`
	Time time.Time `json:"time"`
}

// payloadOf is the whole payload, with each text bounded.
func payloadOf(n *Notice) *Payload {
	b := briefOf(n)
	p := &Payload{
		ID: n.ID, Kind: n.Kind, Time: n.At.UTC(), Headline: b.headline, Tenant: n.Tenant, Run: n.Run,
		Dialect: n.Summary.Dialect, State: n.Summary.State, Verdict: verdictOf(n), Reopened: n.Reopened,
		Links: PayloadLinks{safeLink(n.Links.Run), safeLink(n.Links.CI)}, Left: map[string]int{},
	}
	p.Name, p.Note, p.Mention = p.text("name", b.name, 300), p.text("note", n.Note, 1000), p.text("mention", n.Mention, 300)
	if len(n.CI) > 0 {
		p.CI = map[string]string{}
		for k, v := range n.CI {
			p.CI[k] = p.text("ci", v, 300)
		}
	}
	if e := n.Event; e != nil {
		p.Event = &PayloadEvent{e.ID(), e.Type, e.Seq, e.Time.UTC()}
		var s event.Stalled
		if e.Type == event.TypeStalled && json.Unmarshal(e.Data, &s) == nil {
			p.Stalled = &s
		}
	}
	if v := n.View; v != nil {
		p.State, p.Dialect, p.Provisional, p.StartedAt, p.EndedAt = v.State, v.Dialect, v.Provisional, v.StartedAt, v.EndedAt
		p.DurationMS, p.CostUSD, p.Tokens = elapsed(n).Milliseconds(), v.Usage.CostUSD, &v.Usage.Tokens
		p.Model = p.text("model", v.Model, 200)
		counts := countTasks(v)
		p.Tasks = &counts
		if v.Verdict != nil {
			p.Evidence = v.Verdict.Evidence
		}
		if v.Result != nil {
			p.Result = p.text("result", v.Result.Text, 4000)
		}
	}
	for i := range n.Asks {
		a := &n.Asks[i]
		p.Asks = append(p.Asks, PayloadAsk{
			a.ID, a.Class, a.Kind, a.Tool, p.text("asks", a.Title, 300), p.text("asks", asked(a), 2000), a.Ambiguous, inputHash(a), a.OpenedAt,
		})
	}
	for _, l := range n.Digest {
		p.Digest = append(p.Digest, PayloadLine{
			l.Kind, l.Tenant, l.Run, l.Verdict, p.text("digest", l.Text, 200), safeLink(l.Link), max(1, l.Count), l.At.UTC(),
		})
	}
	return p
}

// text is the beginning of a text, and notes what is left out.
func (p *Payload) text(what, s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return strings.ToValidUTF8(s, "\ufffd")
	}
	runes := []rune(s)
	p.Left[what+"_characters"] += len(runes) - most
	return string(runes[:most])
}

// payload is a notice as JSON of at most most bytes: what it has most of goes first.
// The headline, the run and the links always stay.
func payload(n *Notice, most int) ([]byte, error) {
	p := payloadOf(n)
	for {
		b, err := encode(p)
		if err != nil {
			return nil, fmt.Errorf("encode the notice: %w", err)
		}
		if len(b) <= most {
			return b, nil
		}
		if !p.shrink() {
			return nil, fmt.Errorf("the notice is %d bytes at its smallest, over %d", len(b), most)
		}
	}
}

// encode leaves < and > alone: whoever shows it escapes it for where it stands.
func encode(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return []byte(strings.TrimSuffix(b.String(), "\n")), err
}

// shrink takes something out, and reports whether there was something.
func (p *Payload) shrink() bool {
	half := func(what string, s *string) bool {
		runes := []rune(*s)
		if len(runes) <= 200 {
			return false
		}
		p.Left[what+"_characters"] += len(runes) - len(runes)/2
		*s = string(runes[:len(runes)/2])
		return true
	}
	if half("result", &p.Result) {
		return true
	}
	cut := false
	for i := range p.Asks {
		cut = half("asks", &p.Asks[i].Asked) || cut
	}
	switch {
	case cut:
		return true
	case len(p.Digest) > 5:
		p.Left["digest"] += len(p.Digest) - len(p.Digest)/2
		p.Digest = p.Digest[:len(p.Digest)/2]
	case len(p.Asks) > 1:
		p.Left["asks"] += len(p.Asks) - len(p.Asks)/2
		p.Asks = p.Asks[:len(p.Asks)/2]
	case len(p.Evidence) > 0:
		p.Left["evidence"] += len(p.Evidence)
		p.Evidence = nil
	case len(p.CI) > 0:
		p.Left["ci"] += len(p.CI)
		p.CI = nil
	case p.Result != "" || len(p.Asks) > 0 || len(p.Digest) > 0 || p.Stalled != nil:
		p.Left["asks"] += len(p.Asks)
		p.Result, p.Asks, p.Digest, p.Stalled = "", nil, nil, nil
	default:
		return p.clip()
	}
	return true
}

// clip bounds single texts, at last.
func (p *Payload) clip() bool {
	clipped := false
	for _, s := range []*string{&p.Name, &p.Note, &p.Mention, &p.Model, &p.Headline} {
		if r := []rune(*s); len(r) > 200 {
			*s, clipped = string(r[:200]), true
		}
	}
	return clipped
}

// types of a notice's CloudEvent.
const noticeType = event.TypePrefix + "notice."

// sourceOf is the CloudEvents source of a notice.
func sourceOf(n *Notice) string {
	if n.Run == "" {
		return "/cbcast/" + n.Tenant
	}
	return "/cbcast/" + n.Tenant + "/" + n.Run
}

// knownKinds are those that a type is made of.
var knownKinds = []Kind{
	Finished, Failed, Lost, Resumed, Waiting, Reminder, Escalated, Answered, Stalled, Interrupted, Digest, Disabled, Test,
}

func typeOf(n *Notice) string {
	if !slices.Contains(knownKinds, n.Kind) {
		return noticeType + "other"
	}
	return noticeType + string(n.Kind)
}
