package admission

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
)

// Verdict is the action for a request.
type Verdict uint8

// The zero Verdict is Queue, the default.
const (
	Queue Verdict = iota // show the waiting page
	Serve                // pass on to the origin: the visitor has a session
	Admit                // pass on to the origin: the visitor just got a session
	Hold                 // keep the request open: see Rooms.Hold
	verdicts
)

var verdictNames = [verdicts]string{"queue", "serve", "admit", "hold"}

func (v Verdict) String() string { return verdictNames[v] }

// Numbers of verdicts and reasons.
const (
	NumVerdicts = int(verdicts)
	NumReasons  = int(reasons)
)

// Verdicts lists every verdict, for metrics.
func Verdicts() []Verdict { return []Verdict{Queue, Serve, Admit, Hold} }

// Reason is the reason for a verdict. The set is closed: it labels metrics.
type Reason uint8

// Reasons.
const (
	None       Reason = iota
	Session           // the ticket holds a valid session
	Permit            // a session permit was free
	Repeated          // the same ticket was admitted just before; not charged again
	Behind            // visitors that joined earlier go first
	Full              // no unspent permit: none is free, or none here
	Isolated          // the edge has no lease
	Unsure            // the edge's clock uncertainty is too large
	Unknown           // the room is unknown
	Crowded           // the edge holds the maximum number of requests
	GaveUp            // held for the maximum time without a permit
	Closed            // the edge is isolated, and the room closes on isolation
	Uncounted         // the edge is isolated, and the room opens on isolation: admitted without a permit
	OriginDown        // the origin does not respond: admissions stop until it does
	Drains            // the data centre drains or is not a member: no admissions here
	FirstTouch        // a first request that is no page visit; the next one may enter
	QueuedAll         // an operator stopped admissions: every visitor waits
	Rejected          // nobody new enters or waits
	Gathering         // visitors gather for an event that has not started
	reasons
)

var reasonNames = [reasons]string{
	"none", "session", "permit", "repeated", "behind", "full", "isolated",
	"unsure", "unknown", "crowded", "gave_up", "closed", "uncounted", "origin_down", "drains", "first_touch", "queued_all",
	"rejected", "gathering",
}

func (r Reason) String() string { return reasonNames[r] }

// Reasons lists every reason, for metrics.
func Reasons() []Reason {
	out := make([]Reason, reasons)
	for i := range out {
		out[i] = Reason(i)
	}
	return out
}

// Fresh is the reason for a new place in place of the ticket brought.
type Fresh uint8

// Results for the ticket.
const (
	Kept      Fresh = iota // the decision continues the ticket
	Newcomer               // no ticket was brought
	Expired                // the session has expired
	Lost                   // the visitor was away longer than the grace period
	Void                   // the room's epoch has changed
	Gone                   // the visitor left or was removed
	Copied                 // another client continues the session with a copy of the ticket
	Elsewhere              // the session is bound to another network
	Underway               // another request of the place was just answered with a session: ask again
)

// Decision is the engine's answer to one request. It is a plain value: equal engines and equal requests give equal
// decisions.
type Decision struct {
	Verdict   Verdict
	Reason    Reason
	Fresh     Fresh
	brought   placeVersion  // that the visitor has
	Counted   bool          // the visitor waits and was not counted here before
	Reseal    bool          // Ticket differs from the one brought
	Unrenewed bool          // a session's renewal is due and not allowed: the ticket stays as it is
	Brief     bool          // it may end before its duration, and may be renewed in a moment
	Moving    bool          // it is to come here from another data centre: its ticket serves beyond its expiry then
	Ticket    ticket.Ticket // the visitor's ticket from now on

	// For visitors that wait.
	Counting bool          // the position is not known yet: Ahead counts the visitors so far, without a forecast
	Next     bool          // admission within seconds
	Ahead    uint64        // visitors in front without a session permit
	Waiting  uint64        // visitors waiting in the room
	Wait     time.Duration // estimate, 0 if unknown
	Low      time.Duration // lower bound of the range that covers four of five waits
	High     time.Duration // upper bound
	Longer   bool          // the shown wait was raised in the last minutes; the page says so
	Known    bool          // there is an estimate

	// In a random room Ahead is 0, Wait is the median, and
	Called    bool             // reports that the visitor was called and enters with the next permits;
	Quartiles [3]time.Duration // longest waits of the fastest 25, 50 and 75 percent; 0 in other rooms, or if unknown

	Retry time.Duration // when to ask again; also the maximum time of a Hold
}

// Enters reports whether the request goes to the origin.
func (d *Decision) Enters() bool { return d.Verdict == Serve || d.Verdict == Admit }

// Outcome returns the forecast and the actual wait of a visitor that has just been admitted; ok is false for
// others.
func (d *Decision) Outcome() (forecast, actual time.Duration, ok bool) {
	t := &d.Ticket
	if d.Verdict != Admit || d.Reason != Permit || t.Forecast == 0 || !t.Waited() {
		return 0, 0, false
	}
	return time.Duration(t.Forecast) * time.Second, max(0, (fleettime.Time(t.Admitted) * 1000).Sub(t.Joined)), true
}
