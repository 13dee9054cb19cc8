package page

import (
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
)

// Visitor is what one visitor is told.
type Visitor struct {
	Decision admission.Decision
	Now      fleettime.Time
	Grace    time.Duration // for which the place is kept
	Lang     Lang
	Room     string // its name
	Method   string // queueing method of the room, "" for fifo
	Message  string // from the operator to everybody who waits
	QueueAll bool   // the operator lets nobody in
	Event    Event
	Left     bool   // the visitor has just left the line
	Moment   bool   // nothing can be told yet, not even whether the visitor has a place
	Blocked  bool   // the browser keeps no cookies, so it keeps no place
	Back     string // where the line can be joined again
	Nonce    string // of the scripts of a custom page, in base64url; "" for none
}

// Event is what a visitor is told of a scheduled event. The zero value is none.
type Event struct {
	Start, End fleettime.Time // 0 for no event
	Prequeue   bool           // it has not started, and visitors gather already
	Shuffle    bool           // at the start those who gathered are put in random order
	Draw       Draw           // by which they are, where that is known
}

// Draw is what a visitor is told of the draw of an event. The zero value is none.
type Draw struct {
	Commit   string         // to its secret, in hexadecimal digits: everybody can check by it that nobody steered the draw
	Closes   fleettime.Time // who has joined before takes part
	Drawn    bool           // its record is public
	Counted  fleettime.Time // from then on the people in front are counted by their drawn places; 0 before the record is public
	Entrants uint64         // of the record
}

// settles is how long after the record of a draw is public the people in front are counted by their drawn places:
// everybody is told by [Draw.Asks] to ask within that time, and edges report their counts.
const settles = 13 * time.Second

// SettlesAt sets from when on places of the draw are told, by when its record was published.
func (d *Draw) SettlesAt(published fleettime.Time) { d.Counted = published.Add(settles) }

// Stages of a draw for a visitor. The set is closed: it is part of the JSON that apps read.
const (
	DrawOpen   = "open"   // entries have not closed
	DrawMaking = "making" // they have, and nobody has a place yet
	DrawLate   = "late"   // the visitor joined after that, behind everybody drawn
	DrawPlaced = "placed" // the visitor's place was drawn
)

// stage returns how far the draw is for the visitor, "" where there is none.
func (v *Visitor) stage() string {
	d := &v.Event.Draw
	switch {
	case d.Closes == 0 || v.Moment:
		return ""
	case v.Decision.Ticket.Joined >= d.Closes:
		return DrawLate
	case v.Now < d.Closes:
		return DrawOpen
	case d.Drawn && v.Decision.Ticket.Place() != v.Decision.Ticket.Joined:
		return DrawPlaced
	}
	return DrawMaking
}

// ahead returns how many people stand in front, and whether that may be told: not before a draw, which gives everybody
// another place.
func (v *Visitor) ahead() (n uint64, told bool) {
	switch v.stage() {
	case DrawLate: // everybody from before the close stands in front, in any order
		return v.Decision.Ahead, true
	case DrawPlaced:
		if !v.Event.Prequeue || v.Now >= v.Event.Draw.Counted {
			return v.Decision.Ahead, true
		}
	case "":
		if !v.Event.Prequeue || !v.Event.Shuffle {
			return v.Decision.Ahead, true
		}
	}
	return 0, false
}

// drawnPlace returns the visitor's place in a draw, and the number of entrants; ok is false where
// that is not known, and once the event has begun, when the place changes.
func (v *Visitor) drawnPlace() (place, of uint64, ok bool) {
	ahead, told := v.ahead()
	if !told || v.State() != Before || v.stage() != DrawPlaced {
		return 0, 0, false
	}
	return ahead + 1, max(ahead+1, v.Event.Draw.Entrants), true
}

// Asks returns the time until a visitor is to ask again, at most wait but for jitter: once places of a draw can be given,
// once they are known, and at the start. jitter is a number of 0 to 1 by chance, so that not all ask at once.
func (e *Event) Asks(now fleettime.Time, wait time.Duration, jitter float64) time.Duration {
	if !e.Prequeue || wait == 0 {
		return wait
	}
	at, over := e.Start, 8.0 // seconds
	switch d := &e.Draw; {
	case d.Closes == 0:
	case !d.Drawn:
		if now >= d.Closes { // nobody may be late for the record: see draw.Settle
			return wait
		}
		at, over = d.Closes.Add(3*time.Second), 6
	case now < d.Counted:
		at, over = d.Counted, 4
	}
	left := at.Sub(now)
	if left <= 0 || left >= wait {
		return wait
	}
	return left + time.Duration(jitter*over*float64(time.Second))
}

// appendProof writes the proof of the draw for the visitor: the receipt, as package draw reads it, or before there is
// one the commit.
func (v *Visitor) appendProof(dst []byte) []byte {
	if v.stage() == DrawPlaced {
		return v.appendReceipt(dst)
	}
	return append(append(append(dst, `{"commit":"`...), v.Event.Draw.Commit...), `"}`...)
}

// appendReceipt writes what the visitor keeps of the draw, as package draw reads it.
func (v *Visitor) appendReceipt(dst []byte) []byte {
	t := &v.Decision.Ticket
	dst = append(append(append(dst, `{"commit":"`...), v.Event.Draw.Commit...), `","ticket":"`...)
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[t.ID>>shift&15])
	}
	dst = appendMoment(append(dst, `","joined":"`...), t.Joined)
	return append(appendMoment(append(dst, `","place":"`...), t.Place()), `"}`...)
}

// State is what the page is about. The set is closed: it names messages, and is
// part of the JSON that apps read.
type State uint8

// The states of a visitor.
const (
	Queued   State = iota // people stand in front
	Next                  // let in within seconds
	Entering              // the turn has come
	Paused                // nobody is let in, for a reason that is not the line
	Closed                // nobody is let in, and there is no line
	Before                // the event has not started
	Left                  // the visitor gave the place up
	Moment                // nothing can be told yet
	Blocked               // the browser keeps no cookies
	states
)

var stateNames = [states]string{"queued", "next", "entering", "paused", "closed", "before", "left", "moment", "blocked"}

func (s State) String() string { return stateNames[s] }

// State returns what the page is about.
func (v *Visitor) State() State {
	switch {
	case v.Moment:
		return Moment
	case v.Left:
		return Left
	case v.Decision.Enters():
		return Entering
	case v.Decision.Reason == admission.Closed, v.method() == "reject":
		return Closed
	case v.Blocked:
		return Blocked
	case v.Event.Prequeue:
		return Before
	case v.pausedBy() != "":
		return Paused
	case v.Decision.Next:
		return Next
	}
	return Queued
}

// Who or what lets nobody in. The set is closed: it names messages, and is part of
// the JSON that apps read.
const (
	PausedBySystem   = "system"
	PausedByOperator = "operator"
	PausedBySite     = "site"
)

// pausedBy returns who or what lets nobody in, "" for nobody.
func (v *Visitor) pausedBy() string {
	switch v.Decision.Reason {
	case admission.OriginDown:
		return PausedBySite
	case admission.Isolated, admission.Unsure, admission.Unknown, admission.Drains:
		return PausedBySystem
	default:
	}
	if v.QueueAll {
		return PausedByOperator
	}
	return ""
}

// lost returns what became of the place that the visitor had, "" for nothing.
func (v *Visitor) lost() string {
	switch v.Decision.Fresh {
	case admission.Expired, admission.Copied, admission.Elsewhere:
		return "expired"
	case admission.Lost:
		return "away"
	case admission.Void:
		return "void"
	case admission.Gone:
		return "left"
	case admission.Kept, admission.Newcomer:
	}
	return ""
}

// waits reports whether the visitor has a place whose numbers mean something.
func (v *Visitor) waits() bool { s := v.State(); return s == Queued || s == Next }

// known reports whether there is an estimate that may be shown.
func (v *Visitor) known() bool { return v.Decision.Known && v.waits() }

// counting reports whether the visitor is to be told that the place is being counted.
func (v *Visitor) counting() bool { return v.State() == Queued && v.Decision.Counting }

// wait returns the estimate, 0 where none may be shown.
func (v *Visitor) wait() time.Duration {
	if !v.known() {
		return 0
	}
	return v.Decision.Wait
}

// span returns between what the wait will lie: both are the estimate itself
// where there is no range, and 0 where there is no estimate.
func (v *Visitor) span() (low, high time.Duration) {
	if d := &v.Decision; v.known() && d.High > 0 {
		return d.Low, d.High
	}
	return v.wait(), v.wait()
}

// longer reports whether the page is to say that the wait has grown.
func (v *Visitor) longer() bool { return v.State() == Queued && v.known() && v.Decision.Longer }

// shownPause returns what the page gives for the reason of a pause.
func (v *Visitor) shownPause() string {
	if v.State() != Paused {
		return ""
	}
	return v.pausedBy()
}

func (v *Visitor) method() string {
	if v.Method == "" {
		return "fifo"
	}
	return v.Method
}

// lots reports whether chance decides who is next, so that there is no place to tell.
func (v *Visitor) lots() bool { return v.method() == room.MethodRandom }

// quartile returns for how long the fastest 25, 50 or 75 of a hundred wait at most, by k of 0 to 2; 0 where that is not told.
func (v *Visitor) quartile(k int) time.Duration {
	if !v.lots() || !v.known() {
		return 0
	}
	return v.Decision.Quartiles[k]
}

// total returns how many people wait. The visitor is one of them, also where the
// count is older than the visit.
func (v *Visitor) total() uint64 { return max(v.Decision.Waiting, v.Decision.Ahead+1) }

// waited returns for how long the visitor has been in line.
func (v *Visitor) waited() time.Duration { return max(0, v.Now.Sub(v.Decision.Ticket.Joined)) }

// progress returns the share of the wait that is over, in percent, and whether
// it is known: the time waited against that time and what is still to come.
func (v *Visitor) progress() (percent int, ok bool) {
	if !v.known() || v.State() != Queued || v.lots() {
		return 0, false
	}
	done := v.waited()
	return int(100 * done.Seconds() / max(1, (done+v.Decision.Wait).Seconds())), true
}

// Retry returns after how many seconds to ask again, 0 for never.
func (v *Visitor) Retry() int64 {
	if v.Left {
		return 0
	}
	return max(1, int64((v.Decision.Retry+time.Second-1)/time.Second))
}
