package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cbcast/cbcast/internal/event"
	"github.com/cbcast/cbcast/internal/subject"
)

const (
	tenant  = "bench"
	session = "5f0c7b1e-3a52-4c0f-9a55-0f5d6a1f2b3c"
)

var words = []string{
	"the", "build", "fails", "because", "module", "is", "missing", "in", "vendor", "directory", "and", "test",
	"reads", "file", "src/main/app.ts:42", "with", "\\\"quotes\\\"", "\\n", "then", "returns", "an", "error", "instead",
}

// frames returns n assistant frames of Claude Code of size bytes each, the LF
// not counted, behind an init frame.
func frames(n, size int) [][]byte {
	r := rand.New(rand.NewPCG(1, uint64(size)))
	text := make([]byte, 0, size)
	all := make([][]byte, 0, n+1)
	all = append(all, []byte(`{"type":"system","subtype":"init","cwd":"/src","session_id":"`+session+`","model":"m","tools":[]}`))
	for i := range n {
		id := fmt.Sprintf("%08x-0000-4000-8000-%012x", r.Uint32(), i)
		head := `{"type":"assistant","message":{"id":"msg_` + id + `","type":"message","role":"assistant","model":"claude-opus-4","content":[{"type":"text","text":"`
		tail := `"}],"stop_reason":null,"usage":{"input_tokens":3,"output_tokens":` + strconv.Itoa(i%1000) +
			`}},"parent_tool_use_id":null,"session_id":"` + session + `","uuid":"` + id + `"}`
		text = text[:0]
		room := size - len(head) - len(tail)
		for {
			w := words[r.IntN(len(words))]
			if len(text)+len(w)+1 > room {
				break
			}
			text = append(append(text, w...), ' ')
		}
		text = append(text, bytes.Repeat([]byte("."), max(0, room-len(text)))...)
		all = append(all, append(append(append(make([]byte, 0, size), head...), text...), tail...))
	}
	return all
}

// asEvent is what the edge makes of a frame.
func asEvent(run string, seq uint64, data []byte) *event.Event {
	return &event.Event{
		Tenant: tenant, Run: run, Seq: seq, Time: time.Now(), Type: "dev.cbcast.claude.assistant", Kind: event.Msg,
		Stream: event.Out, Session: session, ContentType: event.JSON, Data: data,
	}
}

// A cheap makes messages with the headers of events at the least cost: only what
// differs between two events is made anew.
type cheap struct {
	msg nats.Msg
	run string
	id  bool // with Nats-Msg-Id
}

func newCheap(run string, id bool) *cheap {
	e := asEvent(run, 1, nil)
	s := subject.Event{Tenant: tenant, Run: run, Session: session, Kind: string(event.Msg)}
	c := &cheap{run: run, id: id, msg: nats.Msg{Subject: s.String(), Header: nats.Header{}}}
	e.Attributes(func(name, value string) { c.msg.Header[event.HeaderPrefix+name] = []string{value} })
	return c
}

func (c *cheap) make(seq uint64, data []byte) *nats.Msg {
	n := strconv.FormatUint(seq, 10)
	id := c.run + "/" + n
	c.msg.Header["ce-id"][0] = id
	c.msg.Header["ce-sequence"][0] = fmt.Sprintf("%020d", seq)
	if c.id {
		c.msg.Header["Nats-Msg-Id"] = []string{id}
	}
	c.msg.Reply, c.msg.Data = "", data
	return &c.msg
}
