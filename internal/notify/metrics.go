package notify

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
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
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vec := func(name, help, label string, values []string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, x := range values {
			v.WithLabelValues(x)
		}
		return v
	}
	m := &Metrics{
		subscribed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "vestibule_notify_subscribed",
			Help: "Visitors that are subscribed to notifications and wait.",
		}),
		due: counter("vestibule_notify_due_total", "Notifications that became due."),
		skipped: counter("vestibule_notify_skipped_total",
			"Notifications whose visitor had entered, left, withdrawn or been notified."),
		dead: counter("vestibule_notify_dead_total", "Notifications that were given up."),
		sent: vec("vestibule_notify_sent_total", "Notifications that a push service has taken, by stage.", "stage",
			[]string{"confirm", "soon", "turn"}),
		failed: vec("vestibule_notify_failed_total", "Attempts that failed, by cause.", "cause", causes),
		age: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "vestibule_notify_age_seconds",
			Help:    "Time from when a notification was due to when the push service took it.",
			Buckets: []float64{.1, .25, .5, 1, 2, 5, 10, 30, 60, 300},
		}),
	}
	reg.MustRegister(m.subscribed, m.due, m.skipped, m.dead, m.sent, m.failed, m.age)
	return m
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
