package dialect_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cbcast/cbcast/internal/dialect"
	"github.com/cbcast/cbcast/internal/event"
)

// frameOf is an assistant frame of CodeBuddy's shape and about n bytes.
func frameOf(n int) []byte {
	const shape = `{"type":"assistant","uuid":"01a22b5c-8678-7b50-a81c-9c8c7a0d9858","session_id":"01a22b5c-84b8-7e83-bbee-502253eb79df","message":{"id":"m","content":[{"type":"text","text":"%s"}],"role":"assistant"},"parent_tool_use_id":null,"_requestId":"01a22b5c85637039838131a4faf3b725","_meta":{"traceparent":"00-7c3e5b2d24a7b3ec51be7bbd1fefb951-87d415534aae5418-01"},"__timestamp":"2026-11-30T07:30:13.758Z"}`
	return fmt.Appendf(nil, shape, strings.Repeat("word ", max(0, n-len(shape))/5))
}

// The texts of frames as Parse sees them, and as what reads them later does.
func BenchmarkStrings(b *testing.B) {
	for name, word := range map[string]string{"plain": "word ", "escapes": `the \"build\" fails because\n a module is missing in src/main/app.ts:42 `} {
		line := fmt.Appendf(nil, `{"message":{"content":[{"type":"text","text":"%s"}]}}`, strings.Repeat(word, (64<<10)/len(word)))
		b.Run("parse/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				if _, ok := dialect.Parse(line); !ok {
					b.Fatal("no frame")
				}
			}
		})
		b.Run("items/"+name, func(b *testing.B) {
			f, _ := dialect.Parse(line)
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				for range f.Get("message").Get("content").Items {
				}
			}
		})
	}
}

func BenchmarkClassify(b *testing.B) {
	for _, n := range []int{512, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			line := frameOf(n)
			tr := dialect.NewTracker(dialect.CBC)
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				tr.Classify(event.Out, line, false)
			}
		})
	}
	b.Run("stream_event", func(b *testing.B) {
		line := []byte(`{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"s1 "}},"session_id":"01a22b5e-6f41-76b0-accf-f7bc555cf110","parent_tool_use_id":null,"uuid":"01a22b5e-7054-7b3d-95b9-2bdb7b9c3bc5"}`)
		tr := dialect.NewTracker(dialect.Claude)
		b.SetBytes(int64(len(line)))
		b.ReportAllocs()
		for b.Loop() {
			tr.Classify(event.Out, line, false)
		}
	})
}
