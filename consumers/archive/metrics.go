package archive

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cbcast/cbcast/internal/segment"
)

// meters count what a service does over all sessions.
type meters struct {
	segments, bytes, records, panics, buried, passed, cut prometheus.Counter
	seconds                                               prometheus.Histogram
}

func newMeters() *meters {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "cbcast_archive_" + name, Help: help})
	}
	return &meters{
		segments: counter("segments_sealed_total", "Segments that are in the chain."),
		bytes:    counter("sealed_bytes_total", "Their size as stored."),
		records:  counter("sealed_records_total", "Messages in them."),
		panics:   counter("panics_total", "Messages over which archiving panicked; after three each is a dead letter."),
		buried:   counter("dead_total", "Messages that became dead letters."),
		passed:   counter("aside_messages_total", "Messages passed over because their tenant is set aside; archived when it is not."),
		cut:      counter("recovered_cut_bytes_total", "Bytes of open segments that a crash had torn; none was acked."),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cbcast_archive_seal_seconds", Help: "Time to put what was due into the store and the chain.",
			Buckets:                     prometheus.ExponentialBuckets(0.004, 4, 8),
			NativeHistogramBucketFactor: 1.1,
		}),
	}
}

func (m *meters) sealed(heads []*segment.Head, took time.Duration) {
	for _, h := range heads {
		if h.Segment != nil {
			m.segments.Inc()
			m.bytes.Add(float64(h.Segment.Bytes))
			m.records.Add(float64(h.Segment.Records))
		}
	}
	m.seconds.Observe(took.Seconds())
}

func (m *meters) all() []prometheus.Collector {
	return []prometheus.Collector{m.segments, m.bytes, m.records, m.panics, m.buried, m.passed, m.cut, m.seconds}
}

var (
	descLag      = desc("lag_messages", "Messages of the bus that are not sealed.")
	descLagTime  = desc("lag_seconds", "Age of the oldest message that is not sealed, 0 without one.")
	descPressure = desc("backpressure", "1 while nothing more is taken because nothing can be sealed.")
	descOpen     = desc("open_segments", "Segments that are not sealed.")
	descHeld     = desc("buffered_bytes", "Memory of messages that are not in a block of a segment yet.")
	descDoubles  = desc("doubles_total", "Messages that came again and were not kept twice.")
	descHoles    = desc("holes_total", "Times that the numbers of a run jumped.")
	descHead     = desc("last_head_timestamp_seconds", "When the newest head was signed.")
	descCopies   = desc("heads_copied_total", "Heads that the second destination has.")
	descFailures = desc("heads_copy_failures_total", "Tries to copy a head that failed.")
	descWaiting  = desc("heads_waiting", "Heads that the second destination does not have yet.")
	descLetters  = desc("dead_letters", "Dead letters on the disk.")
	descMaxDead  = desc("dead_letters_limit", "How many there may be: with so many nothing is archived behind the next one.")
	descAside    = desc("tenants_aside", "Tenants whose chain cannot be gone on with, or that are not caught up with yet.")
	descAsideAge = desc("aside_seconds", "How long one of them has been aside, 0 without one.")
	descReady    = desc("ready", "1 while the archive works, or stands by.")
)

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("cbcast_archive_"+name, help, nil, nil)
}

// Metrics are the service's and its consumer's.
func (s *Service) Metrics() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(s)
	return r
}

// Describe is prometheus.Collector's: what there is differs with the session.
func (s *Service) Describe(chan<- *prometheus.Desc) {}

// Collect is prometheus.Collector's.
func (s *Service) Collect(ch chan<- prometheus.Metric) {
	for _, c := range s.m.all() {
		c.Collect(ch)
	}
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	counter := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v)
	}
	l := s.lagNow()
	gauge(descLag, float64(l.messages))
	gauge(descLagTime, l.age.Seconds())
	s.mu.Lock()
	stall, head, ar, done, c := s.stall != nil || s.err != nil, s.headAt, s.ar, s.done, s.c
	s.mu.Unlock()
	if c != nil {
		c.Collect(ch)
	}
	gauge(descPressure, truth(stall))
	gauge(descReady, truth(s.Ready() == nil))
	gauge(descLetters, float64(s.Dead().Count()))
	gauge(descMaxDead, float64(cmp.Or(s.o.maxDead, maxDead)))
	n, since := s.asideSince()
	gauge(descAside, float64(n))
	if n > 0 {
		gauge(descAsideAge, time.Since(since).Seconds())
	} else {
		gauge(descAsideAge, 0)
	}
	var st segment.Stats
	if ar != nil {
		st = ar.Stats()
	}
	gauge(descOpen, float64(st.Open))
	gauge(descHeld, float64(st.Held))
	counter(descDoubles, float64(done.Already+done.Again+st.Already+st.Again))
	counter(descHoles, float64(done.Holes+st.Holes))
	if !head.IsZero() {
		gauge(descHead, float64(head.UnixMilli())/1000)
	}
	if s.copies != nil {
		c := s.copies.state()
		counter(descCopies, float64(c.Sent))
		counter(descFailures, float64(c.Failures))
		gauge(descWaiting, float64(c.Waiting))
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// A lagState is how far the archive is behind the bus.
type lagState struct {
	messages uint64
	age      time.Duration
	oldest   time.Time
}

// lagNow asks nobody.
func (s *Service) lagNow() lagState {
	st := s.Status()
	s.mu.Lock()
	oldest, closed, behind := s.oldest, s.c == nil, s.unread
	s.mu.Unlock()
	l := lagState{messages: st.Lag}
	if closed {
		l.messages, oldest = behind.messages, behind.oldest
	}
	for _, log := range st.Logs {
		// What is not read yet is younger than what was read last.
		if log.Pending > 0 && oldest.IsZero() && !log.Read.Time.IsZero() {
			oldest = log.Read.Time
		}
	}
	if l.messages > 0 && !oldest.IsZero() {
		l.age = max(0, time.Since(oldest))
	}
	return l
}

// behindWait bounds how long the server is asked for what is not sealed.
const behindWait = 5 * time.Second

// behindNow asks the server how much is not sealed, for the time in which nothing is read.
func (s *Service) behindNow(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, behindWait)
	defer cancel()
	var l lagState
	for _, log := range s.logs() {
		n, oldest, err := s.o.Bus.Behind(ctx, Name, log)
		if err != nil {
			s.o.Log.Debug("what is not sealed was not counted", "log", log, "error", err)
			return
		}
		l.messages += n
		if !oldest.IsZero() && (l.oldest.IsZero() || oldest.Before(l.oldest)) {
			l.oldest = oldest
		}
	}
	s.set(func() { s.unread = l })
}
