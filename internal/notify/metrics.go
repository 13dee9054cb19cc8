package notify

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"vestibule/internal/node"
)

// Metrics are the counters of a worker.
type Metrics struct {
	subscribed prometheus.Gauge
	due        prometheus.Counter
	skipped    prometheus.Counter
	dead       prometheus.Counter
	sent       *prometheus.CounterVec // by stage
	failed     *prometheus.CounterVec // by cause
	age        prometheus.Histogram
}

// NewMetrics registers the metrics on reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := node.Meter{Registerer: reg}
	return &Metrics{
		subscribed: m.Gauge("vestibule_notify_subscribed",
			"Visitors that are subscribed to notifications and wait."),
		due: m.Counter("vestibule_notify_due_total", "Notifications that became due."),
		skipped: m.Counter("vestibule_notify_skipped_total",
			"Notifications whose visitor had entered, left, withdrawn or been notified."),
		dead: m.Counter("vestibule_notify_dead_total", "Notifications that were given up."),
		sent: m.Counters("vestibule_notify_sent_total", "Notifications that a push service has taken, by stage.", "stage",
			"confirm", "soon", "turn"),
		failed: m.Counters("vestibule_notify_failed_total", "Attempts that failed, by cause.", "cause", causes...),
		age: m.Histogram("vestibule_notify_age_seconds",
			"Time from when a notification was due to when the push service took it.",
			.1, .25, .5, 1, 2, 5, 10, 30, 60, 300),
	}
}

// total returns the sum of the counters of c.
func total(c prometheus.Collector) int {
	sum, all := 0.0, make(chan prometheus.Metric, len(causes)) // no set of labels is larger
	c.Collect(all)
	close(all)
	for m := range all {
		var v dto.Metric
		if m.Write(&v) == nil {
			sum += v.GetCounter().GetValue()
		}
	}
	return int(sum)
}
