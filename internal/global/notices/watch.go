package notices

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
)

// Seen is the state of rooms and fleet at one moment.
type Seen struct {
	Rooms  []Room
	Alarms []string // of all globals
}

// Room is the state of a room at one moment.
type Room struct {
	ID, Name string
	Limits
	Complete   bool // Waiting counts every data centre
	Waiting    int
	Wait       float64 // of a visitor that joins now, in seconds; negative for unknown
	Overcommit int64
	Origin     Origin

	SiteDown int    // edges at which the site does not answer
	SiteGone bool   // they are all of the fleet
	Site     string // which edges, in words

	// Places up to which a room with web_push has called its visitors, and will within about five minutes; 0 for none.
	Called, Soon fleettime.Time

	Controlled bool     // the controls are known: Pause and Release
	Pause      *Pause   // nil for none
	Release    *Release // the newest of the pause, nil for none
	Events     []Event
}

// Pause is a pause in force.
type Pause struct {
	Since      fleettime.Time
	By, Reason string
}

// Release is a release of visitors.
type Release struct {
	ID     uint64
	People int
	LetIn  int // negative for unknown
	Over   bool
}

// Origin is the traffic of a room's site in the last minute.
type Origin struct {
	Requests, Errors int64
	P95              time.Duration // of answers
}

// The times after which a change gets a notice. Shorter ones get none.
const (
	queueingAfter, clearAfter     = 10 * time.Second, time.Minute
	calledEvery                   = time.Minute
	limitsAfter                   = 5 * time.Second // near an event's start, the smaller limits hold for a moment
	overcommitAfter, coveredAfter = 5 * time.Second, time.Minute
	downAfter, upAfter            = 500 * time.Millisecond, 2 * time.Second
	slowAfter, recoveredAfter     = 30 * time.Second, 2 * time.Minute
	alarmAfter, alarmOverAfter    = 10 * time.Second, time.Minute
)

// A site is slow above slowP95 or failingShare, and well below goodP95 and goodShare. Fewer requests than slowRequests
// say neither.
const (
	slowP95      = 2500 * time.Millisecond
	goodP95      = 2 * time.Second
	failingShare = 0.10
	goodShare    = 0.05
	slowRequests = 20
)

// maxAlarms bounds the alarms that are followed. Of more, the last in order get no notice.
const maxAlarms = 100

// Watch is the state of the notices sent. The zero value has sent none. The exported fields are stored; the others say
// since when a state differs from the last notice, and begin anew at a new leader.
type Watch struct {
	Rooms  map[string]*roomWatch  `json:"rooms"`  // by [Room.ID]
	Alarms map[string]*alarmWatch `json:"alarms"` // by [alarmKey]

	changed bool // since the last store
	due     []Notice
}

type roomWatch struct {
	Limits     Limits                 `json:"l"`
	Queueing   level                  `json:"q,omitzero"`
	Overcommit level                  `json:"o,omitzero"`
	Slow       level                  `json:"s,omitzero"`
	Down       level                  `json:"u,omitzero"`  // the site, for some edges
	Gone       level                  `json:"g,omitzero"`  // the site, for all
	Called     fleettime.Time         `json:"c,omitempty"` // place up to which visitors were called
	Pause      fleettime.Time         `json:"p,omitempty"` // beginning of the pause of the last notice, 0 for none
	Release    uint64                 `json:"r,omitempty"` // newest release seen, 0 for none
	Released   bool                   `json:"d,omitempty"` // it is over
	Events     map[string]*eventWatch `json:"e,omitempty"` // by ID

	next      Limits         // that differ from Limits
	nextSince fleettime.Time // 0 for none
	calledAt  fleettime.Time // when Called was sent
}

type alarmWatch struct {
	level
	Text string `json:"text"`
}

// level is a state with hysteresis.
type level struct {
	Since fleettime.Time `json:"t"` // beginning of the state of the last notice, 0 for none
	from  fleettime.Time // since when the state differs from the last notice, 0 if it does not
}

// step follows the state: on, off, or neither, which changes nothing. It returns the beginning of a state that has
// begun or ended.
func (l *level) step(now fleettime.Time, on, off bool, after, quiet time.Duration) (began, ended fleettime.Time) {
	wait, differs := after, on
	if l.Since != 0 {
		wait, differs = quiet, off
	}
	switch {
	case !differs:
		l.from = 0
	case l.from == 0:
		l.from = now
	case now.Sub(l.from) < wait:
	case l.Since != 0:
		ended = l.Since
		l.Since, l.from = 0, 0
	default:
		began = l.from
		l.Since, l.from = l.from, 0
	}
	return began, ended
}

// Step compares the state at now with the last notices. It returns the notices that are due; they count as sent from
// now on. changed reports whether the watch has to be stored.
func (w *Watch) Step(now fleettime.Time, seen *Seen) (due []Notice, changed bool) {
	if w.Rooms == nil {
		w.Rooms = map[string]*roomWatch{}
	}
	if w.Alarms == nil {
		w.Alarms = map[string]*alarmWatch{}
	}
	known := make(map[string]bool, len(seen.Rooms))
	for i := range seen.Rooms {
		r := &seen.Rooms[i]
		known[r.ID] = true
		rw := w.Rooms[r.ID]
		if rw == nil {
			rw = &roomWatch{Limits: r.Limits}
			w.Rooms[r.ID], w.changed = rw, true
		}
		w.room(now, r, rw)
	}
	had := len(w.Rooms)
	maps.DeleteFunc(w.Rooms, func(id string, _ *roomWatch) bool { return !known[id] })
	w.changed = w.changed || len(w.Rooms) < had
	w.alarms(now, seen.Alarms)
	due, changed = w.due, w.changed || len(w.due) > 0
	w.due, w.changed = nil, false
	return due, changed
}

func (w *Watch) tell(kind Kind, object, cause string, at fleettime.Time, d Data) {
	w.due = append(w.due, newNotice(kind, object, cause, at, d))
}

func (w *Watch) room(now fleettime.Time, r *Room, rw *roomWatch) {
	w.levels(now, r, rw)
	w.limits(now, r, rw)
	if r.Controlled {
		w.pause(now, r, rw)
		w.release(now, r, rw)
	}
	w.events(now, r, rw)
}

// about returns data about a room.
func (r *Room) about(format string, args ...any) Data {
	return Data{Text: "Room " + r.Name + ": " + fmt.Sprintf(format, args...), RoomID: r.ID, RoomName: r.Name}
}

func (w *Watch) levels(now fleettime.Time, r *Room, rw *roomWatch) {
	gone, _ := rw.Gone.step(now, r.SiteGone, !r.SiteGone && r.Complete, downAfter, upAfter)
	began, ended := rw.Down.step(now, r.SiteDown > 0, r.SiteDown == 0 && r.Complete, downAfter, upAfter)
	if at := max(gone, began); at != 0 { // all edges may lose it one after the other
		d := r.about("%s.", r.Site)
		d.Edges = r.SiteDown
		w.tell(SiteDown, r.ID, causeAt(at), at, d)
	}
	if ended != 0 {
		w.tell(SiteUp, r.ID, causeAt(ended), now, r.about("the site answers again: visitors are admitted."))
	}
	began, ended = rw.Queueing.step(now, r.Waiting > 0, r.Waiting == 0 && r.Complete, queueingAfter, clearAfter)
	if began != 0 {
		d := r.about("visitors wait, %d now.", r.Waiting)
		d.Waiting, d.WaitSeconds = r.Waiting, max(0, r.Wait)
		w.tell(RoomQueueing, r.ID, causeAt(began), began, d)
	}
	if ended != 0 {
		w.tell(RoomClear, r.ID, causeAt(ended), now, r.about("nobody has waited for %v.", clearAfter))
	}
	if rw.Queueing.Since != 0 && r.Called > rw.Called && now.Sub(rw.calledAt) >= calledEvery {
		rw.Called, rw.calledAt = r.Called, now
		d := r.about("visitors with places up to %v are called.", r.Called)
		d.Waiting, d.CalledTo, d.SoonTo = r.Waiting, r.Called.String(), r.Soon.String()
		w.tell(RoomCalled, r.ID, causeAt(r.Called), now, d)
	}
	over, covered := r.Overcommit > 0, r.Overcommit == 0 && r.Complete
	began, ended = rw.Overcommit.step(now, over, covered, overcommitAfter, coveredAfter)
	if began != 0 {
		d := r.about("up to %d sessions more than counted may be valid.", r.Overcommit)
		d.Overcommit = r.Overcommit
		w.tell(Overcommit, r.ID, causeAt(began), began, d)
	}
	if ended != 0 {
		w.tell(OvercommitEnded, r.ID, causeAt(ended), now, r.about("all valid sessions are counted again."))
	}
	o := &r.Origin
	slow := o.Requests >= slowRequests && (o.P95 > slowP95 || o.share() >= failingShare)
	good := o.Requests == 0 || o.Requests >= slowRequests && o.P95 < goodP95 && o.share() < goodShare
	began, ended = rw.Slow.step(now, slow, good, slowAfter, recoveredAfter)
	if began != 0 {
		d := r.about("the site is slow or fails: 95 percent of its answers take up to %v, %.0f percent fail.",
			o.P95.Round(time.Millisecond), 100*o.share())
		d.OriginP95, d.OriginErrors = o.P95.Seconds(), o.share()
		w.tell(OriginSlow, r.ID, causeAt(began), began, d)
	}
	if ended != 0 {
		w.tell(OriginRecovered, r.ID, causeAt(ended), now, r.about("the site answers well again."))
	}
}

// share returns the part of the requests that fail.
func (o *Origin) share() float64 {
	if o.Requests == 0 {
		return 0
	}
	return float64(o.Errors) / float64(o.Requests)
}

func (w *Watch) limits(now fleettime.Time, r *Room, rw *roomWatch) {
	switch {
	case r.Limits == rw.Limits:
		rw.nextSince = 0
	case rw.nextSince == 0 || rw.next != r.Limits:
		rw.next, rw.nextSince = r.Limits, now
	case now.Sub(rw.nextSince) >= limitsAfter:
		before := rw.Limits
		d := r.about("the limits in force are %d sessions and %d admissions per minute; they were %d and %d.",
			r.Total, r.Rate, before.Total, before.Rate)
		d.Before, d.After = &before, &Limits{r.Total, r.Rate}
		w.tell(LimitChanged, r.ID, causeAt(rw.nextSince), rw.nextSince, d)
		rw.Limits, rw.nextSince = r.Limits, 0
	}
}

func (w *Watch) pause(now fleettime.Time, r *Room, rw *roomWatch) {
	switch {
	case r.Pause != nil && rw.Pause == 0:
		d := r.about("it is paused, nobody is admitted.")
		d.By, d.Reason = r.Pause.By, r.Pause.Reason
		w.tell(RoomPaused, r.ID, causeAt(r.Pause.Since), r.Pause.Since, d)
		rw.Pause = r.Pause.Since
	case r.Pause == nil && rw.Pause != 0:
		w.tell(RoomResumed, r.ID, causeAt(rw.Pause), now, r.about("its pause has ended."))
		rw.Pause = 0
	}
}

// release follows the newest release. It ends when all are admitted, or with its pause, or as another one replaces it.
func (w *Watch) release(now fleettime.Time, r *Room, rw *roomWatch) {
	tell := func(d Data) {
		d.ReleaseID = rw.Release
		w.tell(ReleaseDone, r.ID, fmt.Sprint(rw.Release), now, d)
	}
	n := r.Release
	if rw.Release != 0 && (n == nil || n.ID != rw.Release) {
		if !rw.Released {
			tell(r.about("release %d has ended.", rw.Release))
		}
		rw.Release, rw.Released, w.changed = 0, false, true
	}
	if n == nil {
		return
	}
	if rw.Release == 0 {
		rw.Release, w.changed = n.ID, true
	}
	if !n.Over || rw.Released {
		return
	}
	rw.Released = true
	d := r.about("release %d of %d visitors is done.", n.ID, n.People)
	if n.LetIn < n.People {
		d = r.about("release %d of %d visitors was interrupted by a change of the leading global.", n.ID, n.People)
	}
	if d.People = n.People; n.LetIn >= 0 {
		d.LetIn = &n.LetIn
	}
	tell(d)
}

func (w *Watch) alarms(now fleettime.Time, texts []string) {
	on := map[string]string{}
	for _, text := range slices.Sorted(slices.Values(texts)) {
		on[alarmKey(text)] = text
	}
	for _, key := range slices.Sorted(maps.Keys(on)) {
		if w.Alarms[key] == nil && len(w.Alarms) < maxAlarms {
			w.Alarms[key] = &alarmWatch{Text: on[key]}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.Alarms)) {
		a := w.Alarms[key]
		text, raised := on[key]
		if raised {
			a.Text = text
		}
		switch began, ended := a.step(now, raised, !raised, alarmAfter, alarmOverAfter); {
		case began != 0:
			w.tell(AlarmRaised, key, causeAt(began), began, Data{Text: "Alarm: " + a.Text, Alarm: a.Text})
		case ended != 0:
			w.tell(AlarmEnded, key, causeAt(ended), now, Data{Text: "Alarm ended: " + a.Text, Alarm: a.Text})
		}
		if !raised && a.Since == 0 {
			delete(w.Alarms, key)
		}
	}
}
