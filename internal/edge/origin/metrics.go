package origin

import (
	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/node"
)

// Metrics are what an edge counts of its origins.
type Metrics struct {
	failed, unreadable, full, waits, names, sharedLogins prometheus.Counter
	connections, limit                                   prometheus.Gauge
}

// NewMetrics returns metrics that reg shows.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := node.Meter{Registerer: reg}
	return &Metrics{
		failed:       m.Counter("vestibule_edge_origin_errors_total", "Requests that an origin did not answer."),
		unreadable:   m.Counter("vestibule_edge_origin_unreadable_total", "Answers of origins that could not be read: the visitor got 502, or the part before the fault."),
		full:         m.Counter("vestibule_edge_origin_full_total", "Requests answered with 503 because no connection to an origin was free in time."),
		waits:        m.Counter("vestibule_edge_origin_waits_total", "Connections to origins that had to wait at the limit."),
		names:        m.Counter("vestibule_edge_removed_names_total", "Headers of visitors that did not reach the site because of a character such as _ in their names."),
		sharedLogins: m.Counter("vestibule_edge_shared_logins_total", "Logins bound to a connection (NTLM, Negotiate) that were refused because they came through trusted_proxies."),
		connections:  m.Gauge("vestibule_edge_origin_connections", "Connections to origins that are open."),
		limit:        m.Gauge("vestibule_edge_origin_connections_limit", "Connections to origins that may be open, by the limit of open files."),
	}
}
