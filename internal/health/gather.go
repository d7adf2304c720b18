package health

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Those of the Prometheus library, for programs that have no other use for it.
type (
	// A Gatherer has metrics.
	Gatherer = prometheus.Gatherer
	// Gatherers are several as one.
	Gatherers = prometheus.Gatherers
)

// Process are the metrics of the Go runtime and of the process.
func Process() Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Of gathers from collectors; two with the same metric are a mistake of the program.
func Of(list ...prometheus.Collector) Gatherer {
	reg := prometheus.NewRegistry()
	reg.MustRegister(list...)
	return reg
}
