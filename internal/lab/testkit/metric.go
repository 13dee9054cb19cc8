package testkit

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Metric returns the sum of the samples of a counter or gauge, of those with all of these labels: name, value and so
// on. Without labels there must be a sample.
func Metric(t test, reg prometheus.Gatherer, name string, labels ...string) (sum float64) {
	t.Helper()
	found := false
	for _, f := range Must(reg.Gather())(t) {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			has := true
			for pair := range slices.Chunk(labels, 2) {
				has = has && slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool {
					return l.GetName() == pair[0] && l.GetValue() == pair[1]
				})
			}
			if has {
				found = true
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	if !found && len(labels) == 0 {
		t.Fatal("no metric " + name)
	}
	return sum
}
