package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/slack-go/slack"
)

const (
	// channelGap is how far apart two messages in one channel are: Slack takes about
	// one a second.
	channelGap = time.Second

	// maxThread bounds the notices that a Ref lists, and maxSent the runs whose last
	// notice is kept so that a click can show at once.
	maxThread, maxSent = 50, 512

	// maxWork bounds the clicks that are worked on at once.
	maxWork = 16
)

// SlackConfig is a Slack app's bot.
type SlackConfig struct {
	Name    string
	Token   string // of the bot, "xoxb-…"
	Channel string // where a notice goes that names none
	// AppToken ("xapp-…") is for Socket Mode, SigningSecret for a request URL. With
	// neither there are no buttons.
	AppToken, SigningSecret string
	// Users are those who may click, by "U012" or "T012/U012", and what: answer,
	// command. Without the team they are of the bot's own workspace.
	Users map[string][]string
	// Dir keeps the keys of buttons, so that they outlive this process.
	Dir string
	// Actor carries out what is clicked; nil: no buttons.
	Actor   Actor
	API     string        // "" is Slack's
	Timeout time.Duration // of one call; 0 is 10 s
	Guard   *Guard        // nil allows public addresses only
	Log     *slog.Logger  // nil is none
}

// Slack tells each run in one message of a channel, updated in place, with a thread
// for what happened. Asks have buttons in it.
type Slack struct {
	cfg   SlackConfig
	api   *slack.Client
	quiet *Hidden
	log   *slog.Logger
	guard *Guard
	keys  *keys // nil without buttons

	gap    time.Duration
	ctx    context.Context // of the work that clicks make; ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	work   chan struct{} // capacity maxWork

	mu    sync.Mutex // guards the rest
	team  string     // of the bot
	next  map[string]time.Time
	ids   map[string]string // of channels by the names that rules have
	locks map[string]*runLock
	sent  map[string]sentNote
	order []string // of sent, the oldest first
	seen  map[[32]byte]*callbackReply
	old   [][32]byte // of seen, the oldest first
}

// A sentNote is a run's message as it was sent last.
type sentNote struct {
	notice  *Notice
	channel string
	ts      string
}

type runLock struct {
	mu    sync.Mutex
	users int
}

// NewSlack checks the configuration and opens the keys of buttons. It speaks to
// nobody.
func NewSlack(cfg SlackConfig) (*Slack, error) {
	var bad settingErrors
	if cfg.Token == "" {
		bad.say("token", "it has no token")
	}
	cfg.API = cmp.Or(cfg.API, slackAPIURL)
	if err := checkURL(cfg.API); err != nil {
		bad.add("api", fmt.Errorf("API: %w", err))
	}
	if cfg.API[len(cfg.API)-1] != '/' {
		cfg.API += "/"
	}
	for _, who := range slices.Sorted(maps.Keys(cfg.Users)) {
		for _, scope := range cfg.Users[who] {
			if !slices.Contains([]string{"answer", "command"}, scope) {
				bad.add("users/"+who, fmt.Errorf("the user %s has the scope %q; there are answer and command", short(who, 40), short(scope, 40)))
			}
		}
	}
	if err := bad.err(); err != nil {
		return nil, err
	}
	s := &Slack{
		cfg: cfg, guard: cmp.Or(cfg.Guard, &Guard{}), quiet: NewHidden(nil, cfg.Token, cfg.AppToken, cfg.SigningSecret).And(cfg.Guard.hidden(), loginOf(cfg.API)),
		log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)).With("destination", cfg.Name), work: make(chan struct{}, maxWork), gap: channelGap,
		next: map[string]time.Time{}, ids: map[string]string{}, locks: map[string]*runLock{}, sent: map[string]sentNote{}, seen: map[[32]byte]*callbackReply{},
	}
	client := slackDoer{s.guard.client(cmp.Or(cfg.Timeout, slackTimeout), nil)}
	s.api = slack.New(cfg.Token, slack.OptionHTTPClient(client), slack.OptionAPIURL(cfg.API), slack.OptionAppLevelToken(cfg.AppToken))
	if cfg.Actor != nil && (cfg.AppToken != "" || cfg.SigningSecret != "") && len(cfg.Users) > 0 {
		if cfg.Dir == "" {
			return nil, errors.New("it has no directory for its buttons")
		}
		var err error
		if s.keys, err = openKeys(cfg.Dir); err != nil {
			return nil, err
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Name implements [Sink].
func (s *Slack) Name() string { return s.cfg.Name }

// Capabilities implements [Sink].
func (s *Slack) Capabilities() Capabilities {
	return Capabilities{Updates: true, Threads: true, Buttons: s.keys != nil}
}

// Lane implements [Sink].
func (s *Slack) Lane(n *Notice) string { return s.channelOf(n) }

// Close waits for what clicks have begun, at most as long as their time-outs.
func (s *Slack) Close() error {
	s.cancel()
	s.wg.Wait()
	if s.keys != nil {
		return s.keys.close()
	}
	return nil
}

// Send implements [Sink]: the run's message first, then what the notice adds to its
// thread. What is told already is not told again.
func (s *Slack) Send(ctx context.Context, n *Notice) Outcome {
	if s.channelOf(n) == "" {
		return Outcome{Verdict: Refused, Permanent: true, Err: errors.New("neither the rule nor the destination names a channel")}
	}
	defer s.lock(cmp.Or(n.Run, n.ID))()
	if n.Run == "" || n.Kind == Digest || n.Kind == Test || n.Kind == Disabled {
		_, o := s.post(ctx, n, nil, whatOther)
		return o
	}
	first := n.Updates == nil || n.Updates.TS == ""
	if first && n.Kind == Answered {
		return Outcome{Verdict: Delivered} // of a run that nobody was told of
	}
	ref, left, o := s.main(ctx, n)
	if o.Verdict != Delivered {
		return o
	}
	s.remember(n, ref)
	fresh := ref.TS != "" && (first || n.Updates.TS != ref.TS)
	if fresh && left == 0 || slices.Contains(ref.Thread, n.ID) {
		o.Ref = ref
		return o
	}
	_, reply := s.post(ctx, n, ref, whatReply)
	if reply.Verdict != Delivered {
		reply.Ref = ref
		return reply
	}
	ref.Thread = append(ref.Thread, n.ID)
	ref.Thread = ref.Thread[max(0, len(ref.Thread)-maxThread):]
	reply.Ref, reply.Note = ref, cmp.Or(o.Note, reply.Note)
	return reply
}

// main updates the run's message, or posts it. left is how many characters are not in
// it.
// note renders the run's message. Where the keys of its buttons cannot be kept it has
// none: that people are told counts more.
// update changes a run's message. It can be repeated without harm.
// post tells something for the first time: the run's message, a reply in the thread of
// ref, or something of no run. After an attempt that nobody knows the end of it looks
// whether it is there.
// try posts one message once.
// pace waits until the channel may have its next message.
func (s *Slack) pace(ctx context.Context, channel string) error {
	now := time.Now()
	s.mu.Lock()
	at := s.next[channel]
	if at.Before(now) {
		at = now
	}
	for c, t := range s.next { // those whose time is over say nothing
		if t.Before(now) {
			delete(s.next, c)
		}
	}
	s.next[channel] = at.Add(s.gap)
	s.mu.Unlock()
	if at.Equal(now) {
		return ctx.Err()
	}
	t := time.NewTimer(at.Sub(now))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lock keeps what is done with one run in order. The function it returns unlocks.
func (s *Slack) lock(run string) func() {
	s.mu.Lock()
	l := s.locks[run]
	if l == nil {
		l = &runLock{}
		s.locks[run] = l
	}
	l.users++
	s.mu.Unlock()
	l.mu.Lock()
	return func() {
		l.mu.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(s.locks, run)
		}
	}
}

// remember keeps a run's last notice, so that a click can show in its message.
func (s *Slack) remember(n *Notice, ref *Ref) {
	if s.keys == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.sent[n.Run]; !ok {
		s.order = append(s.order, n.Run)
	}
	s.sent[n.Run] = sentNote{n, ref.Channel, ref.TS}
	for len(s.order) > maxSent {
		delete(s.sent, s.order[0])
		s.order = s.order[1:]
	}
}

// Forget erases what is kept of a run: its buttons, and its last notice.
func (s *Slack) Forget(tenant, run string) error {
	defer s.lock(run)()
	s.mu.Lock()
	if last, ok := s.sent[run]; ok && last.notice.Tenant == tenant {
		delete(s.sent, run)
		s.order = slices.DeleteFunc(s.order, func(r string) bool { return r == run })
	}
	s.mu.Unlock()
	if s.keys == nil {
		return nil
	}
	return s.keys.forget(tenant, run)
}

// refresh shows in a run's message what was clicked.
func (s *Slack) refresh(ctx context.Context, run string) {
	defer s.lock(run)()
	s.mu.Lock()
	last, ok := s.sent[run]
	s.mu.Unlock()
	if !ok {
		return // the next notice of the run shows it
	}
	n := *last.notice
	n.Updates = &Ref{Channel: last.channel, TS: last.ts}
	note, _ := s.note(&n)
	if _, o := s.update(ctx, &n, note, n.Updates); o.Verdict != Delivered {
		s.log.Debug("the click does not show yet", "run", run, "error", o.Err)
	}
}
