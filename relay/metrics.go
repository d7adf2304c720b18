package relay

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	metricsPath = "/metrics"

	// metricPrefix begins the names of the relay's own.
	metricPrefix = "cbcast_relay_"

	// lagTimeout bounds the question where a partition's head is.
	lagTimeout = time.Second
)

// Labels come from closed sets or the configuration, never from runs, sessions,
// tasks, users or paths: a series that was made stays for the process's life.
const (
	resultOK, resultAgain, otherWord = "accepted", "duplicate", "other"
)

// metrics are what operators watch. All of its methods may be called at any time.
type metrics struct {
	reg     *prometheus.Registry
	handler http.Handler

	events, bytes, slow prometheus.Counter
	sessions, foreign   prometheus.Counter
	answers             *prometheus.CounterVec // by code
	commands            *prometheus.CounterVec // by name, result
	conns               *prometheus.CounterVec // by reason
	reloads             *prometheus.CounterVec // by file
	reloadGood          prometheus.Gauge

	places []atomic.Uint64 // by partition: stream sequence that its reader is at
}

func newMetrics(r *Relay, more func() prometheus.Gatherers) *metrics {
	m := &metrics{reg: prometheus.NewRegistry(), places: make([]atomic.Uint64, r.partitions)}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: metricPrefix + name, Help: help})
		m.reg.MustRegister(c)
		return c
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricPrefix + name, Help: help}, labels)
		m.reg.MustRegister(c)
		return c
	}
	gauge := func(name, help string, fn func() float64) {
		m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metricPrefix + name, Help: help}, fn))
	}
	m.events = counter("events_total", "Events read from the bus and handed to those who follow their run.")
	m.bytes = counter("stream_bytes_total", "Bytes written to streams.")
	m.slow = counter("slow_clients_total", "Streams cut because their client took nothing.")
	m.sessions = counter("sessions_total", "Sessions of the page that began.")
	m.foreign = counter("foreign_runs_total", "Requests for a run that the caller may not see; they are answered as not_found.")
	m.answers = vec("requests_total", "Requests answered, by the error's code; ok without one.", "code")
	m.commands = vec("commands_total", "Commands and answers to asks, by name and result.", "name", "result")
	m.conns = vec("connections_refused_total", "Connections closed at once, by the limit that was reached.", "limit")
	m.reloads = vec("reload_failures_total", "Files that could not be read again; the old ones stay in force.", "file")
	m.reloadGood = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: metricPrefix + "reload_ok", Help: "1 if tokens and certificates are in force as they are in their files.",
	})
	m.reloadGood.Set(1)
	m.reg.MustRegister(m.reloadGood)

	gauge("streams", "Open streams.", func() float64 { return float64(r.openStreams()) })
	gauge("connections", "Open connections.", func() float64 { return float64(r.gate.guests.count()) })
	gauge("bus_connected", "1 while the bus is connected.", func() float64 { return truth(r.bus != nil && r.bus.Connected()) })
	m.reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: metricPrefix + "bus_connections_total", Help: "Connections to the bus that were made.",
	}, func() float64 {
		if r.bus == nil {
			return 0
		}
		return float64(r.bus.Generation())
	}))
	gauge("ready", "1 while the relay reads everything it should.", func() float64 { return truth(r.bus != nil && r.Ready()) })
	gauge("readers_away", "Readers of the bus that do not read now.", func() float64 { return float64(r.hub.away.Load()) })
	gauge("tokens", "Tokens in force, expired ones and the local one included.", func() float64 { return float64(len(r.gate.current.Load().byID)) })
	gauge("certificate_expiry_seconds", "When the TLS certificate ends, in Unix time; 0 without one.", func() float64 {
		if t := r.gate.cert.expires(); !t.IsZero() {
			return float64(t.Unix())
		}
		return 0
	})
	m.reg.MustRegister(&collected{r: r, m: m}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.begin()
	m.handler = m.serve(more)
	return m
}

// serve answers with the relay's metrics and with more, which others may have.
func (m *metrics) serve(more func() prometheus.Gatherers) http.Handler {
	const atOnce = 4
	busy := make(chan struct{}, atOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		select {
		case busy <- struct{}{}:
			defer func() { <-busy }()
		default:
			http.Error(w, "too many requests for metrics at once", http.StatusServiceUnavailable)
			return
		}
		all := prometheus.Gatherers{m.reg}
		if more != nil {
			all = append(all, more()...)
		}
		promhttp.HandlerFor(all, promhttp.HandlerOpts{
			EnableOpenMetrics: true, Timeout: 10 * time.Second, ErrorHandling: promhttp.ContinueOnError,
		}).ServeHTTP(w, q)
	})
}

// begin makes every series there can be, so that their number never grows.
func (m *metrics) begin() {
	m.answers.WithLabelValues("ok")
	for code := range statusOf {
		m.answers.WithLabelValues(string(code))
	}
	for _, name := range commandNames() {
		for _, result := range commandResults() {
			m.commands.WithLabelValues(name, result)
		}
	}
	for _, limit := range []string{"total", "address"} {
		m.conns.WithLabelValues(limit)
	}
	for _, file := range []string{"tokens", "certificate"} {
		m.reloads.WithLabelValues(file)
	}
}

// commandNames are the names of commands, and the word for any other.
func commandNames() []string {
	names := []string{cmdAnswer, otherWord}
	for name := range forms {
		if name != cmdAnswer {
			names = append(names, name)
		}
	}
	return names
}

// commandResults are what may become of the request for one.
func commandResults() []string {
	list := []string{resultOK, resultAgain}
	for _, code := range []Code{
		CodeBadRequest, CodeNotFound, CodeEnded, CodeReused, CodeAnswered, CodeUnanswerable, CodeAskClosed, CodeTooLarge, CodeInternal, CodeUnavailable,
	} {
		list = append(list, string(code))
	}
	return append(list, otherWord)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// placed notes where the reader of a partition is; control facts have none (-1).
func (m *metrics) placed(partition int, streamSeq uint64) {
	if partition >= 0 {
		m.places[partition].Store(streamSeq)
	}
}

// sent counts bytes written to streams.
func (m *metrics) sent(n int) { m.bytes.Add(float64(n)) }

// cut counts a client that takes nothing.
func (m *metrics) cut() { m.slow.Inc() }

func (m *metrics) answered(err *apiErr) {
	code := "ok"
	if err != nil {
		code = string(err.code)
	}
	m.answers.WithLabelValues(code).Inc()
}

func (m *metrics) command(name string, g Given, err error) {
	if !slices.Contains(commandNames(), name) {
		name = otherWord
	}
	result := resultOK
	switch {
	case err != nil:
		if result = string(CodeOf(err)); !slices.Contains(commandResults(), result) {
			result = otherWord
		}
	case g.Duplicate:
		result = resultAgain
	}
	m.commands.WithLabelValues(name, result).Inc()
}

func (m *metrics) connRefused(limit string) { m.conns.WithLabelValues(limit).Inc() }
func (m *metrics) reloadFailed(file string) { m.reloads.WithLabelValues(file).Inc() }
func (m *metrics) reloadOK(everything bool) { m.reloadGood.Set(truth(everything)) }

// collected are the figures that are looked up when somebody asks.
type collected struct {
	r *Relay
	m *metrics
}

var (
	runsDesc = prometheus.NewDesc(metricPrefix+"runs", "Runs in the registry, by state.", []string{"state"}, nil)
	lagDesc  = prometheus.NewDesc(metricPrefix+"reader_lag_events",
		"Events in a partition's stream that were not read yet. Absent while the bus does not say.", []string{"partition"}, nil)
)

// runStates are the states of runs, and the word for any other.
var runStates = []string{"starting", "working", "waiting", "idle", stateDone, stateLost, otherWord}

func (c *collected) Describe(ch chan<- *prometheus.Desc) { ch <- runsDesc; ch <- lagDesc }

func (c *collected) Collect(ch chan<- prometheus.Metric) {
	states := map[string]int{}
	c.r.reg.mu.RLock()
	for _, i := range c.r.reg.runs {
		state := i.State
		if !slices.Contains(runStates, state) {
			state = otherWord
		}
		states[state]++
	}
	c.r.reg.mu.RUnlock()
	for _, s := range runStates {
		ch <- prometheus.MustNewConstMetric(runsDesc, prometheus.GaugeValue, float64(states[s]), s)
	}
	for p, lag := range c.lags() {
		ch <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, float64(lag), strconv.Itoa(p))
	}
}

// lags are how far each reader is behind its partition.
func (c *collected) lags() map[int]uint64 {
	if c.r.background() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lagTimeout)
	defer cancel()
	out := map[int]uint64{}
	for p := range c.m.places {
		at := c.m.places[p].Load() // before the head, so that what is read meanwhile is no lag
		head, err := c.r.bus.Head(ctx, p)
		if err != nil {
			continue
		}
		out[p] = head - min(at, head)
	}
	return out
}

func (r *Relay) openStreams() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

func (r *Relay) metricsRoutes() []route {
	return []route{{"GET", metricsPath, ScopeMetrics, r.showMetrics, "figures for Prometheus"}}
}

// showMetrics is for whoever may see the whole relay: they count everybody's runs.
func (r *Relay) showMetrics(w http.ResponseWriter, q *http.Request) *apiErr {
	if c := callerOf(q); c.tenants != nil || c.runs != nil {
		return fail(CodeForbidden, "this token is bound to tenants or runs, and the figures are everybody's")
	}
	r.met.handler.ServeHTTP(w, q)
	return nil
}
