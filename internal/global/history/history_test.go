package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// memory is a store of messages that arrive at a time of the test.
type memory struct {
	mu       sync.Mutex
	at       time.Time
	down     bool
	messages []stored
	ids      map[string]bool
}

type stored struct {
	level wire.HistoryLevel
	of    string
	at    time.Time
	data  []byte
}

var errDown = errors.New("the store is down")

func (m *memory) Write(_ context.Context, level wire.HistoryLevel, of, id string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return errDown
	}
	if key := fmt.Sprint(level, of, id); !m.ids[key] {
		m.ids[key] = true
		m.messages = append(m.messages, stored{level, of, m.at, data})
	}
	return nil
}

func (m *memory) Read(_ context.Context, level wire.HistoryLevel, of string, since time.Time, each func([]byte) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return errDown
	}
	for _, s := range m.messages {
		if s.level == level && (of == "*" || s.of == of) && !s.at.Before(since) && !each(s.data) {
			break
		}
	}
	return nil
}

func (m *memory) Newest(_ context.Context, level wire.HistoryLevel, of string) (data []byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return nil, errDown
	}
	for _, s := range m.messages {
		if s.level == level && s.of == of {
			data = s.data
		}
	}
	return data, nil
}

func (m *memory) count(level wire.HistoryLevel) (n int) {
	for _, s := range m.messages {
		if s.level == level {
			n++
		}
	}
	return n
}

var shop = &room.Room{ID: 7}

// sale is a leader, its store, and a room with an admission every second.
type sale struct {
	t        *testing.T
	store    *memory
	history  *History
	writer   *Writer
	admitted uint64
}

// start is the first second of the tests: a full day begins.
const start = 20_000 * 86400

func newSale(t *testing.T) *sale {
	t.Helper()
	s := &sale{t: t, store: &memory{ids: map[string]bool{}}}
	s.take()
	return s
}

// take makes another candidate lead, which has heard nothing but the log of the store.
func (s *sale) take() {
	s.t.Helper()
	s.history = New(s.store, slog.New(slog.DiscardHandler))
	if err := s.history.Catch(s.t.Context(), s.store.at); err != nil && !s.store.down {
		s.t.Fatal(err)
	}
	s.writer = s.history.Lead()
}

// run lets the seconds after from up to to pass.
func (s *sale) run(from, to int64) {
	s.t.Helper()
	var made [len(levels)]int64
	for at := from + 1; at <= to; at++ {
		s.store.at = time.Unix(at, 0)
		s.admitted++
		s.writer.Observe(&wire.Report{From: "dublin", Instance: 1, Rooms: []wire.RoomReport{{Room: shop.ID, Admitted: s.admitted}}})
		s.writer.Record(at, []*room.Room{shop}, func(*room.Room) *history.Gauges { return &history.Gauges{} })
		b := <-s.writer.seconds
		data, err := history.EncodeSecond(b.at, b.rooms)
		if err != nil {
			s.t.Fatal(err)
		}
		if err := s.history.Receive(data); err != nil { // by the bus
			s.t.Fatal(err)
		}
		if err := s.writer.writeSecond(s.t.Context(), b); err != nil && !s.store.down {
			s.t.Fatal(err)
		}
		s.writer.makeDue(s.t.Context(), at, &made, func() []room.ID { return []room.ID{shop.ID} }, func(err error) {
			if err != nil && !s.store.down {
				s.t.Fatal(err)
			}
		})
	}
}

// admissions returns the sum of the rows, and how many there are.
func (s *sale) admissions(from, to, step int64) (sum float64, rows int) {
	s.t.Helper()
	points, err := s.history.Points(s.t.Context(), shop.ID, from, to, step)
	if err != nil {
		s.t.Fatal(err)
	}
	if !slices.IsSortedFunc(points, func(a, b history.Point) int { return int(a.At - b.At) }) {
		s.t.Error("the points are not in order")
	}
	admitted := slices.IndexFunc(history.Columns, func(c history.Column) bool { return c.Name == "admitted" })
	got := history.Rows(points, from, to, step)
	for _, r := range got {
		sum += r.Numbers[admitted]
	}
	return sum, len(got)
}

// Every level has every admission once, across the ends of blocks and levels.
func TestEveryLevelCountsEveryAdmissionOnce(t *testing.T) {
	s := newSale(t)
	now := int64(start + 90_050) // a day and some
	s.run(start-10, now)
	if n := s.store.count(wire.HistorySeconds); n < 1490 || n > 1502 {
		t.Errorf("%d blocks of seconds, want about 1,500", n)
	}
	if m, h := s.store.count(wire.HistoryMinutes), s.store.count(wire.HistoryHours); m != 26 || h != 2 {
		t.Errorf("%d blocks of minutes and %d of hours, want 26 and 2", m, h)
	}
	for _, x := range []struct{ from, to, step, rows int64 }{
		{now - 60, now, 1, 60},
		{now - 5000, now, 1, 5000},
		{start + 100, start + 200, 1, 100},
		{start, start + 86400, 1, 86400},
		{start, start + 90_000, 60, 1500},
		{start, start + 90_000, 3600, 25},
		{start, start + 86400, 86400, 1},
	} {
		if sum, rows := s.admissions(x.from, x.to, x.step); int64(sum) != x.to-x.from || int64(rows) != x.rows {
			t.Errorf("%d to %d by %d: %v admitted in %d rows, want %d in %d", x.from-start, x.to-start, x.step, sum, rows, x.to-x.from, x.rows)
		}
	}
}

// A leader that ends in the middle of a minute, an hour and a day: the next one continues.
func TestASuccessorContinues(t *testing.T) {
	s := newSale(t)
	s.run(start, start+5000)
	s.take()
	s.run(start+5002, start+9000) // nobody led for two seconds
	s.take()
	s.run(start+9000, start+9100)
	if sum, _ := s.admissions(start+60, start+9060, 60); sum != 8998 {
		t.Errorf("%v admitted, want 8,998", sum)
	}
}

// A zombie that goes on writing adds nothing, and neither does the same second twice.
func TestTwoLeadersWriteOnePoint(t *testing.T) {
	s := newSale(t)
	s.run(start, start+100)
	zombie := s.writer
	s.take()
	zombie.second = 0
	for at := int64(start + 95); at < start+110; at++ {
		zombie.Record(at, []*room.Room{shop}, func(*room.Room) *history.Gauges { return &history.Gauges{Values: [9]int64{0, at}} })
		if err := zombie.writeSecond(t.Context(), <-zombie.seconds); err != nil {
			t.Fatal(err)
		}
	}
	s.run(start+100, start+200)
	if n := s.store.count(wire.HistoryLog); n != 200 {
		t.Errorf("%d seconds in the log, want 200", n)
	}
	if sum, rows := s.admissions(start+2, start+200, 1); sum != 198 || rows != 198 {
		t.Errorf("%v admitted in %d rows, want 198", sum, rows)
	}
}

// While the store is down the newest minutes are shown, and the blocks that it missed are made afterwards.
func TestTheStoreIsDown(t *testing.T) {
	s := newSale(t)
	s.run(start, start+7000)
	s.store.down = true
	s.run(start+7000, start+7080)
	if _, err := s.history.Points(t.Context(), shop.ID, start, start+7080, 1); !errors.Is(err, errDown) {
		t.Errorf("the past is told without the store: %v", err)
	}
	if p, _, ok := s.history.Last(shop.ID, 60); !ok || p.At != start+7080 {
		t.Errorf("the newest point is of %d", p.At-start)
	}
	s.store.down = false
	s.run(start+7080, start+11_000)
	if sum, _ := s.admissions(start+60, start+10_860, 60); sum != 10_800 {
		t.Errorf("%v admitted, want 10,800", sum)
	}
}

// A message of the log does not exceed what servers accept.
func TestALargeSecondIsDivided(t *testing.T) {
	s := newSale(t)
	b := batch{at: start}
	for id := range uint64(1000) {
		p := history.Point{At: start, Values: make([]int64, history.NumFields)}
		for i := range p.Values {
			p.Values[i] = 1 << 40
		}
		b.rooms = append(b.rooms, history.State{Room: id, Point: p})
	}
	if err := s.writer.writeSecond(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	rooms := 0
	for _, m := range s.store.messages {
		if len(m.data) > 400<<10 {
			t.Errorf("a message of %d bytes", len(m.data))
		}
		_, states, err := history.DecodeSecond(m.data)
		if err != nil || strings.Contains(m.of, ".") {
			t.Fatal(m.of, err)
		}
		rooms += len(states)
	}
	if rooms != 1000 {
		t.Errorf("%d rooms, want 1,000", rooms)
	}
}
