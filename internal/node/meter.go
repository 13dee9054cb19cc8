package node

import "github.com/prometheus/client_golang/prometheus"

// Meter makes metrics and registers them.
type Meter struct{ prometheus.Registerer }

// Counter returns a counter.
func (m Meter) Counter(name, help string) prometheus.Counter {
	return made(m, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

// Counters returns a counter for each value of a label. Those of values begin at 0.
func (m Meter) Counters(name, help, label string, values ...string) *prometheus.CounterVec {
	v := made(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label}))
	for _, value := range values {
		v.WithLabelValues(value)
	}
	return v
}

// Gauge returns a gauge.
func (m Meter) Gauge(name, help string) prometheus.Gauge {
	return made(m, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

// Gauges returns a gauge for each value of a label. Those of values begin at 0.
func (m Meter) Gauges(name, help, label string, values ...string) *prometheus.GaugeVec {
	v := made(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label}))
	for _, value := range values {
		v.WithLabelValues(value)
	}
	return v
}

// Histogram returns a histogram with these buckets.
func (m Meter) Histogram(name, help string, buckets ...float64) prometheus.Histogram {
	return made(m, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}))
}

func made[C prometheus.Collector](m Meter, c C) C {
	m.MustRegister(c)
	return c
}

// Descs are the metrics of a collector that reads its values at scrape time.
type Descs []*prometheus.Desc

// Of adds a metric.
func (d *Descs) Of(name, help string, labels ...string) *prometheus.Desc {
	*d = append(*d, prometheus.NewDesc(name, help, labels, nil))
	return (*d)[len(*d)-1]
}

// Describe implements [prometheus.Collector].
func (d *Descs) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range *d {
		ch <- desc
	}
}
