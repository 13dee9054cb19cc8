package sse

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	streams    prometheus.Gauge
	ended      *prometheus.CounterVec
	events     *prometheus.CounterVec
	broadcasts prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "vestibule_edge_event_streams", Help: "Event streams of waiting pages that are open."}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vestibule_edge_event_streams_ended_total", Help: "Event streams that ended, by why.",
		}, []string{"reason"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vestibule_edge_events_total", Help: "Messages for event streams, by result.",
		}, []string{"result"}),
		broadcasts: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "vestibule_edge_event_broadcast_seconds", Help: "How long it took to write one message to every event stream of a room.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}),
	}
	for _, why := range []string{Gone, Slow, Replaced, Over, Stopped} {
		m.ended.WithLabelValues(why)
	}
	for _, r := range []string{"sent", "skipped"} {
		m.events.WithLabelValues(r)
	}
	reg.MustRegister(m.streams, m.ended, m.events, m.broadcasts)
	return m
}
