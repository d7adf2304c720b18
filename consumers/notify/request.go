package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	Sent  int    `json:"sent"` // notices that are queued again
	Error string `json:"error,omitempty"`
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
		b, err := os.ReadFile(name)
		if err == nil && len(b) <= maxRequest {
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
	}
	return Answer{}, errors.New("the request asks for nothing")
}

func (r *Replay) wants(it *item, at time.Time) bool {
	return (r.Dest == "" || r.Dest == it.Target.Dest) && (r.Run == "" || r.Run == it.Run || slices.ContainsFunc(it.Members, func(id string) bool {
		return strings.HasPrefix(id, cleanID(r.Run)+"/")
	})) && !at.Before(r.Since)
}

// replay queues notices again under their own ids: a receiver that has one sees that.
func (d *desk) replay(r Replay) (int, error) {
	if r.Limit <= 0 {
		r.Limit = defaultLimit
	}
	var list []letter
	var err error
	if r.Dead {
		if list, err = d.dead.all(); err != nil {
			return 0, err
		}
		list = slices.DeleteFunc(list, func(l letter) bool { return !r.wants(l.Item, l.At) })
	} else {
		err = readSent(filepath.Join(d.dir, "sent"), func(s sentNote) error {
			if r.wants(s.Item, s.At) {
				list = append(list, letter{Item: s.Item, Notice: s.Notice})
				list = list[max(0, len(list)-r.Limit):]
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
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
