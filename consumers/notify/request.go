package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/cbcast/cbcast/internal/durable"
)

// A Request asks the process that has the state directory to do something. It is a
// file in it: whoever may write there may ask.
type Request struct {
	Enable string  `json:"enable,omitempty"` // a destination
	Replay *Replay `json:"replay,omitempty"`
	Forget *Forget `json:"forget,omitempty"`
}

// Replay says what is to be sent again.
type Replay struct {
	Since time.Time `json:"since,omitzero"`
	Dest  string    `json:"dest,omitempty"`
	Run   string    `json:"run,omitempty"`
	Dead  bool      `json:"dead,omitempty"` // what was given up, else what was delivered
	Limit int       `json:"limit,omitempty"`
}

// An Answer says what became of a request.
type Answer struct {
	Sent   int        `json:"sent"` // notices that are queued again
	Forgot *Forgotten `json:"forgot,omitempty"`
	Error  string     `json:"error,omitempty"`
}

const (
	requestDir   = "requests"
	requestPoll  = 500 * time.Millisecond
	maxRequest   = 64 << 10
	defaultLimit = 1000
)

// Ask leaves a request in dir and waits until the process that runs there has
// answered, or ctx ends.
func Ask(ctx context.Context, dir string, r Request) (Answer, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return Answer{}, err
	}
	reqs := filepath.Join(dir, requestDir)
	if err := os.MkdirAll(reqs, 0o700); err != nil {
		return Answer{}, fmt.Errorf("leave a request: %w", err)
	}
	name := filepath.Join(reqs, uuid.NewString())
	if err := durable.WriteFile(name+".request", b, 0o600); err != nil {
		return Answer{}, fmt.Errorf("leave a request: %w", err)
	}
	defer os.Remove(name + ".answer")
	for {
		b, err := os.ReadFile(name + ".answer")
		if err == nil {
			var a Answer
			if err := json.Unmarshal(b, &a); err != nil {
				return Answer{}, fmt.Errorf("read the answer: %w", err)
			}
			if a.Error != "" {
				return a, errors.New(a.Error)
			}
			return a, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return Answer{}, fmt.Errorf("read the answer: %w", err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			os.Remove(name + ".request")
			return Answer{}, fmt.Errorf("no answer from the cbcast notify that has %s: %w", dir, context.Cause(ctx))
		}
	}
}

// requests answers what is asked through files, until ctx ends.
func (n *Notifier) requests(ctx context.Context) {
	t := time.NewTicker(requestPoll)
	defer t.Stop()
	for {
		n.answerAll()
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

func (n *Notifier) answerAll() {
	names, err := filepath.Glob(filepath.Join(n.o.Dir, requestDir, "*.request"))
	if err != nil {
		return
	}
	slices.Sort(names)
	for _, name := range names {
		var a Answer
		var r Request
		b, err := durable.ReadRegular(name, maxRequest)
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err == nil {
			a, err = n.Do(r)
		}
		if err != nil {
			a.Error = err.Error()
		}
		out, merr := json.Marshal(a)
		if merr == nil {
			merr = durable.WriteFile(strings.TrimSuffix(name, ".request")+".answer", out, 0o600)
		}
		if err := errors.Join(merr, durable.Remove(name)); err != nil {
			n.o.Log.Warn("request not answered", "error", err)
		}
	}
}

// Do carries a request out.
func (n *Notifier) Do(r Request) (Answer, error) {
	switch {
	case r.Enable != "":
		err := n.d.enable(r.Enable)
		if err == nil {
			n.o.Log.Info("destination is enabled", "destination", r.Enable)
		}
		return Answer{}, err
	case r.Replay != nil:
		sent, err := n.d.replay(*r.Replay)
		n.o.Log.Info("replay", "notices", sent, "dead", r.Replay.Dead)
		return Answer{Sent: sent}, err
	case r.Forget != nil:
		f, err := n.d.forget(*r.Forget)
		if err != nil {
			return Answer{}, err
		}
		n.o.Log.Info("a run is forgotten", "waiting", f.Waiting, "letters", f.Letters, "sent", f.Sent)
		return Answer{Forgot: f}, nil
	}
	return Answer{}, errors.New("the request asks for nothing")
}

func (r *Replay) wants(it *item, at time.Time) bool {
	return (r.Dest == "" || r.Dest == it.Target.Dest) && (r.Run == "" || slices.Contains(runsOf(it), cleanID(r.Run))) && !at.Before(r.Since)
}

// runsOf lists the runs that an item tells of, as they stand in ids of notices.
func runsOf(it *item) (all []string) {
	if it.Run != "" {
		all = append(all, cleanID(it.Run))
	}
	for _, id := range it.Members {
		if at := strings.LastIndexByte(id, '/'); at > 0 && !slices.Contains(all, id[:at]) {
			all = append(all, id[:at])
		}
	}
	return all
}

// ErrNoRun is returned where nothing was told of a run that is to be told again.
var ErrNoRun = errors.New("no notice of such a run is kept")

// named makes r.Run, which may be the beginning or the end of an id or "last", a whole one.
func (r *Replay) named(runs map[string]time.Time) error {
	if _, ok := runs[cleanID(r.Run)]; r.Run == "" || ok {
		return nil
	}
	var found []string
	latest := ""
	for _, id := range slices.Sorted(maps.Keys(runs)) {
		if latest == "" || !runs[id].Before(runs[latest]) {
			latest = id
		}
		if partOf(r.Run, id) {
			found = append(found, id)
		}
	}
	if r.Run == lastRun && latest != "" {
		found = []string{latest}
	}
	switch len(found) {
	case 0:
		return fmt.Errorf("%s: %w", r.Run, ErrNoRun)
	case 1:
		r.Run = found[0]
		return nil
	}
	return tooMany(r.Run, len(found), found[0], found[1])
}

// letters are what r asks for.
func (d *desk) letters(r *Replay) (list []letter, err error) {
	runs := map[string]time.Time{}
	note := func(it *item, at time.Time) {
		for _, id := range runsOf(it) {
			if at.After(runs[id]) {
				runs[id] = at
			}
		}
	}
	if r.Dead {
		if list, err = d.dead.all(); err != nil {
			return nil, err
		}
		for _, l := range list {
			note(l.Item, l.At)
		}
		if err := r.named(runs); err != nil {
			return nil, err
		}
		return slices.DeleteFunc(list, func(l letter) bool { return !r.wants(l.Item, l.At) }), nil
	}
	dir := filepath.Join(d.dir, "sent")
	if r.Run != "" {
		if err := readSent(dir, func(s sentNote) error { note(s.Item, s.At); return nil }); err != nil {
			return nil, err
		}
		if err := r.named(runs); err != nil {
			return nil, err
		}
	}
	err = readSent(dir, func(s sentNote) error {
		if r.wants(s.Item, s.At) {
			list = append(list, letter{Item: s.Item, Notice: s.Notice})
			list = list[max(0, len(list)-r.Limit):]
		}
		return nil
	})
	return list, err
}

// replay queues notices again under their own ids: a receiver that has one sees that.
func (d *desk) replay(r Replay) (int, error) {
	if r.Limit <= 0 {
		r.Limit = defaultLimit
	}
	d.mu.Lock()
	err := d.rules.known(r.Dest)
	d.mu.Unlock()
	if err != nil {
		return 0, err
	}
	list, err := d.letters(&r)
	if err != nil {
		return 0, err
	}
	list = list[:min(len(list), r.Limit)]
	d.mu.Lock()
	now, sent := time.Now(), 0
	for _, l := range list {
		if l.Notice == nil || d.st.items[l.Item.ID] != nil || d.rules.Destinations[l.Item.Target.Dest] == nil {
			continue
		}
		note := *l.Notice
		note.ID = l.Item.Note
		it := d.newItem(&note, noticeID(l.Item.ID), l.Item.Target, l.Item.Kind, now)
		it.Rule, it.Mention, it.Text, it.Ask, it.Members, it.Again = l.Item.Rule, l.Item.Mention, l.Item.Text, l.Item.Ask, l.Item.Members, true
		rec := record{Items: []*item{it}}
		if d.st.notes[note.ID] == nil {
			rec.Notes = append(rec.Notes, &note)
		}
		d.put(&rec)
		if r.Dead {
			l.Taken, l.Notice = true, nil
			if err := d.dead.put(l); err != nil {
				d.mu.Unlock()
				return sent, err
			}
		}
		sent++
	}
	d.mu.Unlock()
	return sent, d.commit()
}
