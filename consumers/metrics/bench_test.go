package metrics

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cbcast/cbcast/internal/bus"
	"github.com/cbcast/cbcast/internal/event"
)

// frames4k is a run whose frames have 4 KiB, as an agent writes them: texts, tool calls
// and their results in turns.
func frames4k(n int) []*event.Event {
	s := claudeRun("r1")
	s.started(event.Started{})
	s.init()
	text := strings.Repeat(`The quick brown fox said \"jump\".\n`, 128)[:3700]
	for i := range n {
		uuid := fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)
		switch i % 3 {
		case 0:
			s.out("assistant", `{"type":"assistant","message":{"id":"msg_`+uuid+`","type":"message","role":"assistant","model":"m-1","content":[{"type":"text","text":"`+text+`"}],"stop_reason":null,"usage":{"input_tokens":3,"output_tokens":7}},"parent_tool_use_id":null,"session_id":"`+sid+`","uuid":"`+uuid+`"}`)
		case 1:
			s.out("assistant", `{"type":"assistant","message":{"id":"msg_`+uuid+`","type":"message","role":"assistant","model":"m-1","content":[{"type":"tool_use","id":"toolu_`+uuid+`","name":"Write","input":{"file_path":"/w/a","content":"`+text+`"}}],"usage":{"input_tokens":3,"output_tokens":7}},"parent_tool_use_id":null,"session_id":"`+sid+`","uuid":"`+uuid+`"}`)
		case 2:
			s.out("user", `{"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_`+fmt.Sprintf("%08d-0000-4000-8000-000000000000", i-1)+`","type":"tool_result","content":"`+text+`"}]},"parent_tool_use_id":null,"session_id":"`+sid+`","uuid":"`+uuid+`","tool_use_result":{"ok":true}}`)
		}
	}
	return s.events
}

// BenchmarkApply is one event of 4 KiB.
func BenchmarkApply(b *testing.B) {
	list := frames4k(3000)
	size := 0
	for _, e := range list {
		size += len(e.Data)
	}
	b.SetBytes(int64(size / len(list)))
	b.ReportAllocs()
	ctx := context.Background()
	var c *tally
	i := 0
	for b.Loop() {
		if i%len(list) == 0 {
			c = newTally(testOptions().defaults())
		}
		e := list[i%len(list)]
		if err := c.apply(ctx, 0, bus.Place{Seq: uint64(i + 1), Time: time.Unix(1, int64(i))}, e, nil); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkShortRuns is one event of runs that have ten.
func BenchmarkShortRuns(b *testing.B) {
	const runs = 2000
	var list []*event.Event
	for n := range runs {
		list = append(list, quick(n).events...)
	}
	b.ReportAllocs()
	ctx := context.Background()
	c := newTally(testOptions().defaults())
	i := 0
	for b.Loop() {
		if i%len(list) == 0 {
			c.ended = newRing(maxEnded)
		}
		if err := c.apply(ctx, 0, bus.Place{Seq: uint64(i + 1), Time: time.Unix(1, int64(i))}, list[i%len(list)], nil); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
