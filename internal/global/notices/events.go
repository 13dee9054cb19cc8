package notices

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/fleettime"
)

// Event is an event of a room that is not suspended.
type Event struct {
	ID, Name string
	Prequeue fleettime.Time // 0 for none
	Start    fleettime.Time
	Opens    fleettime.Time // first admission, later than Start if the draw is late
	End      fleettime.Time
	Drawn    fleettime.Time // publication of the record of its draw, 0 before it and without one
}

// tooLate is how long after its beginning a phase still gets a notice. A fleet may be without a leader for long, and a
// new fleet has sent none.
const tooLate = 15 * time.Minute

// eventWatch is the notices sent about an event.
type eventWatch struct {
	Start fleettime.Time `json:"t"`
	Sent  phase          `json:"k"`
	Name  string         `json:"n"`
}

// phase is a set of phases.
type phase uint8

const (
	didPrequeue phase = 1 << iota
	didDraw
	didStart
	didEnd
)

// step is a phase of an event and its beginning, 0 for none.
type step struct {
	phase
	kind Kind
	at   fleettime.Time
	text string
}

func (e *Event) steps() []step {
	begins := e.Opens
	if begins >= e.End {
		begins = 0 // the record of its draw is missing
	}
	return []step{
		{didPrequeue, EventPrequeue, e.Prequeue, "the prequeue of event %s is open."},
		{didDraw, EventDrawn, e.Drawn, "the draw of event %s is public."},
		{didStart, EventStarted, begins, "event %s has started."},
		{didEnd, EventEnded, e.End, "event %s has ended."},
	}
}

func (w *Watch) events(now fleettime.Time, r *Room, rw *roomWatch) {
	known := map[string]bool{}
	for i := range r.Events {
		e := &r.Events[i]
		if now.Sub(e.End) > tooLate || now < e.first() {
			continue
		}
		known[e.ID] = true
		w.event(now, r, rw, e)
	}
	for _, id := range slices.Sorted(maps.Keys(rw.Events)) {
		if !known[id] {
			w.endEvent(now, r, id, rw.Events[id])
			delete(rw.Events, id)
			w.changed = true
		}
	}
}

// first returns the beginning of the first phase.
func (e *Event) first() fleettime.Time {
	first := e.End
	for _, s := range e.steps() {
		if s.at != 0 {
			first = min(first, s.at)
		}
	}
	return first
}

// endEvent tells the end of an event that began and was removed, moved or suspended since.
func (w *Watch) endEvent(now fleettime.Time, r *Room, id string, ew *eventWatch) {
	if ew.Sent&didStart == 0 || ew.Sent&didEnd != 0 {
		return
	}
	d := r.about("event %s has ended: it was removed, moved or suspended.", ew.Name)
	d.EventID, d.EventName = id, ew.Name
	w.tell(EventEnded, r.ID, eventCause(id, ew.Start), now, d)
}

func eventCause(id string, start fleettime.Time) string { return fmt.Sprintf("%s %d", id, start) }

func (w *Watch) event(now fleettime.Time, r *Room, rw *roomWatch, e *Event) {
	ew := rw.Events[e.ID]
	if ew != nil && ew.Start != e.Start && now < e.Start {
		w.endEvent(now, r, e.ID, ew) // the event takes place again
		ew = nil
	}
	if ew == nil {
		ew = &eventWatch{}
	}
	before := *ew
	ew.Start, ew.Name = e.Start, e.Name
	for _, s := range e.steps() {
		if s.at == 0 || now < s.at || ew.Sent&s.phase != 0 {
			continue
		}
		ew.Sent |= s.phase
		if now.Sub(s.at) > tooLate || s.phase != didEnd && now >= e.End {
			continue
		}
		d := r.about(s.text, e.Name)
		d.EventID, d.EventName = e.ID, e.Name
		w.tell(s.kind, r.ID, eventCause(e.ID, e.Start), s.at, d)
	}
	if *ew == before {
		return
	}
	if rw.Events == nil {
		rw.Events = map[string]*eventWatch{}
	}
	rw.Events[e.ID], w.changed = ew, true
}

// varying are the parts of an alarm's text that change while it lasts: durations and times of day.
var varying = regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?(ms|µs|s|m|h)\b|\b(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\b`)

// alarmKey identifies an alarm while its text varies: the reason after a colon may become another one.
func alarmKey(text string) string {
	text, _, _ = strings.Cut(text, ": ")
	return varying.ReplaceAllString(text, "…")
}
