package origin

import "github.com/prometheus/client_golang/prometheus"

// Metrics are what an edge counts of its origins.
type Metrics struct {
	failed, unreadable, full, waits, names, sharedLogins prometheus.Counter
	connections, limit                                   prometheus.Gauge
}

// NewMetrics returns metrics that reg shows.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &Metrics{
		failed:       counter("vestibule_edge_origin_errors_total", "Requests that an origin did not answer."),
		unreadable:   counter("vestibule_edge_origin_unreadable_total", "Answers of origins that could not be read: the visitor got 502, or the part before the fault."),
		full:         counter("vestibule_edge_origin_full_total", "Requests answered with 503 because no connection to an origin was free in time."),
		waits:        counter("vestibule_edge_origin_waits_total", "Connections to origins that had to wait at the limit."),
		names:        counter("vestibule_edge_removed_names_total", "Headers of visitors that did not reach the site because of a character such as _ in their names."),
		sharedLogins: counter("vestibule_edge_shared_logins_total", "Logins bound to a connection (NTLM, Negotiate) that were refused because they came through trusted_proxies."),
		connections:  gauge("vestibule_edge_origin_connections", "Connections to origins that are open."),
		limit:        gauge("vestibule_edge_origin_connections_limit", "Connections to origins that may be open, by the limit of open files."),
	}
	reg.MustRegister(m.failed, m.unreadable, m.full, m.waits, m.names, m.sharedLogins, m.connections, m.limit)
	return m
}
