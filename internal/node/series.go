package node

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/room"
)

// Labels that stand for many rooms. No room can be called so.
const (
	IdleRooms  = "(idle)"  // rooms in which nobody is and nobody waits
	OtherRooms = "(other)" // busy rooms beyond MaxRoomSeries
)

// MaxRoomSeries is how many rooms have series of their own at a node: the first
// that were busy.
const MaxRoomSeries = 1000

// RoomSeries decides under which name a room shows in the metrics of a node, so
// that their number is bounded and rooms without visitors cost nothing. A room
// that was busy once keeps its place until it leaves the room set. The zero value
// is ready for use; it is safe for concurrent use.
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

// Keep gives up the places of rooms that are not in set.
func (s *RoomSeries) Keep(set *room.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.own {
		if set.ByName(name) == nil {
			delete(s.own, name)
		}
	}
}

// RoomMetrics passes the metrics of rooms on; those of rooms that share a label
// are added up. It serves one scrape: Close ends it.
type RoomMetrics struct {
	out  chan<- prometheus.Metric
	sums map[seriesKey]float64
}

type seriesKey struct {
	desc        *prometheus.Desc
	kind        prometheus.ValueType
	room, label string // label: of the metrics that have another one beside the room
}

// NewRoomMetrics returns what passes on to out.
func NewRoomMetrics(out chan<- prometheus.Metric) *RoomMetrics {
	return &RoomMetrics{out: out, sums: map[seriesKey]float64{}}
}

// Gauge passes on a gauge of the room with this label, or adds it to those of the
// other rooms that have it.
func (m *RoomMetrics) Gauge(d *prometheus.Desc, v float64, room string, label ...string) {
	m.add(d, prometheus.GaugeValue, v, room, label)
}

// Counter is Gauge for a counter.
func (m *RoomMetrics) Counter(d *prometheus.Desc, v float64, room string, label ...string) {
	m.add(d, prometheus.CounterValue, v, room, label)
}

// Own passes on a gauge that cannot be added up: it is left out where rooms share
// a label.
func (m *RoomMetrics) Own(d *prometheus.Desc, v float64, room string) {
	if room != IdleRooms && room != OtherRooms {
		m.add(d, prometheus.GaugeValue, v, room, nil)
	}
}

// Least passes on a gauge; of rooms that share a label, the least.
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

// Close passes on what was added up.
func (m *RoomMetrics) Close() {
	for k, v := range m.sums {
		labels := []string{k.room}
		if k.label != "" {
			labels = append(labels, k.label)
		}
		m.out <- prometheus.MustNewConstMetric(k.desc, k.kind, v, labels...)
	}
}
