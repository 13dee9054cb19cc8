package admission

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
)

// Verdict is what happens to a request.
type Verdict uint8

// The zero Verdict is Queue: whatever is not decided otherwise queues.
const (
	Queue Verdict = iota // show the waiting page
	Serve                // hand to the origin: the visitor has a session
	Admit                // hand to the origin: the visitor just got a session
	Hold                 // keep the request open: see Engine.Hold
	verdicts
)

var verdictNames = [verdicts]string{"queue", "serve", "admit", "hold"}

func (v Verdict) String() string { return verdictNames[v] }

// How many verdicts and reasons there are.
const (
	NumVerdicts = int(verdicts)
	NumReasons  = int(reasons)
)

// Verdicts lists every verdict, for metrics.
func Verdicts() []Verdict { return []Verdict{Queue, Serve, Admit, Hold} }

// Reason is why a decision fell as it did. The set is closed: it labels
// metrics.
type Reason uint8

// The reasons.
const (
	None       Reason = iota
	Session           // the ticket holds a valid session
	Slot              // a slot was free
	Repeated          // the same ticket was admitted a moment ago; it was not charged again
	Behind            // people who joined earlier go first
	Full              // no right in hand: no slot is free, or not here
	Isolated          // the edge has no lease: it cannot know what others do
	Unsure            // the edge does not know fleet time well enough
	Unknown           // the edge does not know the room
	Crowded           // as many requests as the edge may hold are held already
	GaveUp            // held as long as may be, without a right
	Closed            // the edge is isolated, and the room is closed then
	Uncounted         // the edge is isolated, and the room is open then: let in without a right
	OriginDown        // the site does not answer: nobody is let in until it does
	Drains            // the data centre leaves the fleet, or is not part of it: nobody is let in here
	FirstTouch        // somebody new, by a request that is no visit yet: the next one may enter
	QueuedAll         // an operator lets nobody in: everybody waits
	Rejected          // nobody new enters or waits
	Gathering         // people gather for an event that has not started
	reasons
)

var reasonNames = [reasons]string{
	"none", "session", "slot", "repeated", "behind", "full", "isolated",
	"unsure", "unknown", "crowded", "gave_up", "closed", "uncounted", "origin_down", "drains", "first_touch", "queued_all", "rejected", "gathering",
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

// Fresh is why a visitor who brought a ticket was given a new place.
type Fresh uint8

// What became of the ticket.
const (
	Kept      Fresh = iota // the ticket that was brought is the one in the decision
	Newcomer               // no ticket was brought
	Expired                // the session it held had ended
	Lost                   // its visitor was not there for longer than the grace
	Void                   // the room's epoch has changed
	Gone                   // the visitor left, or was put out
	Copied                 // somebody else goes on with a copy of the session's ticket
	Elsewhere              // the session is bound to another network
)

// Decision is what the engine answers for one request. It is a plain value:
// equal engines and equal requests give equal decisions.
type Decision struct {
	Verdict Verdict
	Reason  Reason
	Fresh   Fresh
	Counted bool          // who waits was not counted here before
	Reseal  bool          // Ticket differs from the one that was brought
	Ticket  ticket.Ticket // what the visitor carries from now on

	// For visitors who are not let in.
	Counting bool          // how many stand in front is not known yet: Ahead is who was counted so far, and nothing is forecast
	Next     bool          // let in within seconds
	Ahead    uint64        // people without a slot who stand in front
	Waiting  uint64        // people waiting in the room
	Wait     time.Duration // estimated, 0 if unknown
	Low      time.Duration // four of five waits that are estimated so lie between Low
	High     time.Duration // and High
	Longer   bool          // the wait that is told was raised in the last minutes: the page says so
	Known    bool          // there is an estimate

	// Where chance decides who is next, Ahead is 0, Wait is the median, and
	Called    bool             // says that chance has called the visitor, who enters with the next slots; and
	Quartiles [3]time.Duration // so long wait the fastest 25, 50 and 75 of a hundred at most; 0 where that is not so, or unknown

	Retry time.Duration // come back after; also how long a Hold may last
}

// Enters reports whether the request goes to the origin.
func (d *Decision) Enters() bool { return d.Verdict == Serve || d.Verdict == Admit }

// Outcome returns what was forecast to a visitor who has just been admitted, and
// how long it took; ok is false for everybody else.
func (d *Decision) Outcome() (forecast, actual time.Duration, ok bool) {
	t := &d.Ticket
	if d.Verdict != Admit || d.Reason != Slot || t.Forecast == 0 || !t.Waited() {
		return 0, 0, false
	}
	return time.Duration(t.Forecast) * time.Second, max(0, (fleettime.Time(t.Admitted) * 1000).Sub(t.Joined)), true
}
