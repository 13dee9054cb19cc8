package global

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/control"
	"vestibule/internal/node"
)

// The leader publishes the numbers of rooms twice a second, or once a second if they need several messages. So every
// candidate's API has them.
const (
	numbersEvery = 500 * time.Millisecond
	numbersGood  = 5 * time.Second // validity without newer ones
	numbersRooms = 2000            // in one message
)

// numbers holds the latest numbers. It is safe for concurrent use.
type numbers struct {
	mu     sync.Mutex
	heard  time.Time   // when the last complete set came
	leader room.Lender // its sender
	rooms  map[room.ID]control.Numbers
	part   map[room.ID]control.Numbers // of the incomplete set
	stops  map[string][]stop.Stop      // by room, "" for those of all rooms
	some   map[string][]stop.Stop      // of the incomplete set
	at     time.Time                   // when the incomplete set was made
}

// numbersMessage is a message of the leader. Rooms without visitors are left out if all of their data centres are
// heard.
type numbersMessage struct {
	At    time.Time
	First bool // of a set
	Last  bool

	Leader room.Lender   // the sender
	Rooms  []roomNumbers `json:",omitempty"`
	Stops  []stop.Stop   `json:",omitempty"` // of data centres and of rooms
}

type roomNumbers struct {
	ID room.ID `json:",string"`
	control.Numbers
}

// run publishes the numbers while this candidate leads, and receives them otherwise.
func (n *numbers) run(ctx context.Context, s *Server) error {
	unsubscribe, err := s.hear(wire.NumbersSubject, n.receive)
	if err != nil {
		return err
	}
	defer unsubscribe()
	many := false
	node.Every(ctx, numbersEvery, func() {
		if many {
			many = false
			return
		}
		messages := s.numbersMessages(time.Now())
		many = len(messages) > 1
		for _, m := range messages {
			s.tell(wire.NumbersSubject, m)
		}
	})
	return nil
}

// numbersMessages returns the messages to publish; none unless this candidate leads.
func (cur *currentTerm) numbersMessages(now time.Time) []numbersMessage {
	rooms := cur.fleet.Set().Rooms()
	return whileLeading(cur, func(l *leadership) []numbersMessage {
		leader, stops := l.lender(), l.stops(rooms)
		out := []numbersMessage{{At: now, First: true, Leader: leader, Stops: stops[:min(len(stops), numbersRooms)]}}
		for rest := range slices.Chunk(stops[len(out[0].Stops):], numbersRooms) {
			out = append(out, numbersMessage{At: now, Leader: leader, Stops: rest})
		}
		for _, r := range rooms {
			x := l.numbers(r.ID)
			if x.Active == 0 && x.Waiting == 0 && x.Complete && x.Release == 0 {
				continue
			}
			m := &out[len(out)-1]
			if len(m.Rooms) == numbersRooms {
				out = append(out, numbersMessage{At: now, Leader: leader})
				m = &out[len(out)-1]
			}
			m.Rooms = append(m.Rooms, roomNumbers{r.ID, x})
		}
		out[len(out)-1].Last = true
		return out
	})
}

// stopsOf returns the stops of a room, and those of all rooms before them.
func stopsOf(all map[string][]stop.Stop, name string) []stop.Stop {
	if name == "" {
		return all[""]
	}
	return slices.Concat(all[""], all[name])
}

// stops determines why nobody enters: the stops of data centres, then those of rooms. The caller holds the lock.
func (l *leadership) stops(rooms []*room.Room) (out []stop.Stop) {
	now := l.s.Clock.Now()
	centres := l.alloc.Centres(now)
	listed := map[string]bool{}
	for i := range centres {
		listed[centres[i].Name] = listed[centres[i].Name] || centres[i].Standing != wire.Unlisted
	}
	for i := range centres {
		d := &centres[i]
		reason := stop.Stop{}
		// Two may report under one name.
		if c := l.reports[d.Name]; c != nil && (c.stop.Reason != stop.Copy || d.Standing == wire.Unlisted) {
			reason = c.stop
		}
		s := l.alloc.CentreStop(now, d, reason)
		if s.Reason == stop.Unlisted && listed[d.Name] {
			s.Reason = stop.Copy
		}
		if !s.OK() {
			out = append(out, s)
		}
	}
	for _, r := range rooms {
		x := l.alloc.Totals(r.ID)
		if v := x.View; v != nil && x.Complete && x.Total > 0 && v.Active >= x.Total &&
			r.QueueingMethod != room.MethodPassthrough && !r.Suspended {
			out = append(out, stop.Stop{Reason: stop.Full, Room: r.Name})
		}
		out = append(out, l.siteDown(r.ID, r.Name)...)
	}
	slices.SortStableFunc(out, func(a, b stop.Stop) int {
		return cmp.Or(cmp.Compare(a.Room, b.Room), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Centre, b.Centre))
	})
	l.since.Note(l.alloc.Time(now), out)
	l.stopped = map[string][]stop.Stop{}
	for _, s := range out {
		l.stopped[s.Room] = append(l.stopped[s.Room], s)
	}
	return out
}

// siteDown returns where the site of a room does not answer: everywhere, or how many edges of which data centres. The
// caller holds the lock.
func (l *leadership) siteDown(id room.ID, name string) (out []stop.Stop) {
	down := l.alloc.SitesDown(id)
	if len(down) == 0 {
		return nil
	}
	whole, all := true, 0
	for _, d := range l.alloc.Centres(l.s.Clock.Now()) {
		edges, told := l.reports[d.Name].alive()
		if n := down[d.Name].Edges; n > 0 {
			s := stop.Stop{
				Reason: stop.SiteDown, Room: name, Centre: d.Name, Edges: n, First: strings.Join(down[d.Name].First, ", "),
			}
			if edges >= n {
				s.Of = edges
			}
			out = append(out, s)
			all += n
		}
		whole = whole && (told && down[d.Name].Edges >= edges || !d.Reporting)
	}
	if whole {
		return []stop.Stop{{Reason: stop.SiteDown, Room: name, Edges: all}}
	}
	return out
}

// numbers returns the numbers of a room.
func (l *leadership) numbers(id room.ID) control.Numbers {
	n := numbersOf(l.alloc.Totals(id))
	n.PerMinute = float64(l.alloc.Admitted(l.s.Clock.Now(), id))
	return n
}

// numbersOf returns the numbers of a room from its ledger, without its admissions.
func numbersOf(l root.Ledger) control.Numbers {
	n := control.Numbers{Complete: l.Complete, Longest: -1, Release: l.Passes.Release, LetIn: int(l.Passes.Spent)}
	if v := l.View; v != nil {
		n.Active, n.Waiting = int(v.Active), int(v.Line.Total()+0.5)
		n.Beyond = max(0, n.Active-int(l.Total))
		if wait, ok := estimate.Estimate(v.Line.Total(), v.Paces, v.Theta); ok {
			n.Longest = wait.Seconds()
		}
	}
	return n
}

// receive takes a message of a leader.
func (n *numbers) receive(data []byte, now time.Time) error {
	var m numbersMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if m.First {
		n.part, n.some, n.at = map[room.ID]control.Numbers{}, map[string][]stop.Stop{}, m.At
	}
	if n.part == nil || !m.At.Equal(n.at) || len(n.part)+len(m.Rooms) > room.MaxRooms {
		n.part = nil // a part is missing: the next set comes in a second
		return nil
	}
	for _, r := range m.Rooms {
		n.part[r.ID] = r.Numbers
	}
	for _, s := range m.Stops[:min(len(m.Stops), numbersRooms)] {
		if len(n.some[s.Room]) < maxCentres && len(n.some) <= room.MaxRooms {
			n.some[s.Room] = append(n.some[s.Room], s)
		}
	}
	if m.Last {
		n.rooms, n.part, n.heard, n.leader = n.part, nil, now, m.Leader
		n.stops = n.some
	}
	return nil
}

// Numbers returns the numbers of a room. ok is false if no leader has published them recently: then they are the last
// ones, with At, or zero.
func (s *Server) Numbers(_ context.Context, id room.ID) (x control.Numbers, ok bool) {
	defer func() {
		_, x.Subscribed = s.candidates.notified(id)
		if m, known := s.lastMinute(id); ok && known { // as all that shows the past
			x.PerMinute = float64(m.Admitted)
		}
	}()
	now, name := time.Now(), ""
	if r := s.fleet.Set().ByID(id); r != nil {
		name = r.Name
	}
	s.mu.Lock()
	if l := s.leading; l != nil {
		x, ok = l.numbers(id), true
		x.At, x.Leader = now, l.lender()
		x.Stops = stopsOf(l.stopped, name)
	}
	s.mu.Unlock()
	if ok {
		return x, true
	}
	n := &s.numbers
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.heard.IsZero() {
		return x, false
	}
	x, named := n.rooms[id]
	if !named {
		x = control.Numbers{Complete: true, Longest: -1}
	}
	x.At, x.Leader = n.heard, n.leader
	x.Stops = stopsOf(n.stops, name)
	return x, now.Sub(n.heard) <= numbersGood
}
