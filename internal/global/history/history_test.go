package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/testkit"
)

// memory is a store of messages that arrive at a time of the test.
type memory struct {
	mu       sync.Mutex
	at       time.Time
	down     bool
	slow     time.Duration // that a block of a month takes to be written
	read     int           // messages
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
	if level == wire.HistoryMonths {
		time.Sleep(m.slow)
	}
	if key := fmt.Sprint(level, of, id); !m.ids[key] {
		m.ids[key] = true
		m.messages = append(m.messages, stored{level, of, m.at, data})
	}
	return nil
}

func (m *memory) Read(_ context.Context, level wire.HistoryLevel, of string, since time.Time,
	each func([]byte) bool,
) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return errDown
	}
	for _, s := range m.messages {
		if s.level != level || of != "*" && s.of != of || s.at.Before(since) {
			continue
		}
		if m.read++; !each(s.data) {
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
	rooms    []*room.Room
	admitted uint64

	reports func(at int64) []*wire.Report
	gauges  func(r *room.Room, at int64) *history.Gauges
}

// start is the first second of the tests: a full day begins.
const start = 20_000 * 86400

func newSale(t *testing.T) *sale {
	t.Helper()
	s := &sale{
		t: t, store: &memory{ids: map[string]bool{}}, rooms: []*room.Room{shop},
		gauges: func(*room.Room, int64) *history.Gauges { return &history.Gauges{} },
	}
	s.reports = func(int64) []*wire.Report {
		s.admitted++
		return []*wire.Report{{From: "dublin", Instance: 1, Rooms: []wire.RoomReport{{Room: shop.ID, Admitted: s.admitted}}}}
	}
	s.take()
	return s
}

// take makes another candidate lead, which has heard nothing but the log of the store.
func (s *sale) take() {
	s.t.Helper()
	s.history = New(s.store, slog.New(slog.DiscardHandler))
	s.writer = s.history.Lead()
	testkit.NoError(s.t, s.writer.Begin(s.t.Context(), s.store.at))
}

// run lets the seconds after from up to to pass.
func (s *sale) run(from, to int64) {
	s.t.Helper()
	var made [len(levels)]int64
	for at := from + 1; at <= to; at++ {
		s.store.at = time.Unix(at, 0)
		for _, m := range s.reports(at) {
			s.writer.Observe(m)
		}
		s.writer.Record(at, s.rooms, func(r *room.Room) *history.Gauges { return s.gauges(r, at) })
		b := <-s.writer.seconds
		data := history.EncodeSecond(b.at, b.rooms)
		testkit.NoError(s.t, s.history.Receive(data)) // by the bus
		if err := s.writer.writeSecond(s.t.Context(), b); err != nil && !s.store.down {
			s.t.Fatal(err)
		}
		s.writer.makeDue(s.t.Context(), at, &made, s.ids, func(err error) {
			if err != nil && !s.store.down {
				s.t.Fatal(err)
			}
		})
	}
}

func (s *sale) ids() (out []room.ID) {
	for _, r := range s.rooms {
		out = append(out, r.ID)
	}
	return out
}

// points returns the points of the shop.
func (s *sale) points(from, to, step int64) (out []history.Point, err error) {
	err = s.history.Points(s.t.Context(), shop.ID, from, to, step, func(p []history.Point) { out = append(out, p...) })
	return out, err
}

// admissions returns the sum of the rows, and how many there are.
func (s *sale) admissions(from, to, step int64) (sum float64, rows int) {
	s.t.Helper()
	points := testkit.Must(s.points(from, to, step))(s.t)
	if !slices.IsSortedFunc(points, func(a, b history.Point) int { return int(a.At - b.At) }) {
		s.t.Error("the points are not in order")
	}
	admitted := slices.IndexFunc(history.Columns, func(c history.Column) bool { return c.Name == "admitted" })
	read := history.NewReader(from, to, step)
	read.Add(points)
	got := read.Table()
	for _, n := range got.Columns[admitted] {
		if !math.IsNaN(n) {
			sum += n
		}
	}
	return sum, len(got.Times)
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
			t.Errorf("%d to %d by %d: %v admitted in %d rows, want %d in %d", x.from-start, x.to-start, x.step, sum, rows,
				x.to-x.from, x.rows)
		}
	}
}

// yesterdays writes days of hours up to the start of the tests, with an admission a second, as they ended.
func (s *sale) yesterdays(days int64) {
	s.t.Helper()
	for day := start - days*86400; day < start; day += 86400 {
		var points []history.Point
		for at := day + 3600; at <= day+86400; at += 3600 {
			p := history.Point{At: at, Values: make([]int64, history.NumFields)}
			p.Values[history.Admitted] = at - start + days*86400
			points = append(points, p)
		}
		block := history.EncodeBlock(points)
		s.store.at = time.Unix(day+86400+9, 0)
		for _, r := range s.rooms {
			testkit.NoError(s.t, s.store.Write(s.t.Context(), wire.HistoryHours, public(r.ID), fmt.Sprint(day), block))
		}
	}
	s.store.at = time.Unix(start+30, 0)
}

// due makes the blocks that are due, like a leader that has just begun, and returns the ends of the newest.
func (s *sale) due(made *[len(levels)]int64) {
	s.t.Helper()
	s.writer.makeDue(s.t.Context(), start+30, made, s.ids, func(err error) {
		testkit.NoError(s.t, err)
	})
}

// Thirty days of hours become one block, also those from before there were such blocks, and a chart reads only it and
// the days since. All rows are as before.
func TestAMonthOfHoursIsOneBlock(t *testing.T) {
	s := newSale(t)
	const days, rest = 380, start / 86400 % 30 // days since the newest month ended
	s.yesterdays(days)
	from := int64(start - (days-1)*86400)
	before, rows := s.admissions(from, start, 3600)
	s.due(&[len(levels)]int64{})
	if n, want := s.store.count(wire.HistoryMonths), (days-rest+29)/30; n != want {
		t.Errorf("%d blocks of months, want %d", n, want)
	}
	s.store.read = 0
	if sum, n := s.admissions(from, start, 3600); sum != before || n != rows || sum != (days-1)*86400 {
		t.Errorf("%v admitted in %d rows, before %v in %d", sum, n, before, rows)
	}
	if s.store.read > days/30+rest+3 {
		t.Errorf("a chart of a year reads %d messages", s.store.read)
	}
	s.due(&[len(levels)]int64{}) // a successor
	if n, want := s.store.count(wire.HistoryMonths), (days-rest+29)/30; n != want {
		t.Errorf("%d blocks of months after a successor, want %d", n, want)
	}
}

// A store that is slow over months does not keep the levels below waiting: what is left is made the next time.
func TestMonthsDoNotHoldUpMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSale(t)
		for id := room.ID(100); id < 120; id++ {
			s.rooms = append(s.rooms, &room.Room{ID: id})
		}
		s.yesterdays(70)
		s.store.slow = 7 * time.Second
		var made [len(levels)]int64
		for turn := 1; made[len(levels)-1] == 0; turn++ {
			begun := time.Now()
			if s.due(&made); time.Since(begun) > kept*time.Second/2 {
				t.Fatalf("the levels below wait %v", time.Since(begun))
			}
			if turn > 20 {
				t.Fatal("months are never made")
			}
		}
		if n := s.store.count(wire.HistoryMonths); n != 2*len(s.rooms) {
			t.Errorf("%d blocks of months, want %d", n, 2*len(s.rooms))
		}
	})
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

// A leader that cannot read the log records nothing: its totals would begin at 0. What it has heard meanwhile is not
// lost.
func TestALeaderWaitsForTheLog(t *testing.T) {
	s := newSale(t)
	s.run(start, start+100)
	s.store.down = true
	s.history = New(s.store, slog.New(slog.DiscardHandler))
	s.writer = s.history.Lead()
	s.admitted += 7 // nobody led
	for at := int64(start + 103); at < start+150; at++ {
		if err := s.writer.Begin(t.Context(), time.Unix(at, 0)); !errors.Is(err, errDown) {
			t.Fatalf("begun without the log: %v", err)
		}
		instance := uint64(1)
		if at > start+120 {
			if instance = 2; at == start+121 {
				s.admitted = 0
			}
		}
		for _, m := range s.reports(at) {
			m.Instance = instance
			s.writer.Observe(m)
		}
		if s.writer.Record(at, s.rooms, func(*room.Room) *history.Gauges { return &history.Gauges{} }) {
			t.Fatal("recorded without the log")
		}
	}
	s.store.down = false
	testkit.NoError(t, s.writer.Begin(t.Context(), time.Unix(start+150, 0)))
	next := s.reports
	s.reports = func(at int64) []*wire.Report {
		all := next(at)
		all[0].Instance = 2
		return all
	}
	s.run(start+150, start+200)
	// Of the aggregator before, what no leader recorded is unknown.
	if sum, _ := s.admissions(start+1, start+200, 1); sum != 99+29+50 {
		t.Errorf("%v admitted, want 178", sum)
	}
	if m, ok := s.history.Minute(shop.ID, math.MaxInt64-1); !ok || m.Point.Values[history.Admitted] != 99+29+50 {
		t.Errorf("the total is %d, want 178", m.Point.Values[history.Admitted])
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
		zombie.Record(at, []*room.Room{shop},
			func(*room.Room) *history.Gauges { return &history.Gauges{Values: [9]int64{0, at}} })
		testkit.NoError(t, zombie.writeSecond(t.Context(), <-zombie.seconds))
	}
	s.run(start+100, start+200)
	if n := s.store.count(wire.HistoryLog); n != 200 {
		t.Errorf("%d seconds in the log, want 200", n)
	}
	if sum, rows := s.admissions(start+2, start+200, 1); sum != 198 || rows != 198 {
		t.Errorf("%v admitted in %d rows, want 198", sum, rows)
	}
}

// Leaders die within ten minutes, at any second, and nobody leads for up to two. What a dead one had recorded may
// arrive when its successor writes. Only the seconds without a leader are missing, no second is there twice, and every
// admission is counted once.
func TestLeadersThatDie(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := newSale(t)
		at, missing := int64(start), int64(0)
		for range 10 {
			died := at + rapid.Int64Range(2, 60).Draw(r, "reign")
			s.run(at, died)
			gap := rapid.Int64Range(0, 2).Draw(r, "gap")
			late := rapid.Int64Range(0, gap).Draw(r, "late")
			dead := s.writer
			for i := range late {
				dead.Observe(s.reports(died + i + 1)[0])
				dead.Record(died+i+1, s.rooms, func(*room.Room) *history.Gauges { return &history.Gauges{} })
			}
			s.admitted += uint64(gap - late)
			missing += gap
			s.take()
			at = died + gap + rapid.Int64Range(1, 5).Draw(r, "later")
			s.run(died+gap, at)
			for range late {
				b := <-dead.seconds
				err := s.history.Receive(history.EncodeSecond(b.at, b.rooms))
				if err == nil {
					err = dead.writeSecond(t.Context(), b)
				}
				testkit.NoError(r, err)
			}
		}
		s.run(at, at+70)
		at += 70
		points := testkit.Must(s.points(start, at, 1))(r)
		seen := map[int64]bool{}
		for _, p := range points {
			if seen[p.At] {
				r.Errorf("the second %d is there twice", p.At-start)
			}
			seen[p.At] = true
		}
		if n := at - start - int64(len(points)); n != missing {
			r.Errorf("%d points are missing, and nobody led for %d s", n, missing)
		}
		if sum, _ := s.admissions(start+1, at, 1); sum != float64(s.admitted-1) {
			r.Errorf("%v admitted, want %d", sum, s.admitted-1)
		}
	})
}

// While the store is down the newest minutes are shown, and the blocks that it missed are made afterwards.
func TestTheStoreIsDown(t *testing.T) {
	s := newSale(t)
	s.run(start, start+7000)
	s.store.down = true
	s.run(start+7000, start+7080)
	if _, err := s.points(start, start+7080, 1); !errors.Is(err, errDown) {
		t.Errorf("the past is read without the store: %v", err)
	}
	if m, ok := s.history.Minute(shop.ID, math.MaxInt64-1); !ok || m.Point.At != start+7080 {
		t.Errorf("the newest point is of %d", m.Point.At-start)
	}
	s.store.down = false
	s.run(start+7080, start+11_000)
	if sum, _ := s.admissions(start+60, start+10_860, 60); sum != 10_800 {
		t.Errorf("%v admitted, want 10,800", sum)
	}
}

// A day of a busy room in two data centres, with 1,300 admissions and 36,000 requests a minute, and of one at rest:
// what the streams keep of it, with the headers of messages. The log keeps an hour.
func TestBytesOfADay(t *testing.T) {
	s := newSale(t)
	rest := &room.Room{ID: 8}
	s.rooms = append(s.rooms, rest)
	random := rand.New(rand.NewPCG(1, 2))
	some := func(mean int) uint64 { return uint64(random.IntN(2*mean + 1)) }
	waiting := 0.0
	counts := map[string]*wire.RoomReport{}
	s.reports = func(at int64) (out []*wire.Report) {
		for _, centre := range []string{"dublin", "nairobi"} {
			r := counts[centre]
			if r == nil {
				r = &wire.RoomReport{Room: shop.ID, Counts: make(history.Counts, history.NumCounts)}
				counts[centre] = r
			}
			joined, entered := some(12), some(9)
			waiting = max(0, waiting+float64(joined)-float64(entered))
			r.Joined, r.Entered, r.Admitted = r.Joined+joined, r.Entered+entered, r.Admitted+entered+some(2)
			r.Waiting = estimate.Histogram{{Start: 1, Width: 1, N: waiting}}
			r.Counts = slices.Clone(r.Counts)
			for range entered {
				wait := time.Duration(random.NormFloat64()*200+900) * time.Second
				r.Counts.AddWait(wait, wait+time.Duration(some(60))*time.Second)
				r.Counts.AddStay(-1, time.Duration(random.ExpFloat64()*float64(4*time.Minute)))
			}
			for range some(300) {
				r.Counts[history.OriginRequests]++
				r.Counts[history.LatencyBin(time.Duration(random.ExpFloat64()*float64(80*time.Millisecond)))]++
			}
			r.Counts[history.Returning] += some(2)
			r.Counts[history.OriginErrors] += some(1)
			out = append(out, &wire.Report{From: centre, Instance: 1, Rooms: []wire.RoomReport{*r, {Room: rest.ID}}})
		}
		return out
	}
	s.gauges = func(r *room.Room, at int64) *history.Gauges {
		g := &history.Gauges{Values: [9]int64{0, 5000, 5000, 3000, -1}}
		for _, centre := range []string{"dublin", "nairobi"} {
			c := history.CentreGauges{Name: centre}
			if r == shop {
				c.Inside, c.Held, c.Idle = 2450+int64(some(50)), 2500, int64(some(25))
				g.Values[history.Inside], g.Values[history.Wait] = 4900+int64(some(50)), 900+int64(some(15))
			}
			g.Centres = append(g.Centres, c)
		}
		return g
	}
	const end = start + 86400 + 12
	s.run(start, end)
	var busy, atRest, log float64
	for _, m := range s.store.messages {
		// The file of a stream adds 34 bytes to a subject, the headers and the data.
		size := float64(34 + len(wire.HistorySubject(m.level, m.of)) +
			len("NATS/1.0\r\nNats-Msg-Id: 0123456789abcdef.0.1700000000\r\n"+
				"Nats-Expected-Stream: VESTIBULE_HISTORY_SECONDS\r\n\r\n") + len(m.data))
		switch {
		case m.level != wire.HistoryLog && m.of == public(rest.ID):
			atRest += size
		case m.level != wire.HistoryLog:
			busy += size
		case m.at.Unix() > end-3600:
			log += size
		}
	}
	fleet := 20*(busy+log) + 980*atRest
	t.Logf("busy: %.2f MB of log an hour; at rest: %.1f kB a day", log/1e6, atRest/1e3)
	figures.Check(t, "history: bytes a day of a busy room", "", busy/1e6)
	figures.Check(t, "history: bytes a day of 1,000 rooms, 20 busy", "", fleet/1e6)
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
	testkit.NoError(t, s.writer.writeSecond(t.Context(), b))
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

// A room that was removed is forgotten, so that a new one has a history; one at rest keeps its newest point.
func TestRemovedRoomsAreForgotten(t *testing.T) {
	h := New(&memory{ids: map[string]bool{}}, slog.New(slog.DiscardHandler))
	hear := func(id uint64, at int64) {
		h.hear(at, []history.State{{Room: id, Point: history.Point{At: at, Values: make([]int64, history.NumFields)}}})
	}
	const rests = 1 << 40
	at := int64(0)
	for i := range uint64(room.MaxRooms) {
		at += history.Beat
		hear(i+1, at)
		hear(rests, at)
	}
	hear(1_000_000, at+history.Beat/2)
	for _, id := range []room.ID{1_000_000, rests} {
		if _, ok := h.Minute(id, at+history.Beat); !ok {
			t.Errorf("room %d has no history; %d rooms are kept", id, len(h.rooms))
		}
	}
	if len(h.rooms) > 5 {
		t.Errorf("%d rooms are kept", len(h.rooms))
	}
}

// A block that cannot be read is left out: it stops neither the blocks of other rooms, nor the later ones of its own.
func TestAnUnreadableBlockIsAGap(t *testing.T) {
	s := newSale(t)
	other := &room.Room{ID: 8}
	s.rooms = append(s.rooms, other)
	s.store.at = time.Unix(start-100, 0)
	testkit.NoError(t, s.store.Write(t.Context(), wire.HistoryMinutes, public(shop.ID), "bad", []byte("not a block")))
	s.run(start, start+3600+30)
	made := map[string]int{}
	for _, m := range s.store.messages {
		if m.level == wire.HistoryMinutes {
			made[m.of]++
		}
	}
	if made[public(shop.ID)] < 2 || made[public(other.ID)] == 0 {
		t.Errorf("blocks of minutes: %v", made)
	}
	if _, err := s.points(start, start+3600, 60); err != nil {
		t.Error(err)
	}
}
