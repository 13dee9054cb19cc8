package node

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/room"
)

// Labels for many rooms. They are no valid room names.
const (
	IdleRooms  = "(idle)"  // rooms without visitors
	OtherRooms = "(other)" // busy rooms beyond MaxRoomSeries
)

// MaxRoomSeries is the maximum number of rooms with their own series at a node: the first busy ones.
const MaxRoomSeries = 1000

// RoomSeries assigns metric labels to the rooms of a node, so that the number of series is bounded and rooms
// without visitors cost nothing. A room that was once busy keeps its label until it is removed. The zero value is
// ready. It is safe for concurrent use.
type RoomSeries struct {
	mu  sync.Mutex
	own map[string]struct{}
}

// Label returns the label of a room.
func (s *RoomSeries) Label(name string, busy bool) string {
	if !busy {
		return IdleRooms
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.own[name]; ok {
		return name
	}
	if len(s.own) >= MaxRoomSeries {
		return OtherRooms
	}
	if s.own == nil {
		s.own = map[string]struct{}{}
	}
	s.own[name] = struct{}{}
	return name
}

// Keep drops the labels of rooms that are not in set.
func (s *RoomSeries) Keep(set *room.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.own, func(name string, _ struct{}) bool { return set.ByName(name) == nil })
}

// RoomMetrics forwards the metrics of rooms, and sums those of rooms with the same label. It is for one scrape,
// which Close ends.
type RoomMetrics struct {
	out  chan<- prometheus.Metric
	sums map[seriesKey]float64
}

type seriesKey struct {
	desc        *prometheus.Desc
	kind        prometheus.ValueType
	room, label string // label: second label of the metric, if any
}

// NewRoomMetrics returns a RoomMetrics that forwards to out.
func NewRoomMetrics(out chan<- prometheus.Metric) *RoomMetrics {
	return &RoomMetrics{out: out, sums: map[seriesKey]float64{}}
}

// Gauge forwards a gauge of a room, or adds it to a shared label.
func (m *RoomMetrics) Gauge(d *prometheus.Desc, v float64, room string, label ...string) {
	m.add(d, prometheus.GaugeValue, v, room, label)
}

// Counter is Gauge for a counter.
func (m *RoomMetrics) Counter(d *prometheus.Desc, v float64, room string, label ...string) {
	m.add(d, prometheus.CounterValue, v, room, label)
}

// Own forwards a gauge that cannot be summed: it is omitted for shared labels.
func (m *RoomMetrics) Own(d *prometheus.Desc, v float64, room string) {
	if room != IdleRooms && room != OtherRooms {
		m.add(d, prometheus.GaugeValue, v, room, nil)
	}
}

// Least forwards a gauge; for shared labels it is the minimum.
func (m *RoomMetrics) Least(d *prometheus.Desc, v float64, room string) {
	k := seriesKey{desc: d, kind: prometheus.GaugeValue, room: room}
	if old, ok := m.sums[k]; ok {
		v = min(v, old)
	}
	m.sums[k] = v
}

func (m *RoomMetrics) add(d *prometheus.Desc, kind prometheus.ValueType, v float64, room string, label []string) {
	if room != IdleRooms && room != OtherRooms {
		m.out <- prometheus.MustNewConstMetric(d, kind, v, append([]string{room}, label...)...)
		return
	}
	k := seriesKey{desc: d, kind: kind, room: room}
	if len(label) > 0 {
		k.label = label[0]
	}
	m.sums[k] += v
}

// Close forwards the sums.
func (m *RoomMetrics) Close() {
	for k, v := range m.sums {
		labels := []string{k.room}
		if k.label != "" {
			labels = append(labels, k.label)
		}
		m.out <- prometheus.MustNewConstMetric(k.desc, k.kind, v, labels...)
	}
}
