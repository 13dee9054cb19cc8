package room

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
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
	MaxEvents   = 25              // of one room, with those that have ended
	MinEvent    = time.Minute     // from the start of an event to its end
	MinPrequeue = 5 * time.Minute // from the prequeue to the start
	maxMoment   = 4102444800000   // the year 2100, in Unix milliseconds
)

// Event is a time with other settings for a room. It may have a prequeue: from Prequeue on every visitor without a
// session waits, and nobody is admitted before Start. Times are fleet time in Unix milliseconds.
type Event struct {
	ID          string // 32 hexadecimal digits, in lower case; "" means one derived from the name
	Name        string // unique in the room
	Description string
	Prequeue    int64 // 0: no prequeue
	Start, End  int64
	Suspended   bool // it has no effect
	Shuffle     bool // visitors that joined before entries close enter in a drawn order, see package draw
	Overrides   Overrides
	Created     int64 // Unix milliseconds, 0 if unknown
	Changed     int64
}

// begins returns the time from which the event has an effect.
func (e *Event) begins() int64 {
	if e.Prequeue != 0 {
		return e.Prequeue
	}
	return e.Start
}

// fill sets the defaults. A second event of a name gets an ID of its own; validation refuses the name.
func (e *Event) fill(before []Event) {
	e.Overrides = e.Overrides.clone()
	if e.ID != "" {
		return
	}
	e.ID = defaultID("event", before, e.Name, func(o *Event) string { return o.Name })
}

// defaultID returns the ID of a rule or an event without one. It depends on the key, and on how many of before have the
// same.
func defaultID[T any](kind string, before []T, key string, of func(*T) string) string {
	again := 0
	for i := range before {
		if of(&before[i]) == key {
			again++
		}
	}
	sum := sha256.Sum256([]byte(kind + " " + key + strings.Repeat(" again", again)))
	return hex.EncodeToString(sum[:16])
}

// same reports whether two events are equal, apart from their times of writing.
func (e Event) same(o Event) bool {
	e.Created, e.Changed, o.Created, o.Changed = 0, 0, 0, 0
	return reflect.DeepEqual(e, o)
}

// Kind is the kind of a [Phase].
type Kind uint8

// The kinds.
const (
	Base     Kind = iota // no event
	Prequeue             // visitors gather for an event; nobody is admitted
	Active               // an event
)

// Phase is a time with constant settings of a room, until the next phase begins.
type Phase struct {
	From  int64 // fleet time in Unix milliseconds
	Kind  Kind
	Event *Event // nil for Base; it must not be modified
}

// Plan is the schedule of a room's events: phases in order, the first without a beginning. Every node determines the
// current phase by itself, so no message is needed when one begins.
type Plan []Phase

// Plan returns the plan of the room, without knowledge of draws. Without events it has one phase.
func (s *Settings) Plan() Plan { return s.PlanBy(nil) }

// PlanBy returns the plan of the room with the draws of a registry. An event with a draw is not active before its
// record has been public for long enough: its prequeue goes on, to the event's end if no record appears.
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

// opens returns the time of the first admission to an event.
func (s *Settings) opens(e *Event, board *draw.Board) int64 {
	if !e.Shuffle {
		return e.Start
	}
	return max(e.Start, int64(board.Of(s.DrawOf(e)).Opens()))
}

// DrawOf returns the identity of the draw of an event.
func (s *Settings) DrawOf(e *Event) draw.Event {
	return draw.Event{Room: PublicID(s.TicketName()), ID: e.ID, Start: fleettime.Time(e.Start), End: fleettime.Time(e.End)}
}

// at returns the index of the phase at now.
func (p Plan) at(now int64) int {
	i := len(p) - 1
	for i > 0 && p[i].From > now {
		i--
	}
	return i
}

// At returns the phase at now.
func (p Plan) At(now int64) Phase { return p[p.at(now)] }

// Next returns when the next phase after now begins, 0 for never.
func (p Plan) Next(now int64) int64 {
	if i := p.at(now) + 1; i < len(p) {
		return p[i].From
	}
	return 0
}

// Gathers returns the start and end of each prequeue, in order. Nobody is admitted in them.
func (p Plan) Gathers() (spans [][2]int64) {
	for i := range p {
		if p[i].Kind == Prequeue {
			spans = append(spans, [2]int64{p[i].From, p[i+1].From})
		}
	}
	return spans
}

// In returns s in a phase of its plan. In a prequeue the method is fifo, not the event's.
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

// During returns s in force at now with a clock uncertainty of bound: in the current phase, but with the smallest
// limits of all phases that may be current. closed reports whether one of these may be a prequeue.
func (s Settings) During(p Plan, now int64, bound time.Duration) (out Settings, on Phase, closed bool) {
	off := bound.Milliseconds()
	on = p.At(now)
	out = s.In(on)
	for _, q := range p[p.at(now-off) : p.at(now+off)+1] {
		in := s.In(q)
		out.limitTo(&in)
		if out.QueueingMethod == MethodPassthrough {
			out.QueueingMethod = in.QueueingMethod
		}
		closed = closed || q.Kind == Prequeue
	}
	return out, on, closed
}

// EachPage yields the names of the room's waiting pages: its own and those of its events.
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

// Pages calls do with a pointer to the name of each waiting page: the room's own and those of its events, "" for none.
// Writes of do change no other copy of s.
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

// checkEvents validates each event, and conflicts between them.
func checkEvents(s *Settings, add func(field, rule string)) {
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
				say(key,
					fmt.Sprintf("must not lie so that the event overlaps another one of the room: %q is from %s to %s", o.Name,
						showMoment(o.begins()), showMoment(o.End)))
			}
		}
	}
}

// check validates the event by itself.
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
		add("event_end_time",
			fmt.Sprintf("must be %s or more after event_start_time, got %s", short(MinEvent), showMoment(e.End)))
	}
	if e.Prequeue != 0 && moment("prequeue_start_time", e.Prequeue) && started &&
		e.Start-e.Prequeue < MinPrequeue.Milliseconds() {
		add("prequeue_start_time",
			fmt.Sprintf("must be %s or more before event_start_time, got %s", short(MinPrequeue), showMoment(e.Prequeue)))
	}
	if e.Shuffle && e.Prequeue == 0 {
		add("shuffle_at_event_start", "must be false without prequeue_start_time: the draw needs a pre-queue")
	}
	if e.Created < 0 || e.Changed < 0 {
		add("changed", "must be a time")
	}
}

// showMoment formats a time for operators.
func showMoment(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }

// Override makes the event override t by its value in s. A zero value other than false removes the override.
func (e *Event) Override(t *Setting, s *Settings) {
	e.Inherit(t)
	if _, truth := t.Field(s).(*bool); !truth && t.IsZero(s) {
		return
	}
	if e.Overrides == nil {
		e.Overrides = Overrides{}
	}
	e.Overrides[t.Key] = t.Value(s)
}

// Inherit removes the override of t.
func (e *Event) Inherit(t *Setting) {
	e.Overrides = maps.Clone(e.Overrides)
	delete(e.Overrides, t.Key)
}
