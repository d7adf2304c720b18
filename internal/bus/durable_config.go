package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// pinGroup is the one group of readers that a consumer serves one of.
	pinGroup = "cbcast"

	// pinTTL is how long the server waits for a word of the reader before another may
	// take over. Three are said in that time.
	pinTTL = 15 * time.Second

	// giveAgain is when the server would give a message again by itself, out of order:
	// later than anyone takes to ack or to be missed.
	giveAgain = 30 * time.Minute
)

// config is how the consumer should be.
func (d *Durable) config() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: d.cfg.Name, Name: d.cfg.Name,
		DeliverPolicy: jetstream.DeliverAllPolicy, ReplayPolicy: jetstream.ReplayInstantPolicy,
		AckPolicy: jetstream.AckAllPolicy, AckWait: giveAgain, MaxAckPending: d.cfg.Window, MaxDeliver: -1,
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{pinGroup}, PinnedTTL: d.ttl,
	}
}

// A consumerState is the server's answer about a consumer.
type consumerState struct {
	Created   time.Time                `json:"created"`
	Config    jetstream.ConsumerConfig `json:"config"`
	Delivered struct {
		Stream uint64 `json:"stream_seq"`
	} `json:"delivered"`
	AckFloor struct {
		Stream uint64 `json:"stream_seq"`
	} `json:"ack_floor"`
	NumAckPending int    `json:"num_ack_pending"`
	NumPending    uint64 `json:"num_pending"`
	Groups        []struct {
		Pinned string `json:"pinned_client_id"`
	} `json:"priority_groups"`
}

// pinned is who reads now, "" for nobody.
func (c *consumerState) pinned() string {
	if len(c.Groups) == 0 {
		return ""
	}
	return c.Groups[0].Pinned
}

func (d *Durable) api(verb string) string {
	return "CONSUMER." + verb + "." + d.cfg.Log.stream() + "." + d.cfg.Name
}

// info asks for the consumer's state, and for Pending of the status.
func (d *Durable) info(ctx context.Context, l *link) (*consumerState, error) {
	var c consumerState
	if err := d.b.askOn(ctx, l, d.api("INFO"), nil, &c); err != nil {
		return nil, fmt.Errorf("state of consumer %s of %s: %w", d.cfg.Name, d.cfg.Log, err)
	}
	d.set(func(st *DurableStatus) {
		// What an earlier session was given and did not ack comes again.
		st.Pending, st.Asked = c.NumPending+uint64(max(0, c.NumAckPending-len(d.given))), time.Now()
	})
	return &c, nil
}

// ensure makes the consumer where it is missing, and compares it where it is not.
func (d *Durable) ensure(ctx context.Context, l *link) (*consumerState, error) {
	const exists, exists2 = 10148, 10105 // consumer already exists, consumer name already in use
	c, err := d.info(ctx, l)
	if errors.Is(err, ErrNotFound) {
		c = &consumerState{}
		req := map[string]any{"stream_name": d.cfg.Log.stream(), "config": d.config(), "action": "create"}
		err = d.b.askOn(ctx, l, d.api("CREATE"), req, c)
		var api *apiError
		if errors.As(err, &api) && (api.ErrCode == exists || api.ErrCode == exists2) { // another was quicker
			c, err = d.info(ctx, l)
		}
		if err != nil {
			return nil, fmt.Errorf("create consumer %s of %s: %w", d.cfg.Name, d.cfg.Log, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return c, d.drift(c.Config)
}

// drift compares what the reading rests on; other limits are the operator's.
func (d *Durable) drift(have jetstream.ConsumerConfig) error {
	want := d.config()
	var all []string
	add := func(field string, w, h any) {
		if ws, hs := fmt.Sprint(w), fmt.Sprint(h); ws != hs {
			all = append(all, fmt.Sprintf("%s is %s, not %s", field, hs, ws))
		}
	}
	add("deliver_policy", want.DeliverPolicy, have.DeliverPolicy)
	add("ack_policy", want.AckPolicy, have.AckPolicy)
	add("max_deliver", want.MaxDeliver, have.MaxDeliver)
	add("replay_policy", want.ReplayPolicy, have.ReplayPolicy)
	add("filters", []string(nil), filters(have))
	add("headers_only", want.HeadersOnly, have.HeadersOnly)
	add("rate_limit_bps", want.RateLimit, have.RateLimit)
	add("inactive_threshold", want.InactiveThreshold, have.InactiveThreshold)
	add("backoff", want.BackOff, have.BackOff)
	add("priority_policy", want.PriorityPolicy, have.PriorityPolicy)
	add("priority_groups", want.PriorityGroups, have.PriorityGroups)
	if have.AckWait < pinTTL {
		add("ack_wait", want.AckWait, have.AckWait)
	}
	if have.MaxAckPending != want.MaxAckPending {
		d.b.log.Warn("consumer has another window", "consumer", d.cfg.Name, "log", d.cfg.Log, "have", have.MaxAckPending, "want", want.MaxAckPending)
	}
	if len(all) > 0 {
		return fmt.Errorf("%w: %s of %s: %s", ErrDrift, d.cfg.Name, d.cfg.Log, strings.Join(all, ", "))
	}
	return nil
}

func filters(c jetstream.ConsumerConfig) []string {
	if c.FilterSubject != "" {
		return append([]string{c.FilterSubject}, c.FilterSubjects...)
	}
	return c.FilterSubjects
}

// reset makes the server give again what is behind seq, in order.
func (d *Durable) reset(ctx context.Context, l *link, behind uint64) error {
	err := d.b.askOn(ctx, l, d.api("RESET"), map[string]uint64{"seq": behind + 1}, nil)
	if err != nil {
		return fmt.Errorf("reset consumer %s of %s: %w", d.cfg.Name, d.cfg.Log, err)
	}
	return nil
}

// letGo lets another instance read at once.
func (d *Durable) letGo(l *link) {
	ctx, cancel := context.WithTimeout(context.Background(), forgetWait)
	defer cancel()
	if err := d.b.askOn(ctx, l, d.api("UNPIN"), map[string]string{"group": pinGroup}, nil); err != nil {
		d.b.log.Debug("pin kept to its end", "consumer", d.cfg.Name, "log", d.cfg.Log, "error", err)
	}
}
