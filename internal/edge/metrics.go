package edge

import (
	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/node"
)

// Beginnings of a connection.
const (
	headerProxied   = iota // a header with the visitor's address
	headerLocal            // a header of the proxy's own connection
	headerNone             // none, from an unlisted address
	headerIgnored          // one from an unlisted address
	headerRefused          // the same, and the connection is closed
	headerMissing          // none, from a listed address; closed
	headerMalformed        // one that cannot be read or is not of a TCP connection; closed
	headerLate             // one that did not arrive in time; closed
	headerResults
)

var headerResultNames = [headerResults]string{"proxied", "local", "none", "ignored", "refused", "missing", "malformed", "late"}

// metrics are the counters of the edge server. Packages gate, origin and sse keep their own.
type metrics struct {
	reports                     *prometheus.CounterVec
	grants                      *prometheus.CounterVec
	sync                        prometheus.Histogram
	panics                      prometheus.Counter
	byFast, byNetHTTP           prometheus.Counter
	handedOver                  prometheus.Counter
	connections, connectionsMax prometheus.Gauge
	connectionsRefused          prometheus.Counter
	snapshots                   *prometheus.CounterVec
	snapshotTime                prometheus.Histogram
	snapshotBytes               prometheus.Gauge
	connectionsCut              prometheus.Counter
	shed                        *prometheus.CounterVec // by wantNames
	proxyHeaders                [headerResults]prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	meter := node.Meter{Registerer: reg}
	buckets := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}
	m := &metrics{
		reports:            meter.Counters("vestibule_edge_reports_total", "Reports to the regional, by result.", "result", node.Results...),
		grants:             meter.Counters("vestibule_edge_grants_total", "Grants from the regional, by result.", "result", "applied", "invalid"),
		sync:               meter.Histogram("vestibule_edge_sync_duration_seconds", "Round trip of a report and the grant that answers it.", buckets...),
		snapshots:          meter.Counters("vestibule_edge_snapshots_total", "Snapshots for data_dir, by which the next process settles this one if it is killed, by result.", "result", "written", node.Failed),
		snapshotTime:       meter.Histogram("vestibule_edge_snapshot_duration_seconds", "Time to take and write a snapshot.", buckets...),
		snapshotBytes:      meter.Gauge("vestibule_edge_snapshot_bytes", "Size of the newest snapshot."),
		panics:             meter.Counter("vestibule_edge_panics_total", "Requests that ended in a panic; none of them was forwarded after it."),
		connections:        meter.Gauge("vestibule_edge_connections", "Connections of visitors that are open."),
		connectionsMax:     meter.Gauge("vestibule_edge_connections_limit", "Connections of visitors that may be open: by connections.total, or by the limit of open files."),
		connectionsRefused: meter.Counter("vestibule_edge_connections_refused_total", "Connections of visitors that were refused at the limit, while none was idle."),
		connectionsCut:     meter.Counter("vestibule_edge_connections_cut_total", "Websockets that were cut because the session of their visitor had ended."),
		shed:               meter.Counters("vestibule_edge_connections_shed_total", "Connections of visitors without progress that were closed for want of free ones, by what was short.", "short_of", wantNames[:]...),
		handedOver:         meter.Counter("vestibule_edge_handovers_total", "Connections passed from the fast front to net/http, because of a request that it does not parse."),
	}
	fronts := meter.Counters("vestibule_edge_front_requests_total", "Requests of visitors, by the front that read them.", "front")
	m.byFast, m.byNetHTTP = fronts.WithLabelValues(frontFast), fronts.WithLabelValues(frontNetHTTP)
	headers := meter.Counters("vestibule_edge_proxy_headers_total", "Connections at listeners that take PROXY headers, by what they began with.", "result", headerResultNames[:]...)
	for i, name := range headerResultNames {
		m.proxyHeaders[i] = headers.WithLabelValues(name)
	}
	return m
}
