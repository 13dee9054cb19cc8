package sse

import (
	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/node"
)

type metrics struct {
	streams    prometheus.Gauge
	ended      *prometheus.CounterVec
	events     *prometheus.CounterVec
	broadcasts prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := node.Meter{Registerer: reg}
	return &metrics{
		streams: m.Gauge("vestibule_edge_event_streams", "Event streams of waiting pages that are open."),
		ended:   m.Counters("vestibule_edge_event_streams_ended_total", "Event streams that ended, by why.", "reason", Gone, Slow, Replaced, Over, Stopped),
		events:  m.Counters("vestibule_edge_events_total", "Messages for event streams, by result.", "result", "sent", "skipped"),
		broadcasts: m.Histogram("vestibule_edge_event_broadcast_seconds", "How long it took to write one message to every event stream of a room.",
			.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5),
	}
}
