package room

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
)

// Bounds of events.
const (
	MaxEvents   = 5               // of one room
	MinEvent    = time.Minute     // from the start of an event to its end
	MinPrequeue = 5 * time.Minute // from the moment at which people gather to the start
	maxMoment   = 4102444800000   // the year 2100, in Unix milliseconds
)

// Event is a time for which a room has other settings. Before it begins, people may gather: from Prequeue on
// everybody without a session waits, and nobody is let in before Start. Times are fleet time in Unix milliseconds.
type Event struct {
	ID          string // 32 hexadecimal digits, in lower case; "" means one that is made of the name
	Name        string // unique in the room
	Description string
	Prequeue    int64 // 0: nobody gathers
	Start, End  int64
	Suspended   bool // it does nothing
	Shuffle     bool // whoever has joined when entries close enters in an order that is drawn, see package draw
	Overrides   Overrides
	Created     int64 // Unix milliseconds, 0 where nobody noted it
	Changed     int64
}

// begins returns from when on the event changes anything.
func (e *Event) begins() int64 {
	if e.Prequeue != 0 {
		return e.Prequeue
	}
	return e.Start
}

// fill fills in what was left out. A second event of a name gets an ID of its own; the name is refused.
func (e *Event) fill(before []Event) {
	e.Overrides = e.Overrides.clone()
	if e.ID != "" {
		return
	}
	again := 0
	for i := range before {
		if before[i].Name == e.Name {
			again++
		}
	}
	sum := sha256.Sum256([]byte("event " + e.Name + strings.Repeat(" again", again)))
	e.ID = hex.EncodeToString(sum[:16])
}

// same reports whether two events say the same: times of writing are of who wrote them.
func (e Event) same(o Event) bool {
	e.Created, e.Changed, o.Created, o.Changed = 0, 0, 0, 0
	return reflect.DeepEqual(e, o)
}

// Kind is what a [Phase] is.
type Kind uint8

// The kinds.
const (
	Base     Kind = iota // no event
	Prequeue             // people gather for an event, and nobody is let in
	Active               // an event
)

// Phase is a time in which the settings of a room stay as they are, until the next one begins.
type Phase struct {
	From  int64 // fleet time in Unix milliseconds
	Kind  Kind
	Event *Event // nil for Base; it must not be modified
}

// Plan is what a room's events make of time: phases in order, the first from the beginning of time. Every node works
// out by itself which one is on, so nothing has to arrive when one begins.
type Plan []Phase

// Plan returns the plan of the room: one phase where it has no events. Of draws nothing is told.
func (s *Settings) Plan() Plan { return s.PlanBy(nil) }

// PlanBy returns the plan of the room by what a board tells of draws. An event that begins with one is not active before
// its record has been public for long enough: people go on gathering, to the event's end where there is no word of it.
func (s *Settings) PlanBy(board *draw.Board) Plan {
	plan := Plan{{From: math.MinInt64}}
	add := func(p Phase) {
		if last := &plan[len(plan)-1]; last.From == p.From { // one event begins as another one ends
			*last = p
			return
		}
		plan = append(plan, p)
	}
	events := slices.Clone(s.Events)
	slices.SortFunc(events, func(a, b Event) int { return int(min(1, max(-1, a.begins()-b.begins()))) })
	for i := range events {
		e := &events[i]
		if e.Suspended {
			continue
		}
		if e.Prequeue != 0 {
			add(Phase{e.Prequeue, Prequeue, e})
		}
		if start := s.opens(e, board); start < e.End {
			add(Phase{start, Active, e})
		}
		add(Phase{From: e.End})
	}
	return plan
}

// opens returns when the first are let in to an event.
func (s *Settings) opens(e *Event, board *draw.Board) int64 {
	if !e.Shuffle {
		return e.Start
	}
	return max(e.Start, int64(board.Of(s.DrawOf(e)).Opens()))
}

// DrawOf returns what the draw of an event of the room is known by.
func (s *Settings) DrawOf(e *Event) draw.Event {
	return draw.Event{Room: PublicID(s.Known()), ID: e.ID, Start: fleettime.Time(e.Start), End: fleettime.Time(e.End)}
}

// Told returns the set with what is public of draws, which [Set.Under] and [Set.Next] go by. The nil set is itself.
func (s *Set) Told(board *draw.Board) *Set {
	if s == nil || board == nil {
		return s
	}
	out := *s
	out.board, out.planned = board, slices.Clone(s.planned)
	for _, n := range board.Notices {
		if id, err := controlledID(n.Room); err == nil && n.Drawn() != nil {
			if r := s.ByID(id); r != nil && PublicID(r.Known()) == n.Room && !slices.Contains(out.planned, r) {
				out.planned = append(out.planned, r) // who was drawn keeps the place without the event, too
			}
		}
	}
	return &out
}

// plan returns the plan of a room by what is told of draws.
func (s *Set) plan(r *Room) Plan {
	if s.board == nil || !slices.ContainsFunc(r.Events, func(e Event) bool { return e.Shuffle }) {
		return r.Plan
	}
	return r.PlanBy(s.board)
}

// Draws returns the events of the rooms that begin with a draw. The nil set has none.
func (s *Set) Draws() (events []draw.Event) {
	if s == nil {
		return nil
	}
	for _, r := range s.planned {
		for i := range r.Events {
			if e := &r.Events[i]; e.Shuffle && !e.Suspended {
				events = append(events, r.DrawOf(e))
			}
		}
	}
	return events
}

// at returns the index of the phase that is on at now.
func (p Plan) at(now int64) int {
	i := len(p) - 1
	for i > 0 && p[i].From > now {
		i--
	}
	return i
}

// At returns the phase that is on at now.
func (p Plan) At(now int64) Phase { return p[p.at(now)] }

// Next returns when the next phase after now begins, 0 for never.
func (p Plan) Next(now int64) int64 {
	if i := p.at(now) + 1; i < len(p) {
		return p[i].From
	}
	return 0
}

// Gathers returns the times in which nobody is let in because people gather for an event: from, and until, in turn.
func (p Plan) Gathers() (spans [][2]int64) {
	for i := range p {
		if p[i].Kind == Prequeue {
			spans = append(spans, [2]int64{p[i].From, p[i+1].From})
		}
	}
	return spans
}

// In returns s as it is in a phase of its plan. While people gather, the method is fifo, whatever it is to be.
func (s Settings) In(p Phase) Settings {
	e := p.Event
	if e == nil {
		return s
	}
	s = e.Overrides.Over(s)
	if p.Kind == Prequeue {
		s.QueueingMethod = MethodFIFO
	}
	return s
}

// During returns what of s is in force at now, by a clock that is off by bound at most: as in the phase that is on, but
// with the smallest limits of all phases that may be on. closed tells that people may be gathering in one of them.
func (s Settings) During(p Plan, now int64, bound time.Duration) (out Settings, on Phase, closed bool) {
	off := bound.Milliseconds()
	on = p.At(now)
	out = s.In(on)
	for _, q := range p[p.at(now-off) : p.at(now+off)+1] {
		in := s.In(q)
		out.TotalActiveUsers, out.NewUsersPerMinute = min(out.TotalActiveUsers, in.TotalActiveUsers), min(out.NewUsersPerMinute, in.NewUsersPerMinute)
		if out.QueueingMethod == MethodPassthrough {
			out.QueueingMethod = in.QueueingMethod
		}
		closed = closed || q.Kind == Prequeue
	}
	return out, on, closed
}

// EachPage yields the names of the waiting pages that the room shows: its own and those of its events.
func (s *Settings) EachPage(yield func(string) bool) {
	if s.WaitingPage != "" && !yield(s.WaitingPage) {
		return
	}
	for i := range s.Events {
		if page := s.Events[i].Overrides.Over(Settings{}).WaitingPage; page != "" && !yield(page) {
			return
		}
	}
}

// Pages calls do with where the room keeps the name of each waiting page that it shows: its own and those of its
// events, "" for none. What do writes there changes no other copy of s.
func (s *Settings) Pages(do func(page *string)) {
	do(&s.WaitingPage)
	t, _ := settingByKey("waiting_page")
	s.Events = slices.Clone(s.Events)
	for i := range s.Events {
		over := s.Events[i].Overrides.Over(Settings{})
		do(&over.WaitingPage)
		s.Events[i].Override(t, &over)
	}
}

// checkEvents holds each event against the rules, and all of them against each other.
func (s *Settings) checkEvents(add func(field, rule string)) {
	if n := len(s.Events); n > MaxEvents {
		add("events", fmt.Sprintf("must be at most %d, got %d", MaxEvents, n))
		return
	}
	for i := range s.Events {
		e := &s.Events[i]
		say := func(key, rule string) { add(fmt.Sprintf("events[%d].%s", i, key), rule) }
		e.check(say)
		e.Overrides.check(s, say)
		for j := range s.Events[:i] {
			o := &s.Events[j]
			if o.ID == e.ID {
				say("id", fmt.Sprintf("is the id of events[%d] already", j))
			}
			if o.Name == e.Name {
				say("name", fmt.Sprintf("is the name of events[%d] already", j))
			}
			if e.begins() < o.End && o.begins() < e.End {
				key := "event_start_time"
				if e.Prequeue != 0 {
					key = "prequeue_start_time"
				}
				say(key, fmt.Sprintf("must not lie so that the event overlaps another one of the room: %q is from %s to %s", o.Name, showMoment(o.begins()), showMoment(o.End)))
			}
		}
	}
}

// check holds the event against the rules that know no other one.
func (e *Event) check(add func(key, rule string)) {
	if len(e.ID) != 32 || strings.Trim(e.ID, "0123456789abcdef") != "" {
		add("id", "must be 32 hexadecimal digits in lower case"+got(e.ID))
	}
	add("name", checkRoomName(e.Name))
	add("description", checkMessage(e.Description))
	moment := func(key string, t int64) bool {
		switch {
		case t == 0:
			add(key, "is required")
		case t < 0 || t > maxMoment:
			add(key, "must be a time before the year 2100, got "+showMoment(t))
		default:
			return true
		}
		return false
	}
	started := moment("event_start_time", e.Start)
	if moment("event_end_time", e.End) && started && e.End-e.Start < MinEvent.Milliseconds() {
		add("event_end_time", fmt.Sprintf("must be %s or more after event_start_time, got %s", short(MinEvent), showMoment(e.End)))
	}
	if e.Prequeue != 0 && moment("prequeue_start_time", e.Prequeue) && started && e.Start-e.Prequeue < MinPrequeue.Milliseconds() {
		add("prequeue_start_time", fmt.Sprintf("must be %s or more before event_start_time, got %s", short(MinPrequeue), showMoment(e.Prequeue)))
	}
	if e.Shuffle && e.Prequeue == 0 {
		add("shuffle_at_event_start", "must be false without prequeue_start_time: nobody gathers who could be drawn")
	}
	if e.Created < 0 || e.Changed < 0 {
		add("changed", "must be a time")
	}
}

// showMoment writes a moment for operators.
func showMoment(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }
