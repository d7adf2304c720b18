package metrics

import (
	"math"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Native buckets: each power of two is divided into 8, so that neighbours differ by 9 %.
// Durations from a microsecond to [maxDuration] need at most 350 of them.
const (
	nativeSchema  = 3
	zeroThreshold = 1e-6
	maxDuration   = 366 * 24 * time.Hour
)

// nativeBounds are the lower bounds of the buckets between a half and one.
var nativeBounds = func() (b [1 << nativeSchema]float64) {
	for i := range b {
		b[i] = 0.5 * math.Exp2(float64(i)/float64(len(b)))
	}
	return b
}()

// An exemplar names one observation.
type exemplar struct {
	Trace string    `json:"trace,omitempty"` // 32 hex digits
	Run   string    `json:"run,omitempty"`
	At    time.Time `json:"at,omitzero"`
	Value float64   `json:"value,omitempty"` // seconds
}

func (e exemplar) empty() bool { return e.Trace == "" && e.Run == "" }

// A hist is a histogram with classic and native buckets. Sums are whole microseconds,
// so that they do not depend on the order of observations.
type hist struct {
	bounds    []float64
	count     uint64
	sum       int64    // µs
	classic   []uint64 // not cumulative; the last one is +Inf
	native    map[int]uint64
	zero      uint64
	exemplars []exemplar // the latest of each classic bucket
}

func newHist(bounds []float64) *hist {
	return &hist{
		bounds: bounds, classic: make([]uint64, len(bounds)+1), native: map[int]uint64{}, exemplars: make([]exemplar, len(bounds)+1),
	}
}

func (h *hist) observe(d time.Duration, ex exemplar) {
	d = min(d, maxDuration).Truncate(time.Microsecond)
	v := d.Seconds()
	h.count++
	h.sum += d.Microseconds()
	i, _ := slices.BinarySearch(h.bounds, v)
	h.classic[i]++
	if v <= zeroThreshold {
		h.zero++
	} else {
		h.native[nativeBucket(v)]++
	}
	if !ex.empty() {
		ex.Value = v
		h.exemplars[i] = ex
	}
}

// nativeBucket is the index of the bucket that v is in: its upper bound is
// 2^(index/8), and belongs to it.
func nativeBucket(v float64) int {
	frac, exp := math.Frexp(v)
	i, _ := slices.BinarySearch(nativeBounds[:], frac)
	return i + (exp-1)*len(nativeBounds)
}

// write fills in what Prometheus takes.
func (h *hist) write(created time.Time) *dto.Histogram {
	out := &dto.Histogram{
		SampleCount: proto.Uint64(h.count), SampleSum: proto.Float64(float64(h.sum) / 1e6),
		Schema: proto.Int32(nativeSchema), ZeroThreshold: proto.Float64(zeroThreshold), ZeroCount: proto.Uint64(h.zero),
		CreatedTimestamp: timestamppb.New(created),
	}
	cumulative := uint64(0)
	for i, n := range h.classic {
		cumulative += n
		bound := math.Inf(1)
		if i < len(h.bounds) {
			bound = h.bounds[i]
		}
		b := &dto.Bucket{CumulativeCount: proto.Uint64(cumulative), UpperBound: proto.Float64(bound)}
		if ex := h.exemplars[i]; !ex.empty() {
			b.Exemplar = ex.write()
			out.Exemplars = append(out.Exemplars, b.GetExemplar())
		}
		out.Bucket = append(out.Bucket, b)
	}
	out.PositiveSpan, out.PositiveDelta = spans(h.native)
	return out
}

// spans are the buckets that are not empty, as runs of neighbours and differences.
func spans(buckets map[int]uint64) (list []*dto.BucketSpan, deltas []int64) {
	keys := make([]int, 0, len(buckets))
	for k := range buckets {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	if len(keys) == 0 { // tells a native histogram without observations from a classic one
		return []*dto.BucketSpan{{Offset: proto.Int32(0), Length: proto.Uint32(0)}}, nil
	}
	next, last := 0, int64(0)
	for _, k := range keys {
		if len(list) == 0 || k != next {
			list = append(list, &dto.BucketSpan{Offset: proto.Int32(int32(k - next)), Length: proto.Uint32(0)})
		}
		span := list[len(list)-1]
		*span.Length++
		next = k + 1
		n := int64(buckets[k])
		deltas = append(deltas, n-last)
		last = n
	}
	return list, deltas
}

func (e exemplar) write() *dto.Exemplar {
	x := &dto.Exemplar{Value: proto.Float64(e.Value), Timestamp: timestamppb.New(e.At)}
	if e.Trace != "" {
		x.Label = append(x.Label, &dto.LabelPair{Name: proto.String("trace_id"), Value: proto.String(e.Trace)})
	}
	if e.Run != "" {
		x.Label = append(x.Label, &dto.LabelPair{Name: proto.String("run"), Value: proto.String(e.Run)})
	}
	return x
}
