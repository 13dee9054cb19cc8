package page

import (
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
)

// Visitor is the data of one visitor on the page.
type Visitor struct {
	Decision admission.Decision
	Now      fleettime.Time
	Grace    time.Duration // for which the place is kept
	Lang     Lang
	Room     string // its name
	Method   string // queueing method of the room, "" for fifo
	Message  string // from the operator to all waiting visitors
	QueueAll bool   // the operator stopped admissions
	Event    Event
	Left     bool   // the visitor has just left the queue
	Moment   bool   // nothing is known yet, not even whether the visitor has a place
	Blocked  bool   // the browser blocks cookies, so it has no place
	Form     bool   // the visitor sent a form, which the site has not got
	FormPage string // path of the page with that form, "" for unknown
	Back     string // address for joining the queue again
	Again    string // relative address of the page itself without a fragment, "" for unknown: see [Again]
	Notifies bool   // the room notifies its visitors
	Nonce    string // of the scripts of a custom page, in base64url; or ""
}

// Event is a scheduled event on the page. The zero value is none.
type Event struct {
	Start, End fleettime.Time // 0 for no event
	Prequeue   bool           // it has not started, and visitors gather
	Shuffle    bool           // visitors that gathered get a random order at the start
	Draw       Draw           // the draw of that order, if known
}

// Draw is the draw of an event on the page. The zero value is none.
type Draw struct {
	Commit   string         // to its secret, in hexadecimal digits: proves that the draw was not manipulated
	Closes   fleettime.Time // visitors that joined earlier take part
	Drawn    bool           // its record is public
	Counted  fleettime.Time // since when positions are counted by drawn places; 0 before the record is public
	Entrants uint64         // of the record
}

// Stages of a draw for a visitor. The set is closed: it is part of the JSON API.
const (
	DrawOpen   = "open"   // entries have not closed
	DrawMaking = "making" // entries have closed, and places are not known yet
	DrawLate   = "late"   // the visitor joined after the close, behind all drawn places
	DrawPlaced = "placed" // the visitor's place was drawn
)

// stage returns the stage of the draw for the visitor, or "".
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

// ahead returns the number of visitors in front, and whether to show it: not before a draw, which changes all
// places, and not while it is unknown.
func (v *Visitor) ahead() (n uint64, shown bool) {
	if !v.numbered() {
		return 0, false
	}
	switch v.stage() {
	case DrawLate: // everyone from before the close is in front, in any order
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

// drawnPlace returns the visitor's place in a draw and the number of entrants. It is computed once, when places are
// counted, and kept in the ticket: it is off by the entrants that are not counted at that moment. ok is false if it is
// unknown.
func (v *Visitor) drawnPlace() (place, of uint64, ok bool) {
	place = v.Decision.Ticket.Rank()
	return place, max(place, v.Event.Draw.Entrants), place != 0 && v.stage() == DrawPlaced
}

// appendProof writes the visitor's evidence of the draw: the receipt in the format of package draw, or before it
// the commit.
func appendProof(dst []byte, v *Visitor) []byte {
	if v.stage() == DrawPlaced {
		return appendReceipt(dst, v)
	}
	return append(append(append(dst, `{"commit":"`...), v.Event.Draw.Commit...), `"}`...)
}

// appendReceipt writes the receipt of the draw, in the format of package draw.
func appendReceipt(dst []byte, v *Visitor) []byte {
	t := &v.Decision.Ticket
	dst = append(append(append(dst, `{"commit":"`...), v.Event.Draw.Commit...), `","ticket":"`...)
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, hexDigits[t.ID>>shift&15])
	}
	dst = appendMoment(append(dst, `","joined":"`...), t.Joined)
	return append(appendMoment(append(dst, `","place":"`...), t.Place()), `"}`...)
}

// State is the topic of the page. The set is closed: it names messages, and is part of the JSON API.
type State uint8

// States of a visitor.
const (
	Queued   State = iota // visitors are in front
	Next                  // admission within seconds
	Entering              // the turn has come
	Paused                // admissions are stopped
	Closed                // admissions are stopped, and there is no queue
	Before                // the event has not started
	Left                  // the visitor gave up the place
	Moment                // nothing is known yet
	Blocked               // the browser blocks cookies
	states
)

var stateNames = [states]string{"queued", "next", "entering", "paused", "closed", "before", "left", "moment", "blocked"}

func (s State) String() string { return stateNames[s] }

// StateInLine returns the topic of the page for those that wait in a room by its method, before an event, and by the
// reason for stopped admissions, "" for none: Closed, Before, Paused or Queued. A wait is told with the last one only.
func StateInLine(method string, prequeue bool, stopped string) State {
	switch {
	case method == room.MethodReject:
		return Closed
	case prequeue:
		return Before
	case stopped != "":
		return Paused
	}
	return Queued
}

// State returns the topic of the page.
func (v *Visitor) State() State {
	method := v.method()
	if v.keepsPlace() {
		method = "" // it is as in a pause
	}
	line := StateInLine(method, v.Event.Prequeue, v.pausedBy())
	switch {
	case v.Moment:
		return Moment
	case v.Left:
		return Left
	case v.Decision.Enters():
		return Entering
	case v.Decision.Reason == admission.Closed, line == Closed:
		return Closed
	case v.Blocked:
		return Blocked
	case line == Queued && v.Decision.Next:
		return Next
	}
	return line
}

// Reasons for stopped admissions. The set is closed: it names messages, and is part of the JSON API.
const (
	PausedBySystem   = "system"
	PausedByOperator = "operator"
	PausedBySite     = "site"
)

// PausedBy returns the name of an edge's own reason for stopped admissions, or "".
func PausedBy(why admission.Reason) string {
	switch why {
	case admission.OriginDown:
		return PausedBySite
	case admission.Isolated, admission.Unsure, admission.Unknown, admission.Drains:
		return PausedBySystem
	default:
		return ""
	}
}

// keepsPlace reports whether the room takes no visitors into the line, and this one is in it.
func (v *Visitor) keepsPlace() bool {
	return v.Decision.Reason == admission.Rejected && v.Decision.Fresh == admission.Kept
}

// pausedBy returns the reason for stopped admissions, or "".
func (v *Visitor) pausedBy() string {
	by := PausedBy(v.Decision.Reason)
	if by == "" && (v.QueueAll || v.keepsPlace()) {
		return PausedByOperator
	}
	return by
}

// lost tells why a visitor lost its place.
var lost = [...]string{
	admission.Expired: "expired", admission.Copied: "expired", admission.Elsewhere: "expired", admission.Lost: "away",
	admission.Void: "void", admission.Gone: "left",
}

// known reports whether to show an estimate.
func (v *Visitor) known() bool {
	s := v.State()
	return v.Decision.Known && (s == Queued || s == Next)
}

// counting reports whether the numbers of visitors are not known yet: they are being counted.
func (v *Visitor) counting() bool { return v.hasPlace() && v.Decision.Counting }

// numbered reports whether the numbers of visitors, in front and in total, are known.
func (v *Visitor) numbered() bool {
	return v.hasPlace() && !v.Decision.Counting || v.State() == Entering
}

// hasPlace reports whether the visitor waits, now or later.
func (v *Visitor) hasPlace() bool {
	switch v.State() {
	case Queued, Next, Paused, Before:
		return true
	default:
		return false
	}
}

// wait returns the estimate, or 0 if none is shown.
func (v *Visitor) wait() time.Duration {
	if !v.known() {
		return 0
	}
	return v.Decision.Wait
}

// span returns the range of the wait: twice the estimate without a range, and 0 without an estimate.
func (v *Visitor) span() (low, high time.Duration) {
	if d := &v.Decision; v.known() && d.High > 0 {
		return d.Low, d.High
	}
	return v.wait(), v.wait()
}

// longer reports whether to explain a longer wait.
func (v *Visitor) longer() bool { return v.State() == Queued && v.known() && v.Decision.Longer }

// shownPause returns the reason for a pause on the page.
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

// randomOrder reports whether the order is random, so that there is no position.
func (v *Visitor) randomOrder() bool { return v.method() == room.MethodRandom }

// quartile returns the longest wait of the fastest 25, 50 or 75 percent, for k from 0 to 2, or 0 if not shown.
func (v *Visitor) quartile(k int) time.Duration {
	if !v.randomOrder() || !v.known() {
		return 0
	}
	return v.Decision.Quartiles[k]
}

// total returns the number of waiting visitors, and whether it is known. It includes this one, even if the count is
// older than the visit.
func (v *Visitor) total() (n uint64, known bool) {
	return max(v.Decision.Waiting, v.Decision.Ahead+1), v.numbered()
}

// orUnknown returns a number in JSON: -1 if it is unknown.
func orUnknown(n uint64, known bool) int64 {
	if !known {
		return -1
	}
	return int64(n)
}

// waited returns the time since the visitor joined.
func (v *Visitor) waited() time.Duration { return max(0, v.Now.Sub(v.Decision.Ticket.Joined)) }

// progress returns the elapsed part of the wait in percent, and whether it is known: the time waited over that time
// plus the estimate.
func (v *Visitor) progress() (percent int, ok bool) {
	if !v.known() || v.State() != Queued || v.randomOrder() {
		return 0, false
	}
	done := v.waited()
	return int(100 * done.Seconds() / max(1, (done+v.Decision.Wait).Seconds())), true
}

// Retry returns the seconds until the next request, 0 for never.
func (v *Visitor) Retry() int64 {
	if v.Left {
		return 0
	}
	return max(1, int64((v.Decision.Retry+time.Second-1)/time.Second))
}
