package notices

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/fleettime"
)

// delays are the times from a failed attempt to the next one. After the last one the notice is given up.
var delays = [...]time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour,
}

const (
	// offAfter is how long a target may fail without a success before it is turned off.
	offAfter = 5 * 24 * time.Hour

	// maxPending bounds the undelivered notices of a target. The oldest is dropped for a new one.
	maxPending = 500

	// maxRetryAfter bounds the delay that a receiver may ask for.
	maxRetryAfter = 24 * time.Hour

	maxError = 200 // bytes
)

// Outbox holds the undelivered notices of each target. The zero value is empty.
type Outbox struct {
	Notices map[string]*Notice `json:"notices"` // by ID
	Queues  map[string]*Queue  `json:"queues"`  // by target
}

// Queue holds the undelivered notices of one target.
type Queue struct {
	Items   []Item         `json:"items"`             // the oldest first
	Failing fleettime.Time `json:"failing,omitempty"` // first failure since the last success, 0 for none
	Error   string         `json:"error,omitempty"`   // of the newest attempt
}

// Item is an undelivered notice.
type Item struct {
	ID    string         `json:"id"`
	Tries int            `json:"tries,omitempty"` // failed ones
	Next  fleettime.Time `json:"next"`            // time of the next one
}

// Result is the outcome of an attempt.
type Result struct {
	Err        error // nil if the notice is delivered
	Status     int   // of the answer, 0 for none
	Gone       bool  // the receiver wants no more
	RetryAfter time.Duration
}

// Outcome is the result of an attempt.
type Outcome int

// The outcomes.
const (
	Delivered Outcome = iota
	Retry
	GivenUp
	TurnOff // the target must be turned off; its notices stay until it is
)

// Results are the texts of the outcomes, and that of a notice for which there is no space.
var Results = []string{"delivered", "retry", "given_up", "turned_off", dropped}

const dropped = "dropped"

// String implements [fmt.Stringer].
func (o Outcome) String() string { return Results[o] }

// Keep makes the targets those that exist, and forgets the notices of all others. It reports whether that changed
// anything.
func (o *Outbox) Keep(targets []string) (changed bool) {
	for id := range o.Queues {
		if !slices.Contains(targets, id) {
			delete(o.Queues, id)
			changed = true
		}
	}
	for _, id := range targets {
		if o.Queues[id] == nil {
			if o.Queues == nil {
				o.Queues = map[string]*Queue{}
			}
			o.Queues[id], changed = &Queue{}, true
		}
	}
	o.sweep()
	return changed
}

// Add queues a notice for a target. It returns the number of dropped notices, the oldest.
func (o *Outbox) Add(now fleettime.Time, target string, n *Notice) (lost int) {
	q := o.Queues[target]
	if slices.ContainsFunc(q.Items, func(i Item) bool { return i.ID == n.ID }) {
		return 0
	}
	if o.Notices == nil {
		o.Notices = map[string]*Notice{}
	}
	o.Notices[n.ID] = n
	q.Items = append(q.Items, Item{ID: n.ID, Next: now})
	if lost = len(q.Items) - maxPending; lost > 0 {
		q.Items = slices.Delete(q.Items, 0, lost)
		o.sweep()
		return lost
	}
	return 0
}

// Due returns a notice of a target with a due attempt, nil for none.
func (o *Outbox) Due(now fleettime.Time, target string) *Notice {
	q := o.Queues[target]
	if q == nil {
		return nil
	}
	var first *Item
	for i := range q.Items {
		if it := &q.Items[i]; it.Next <= now && (first == nil || it.Next < first.Next) {
			first = it
		}
	}
	if first == nil {
		return nil
	}
	return o.Notices[first.ID]
}

// Done takes the result of an attempt.
func (o *Outbox) Done(now fleettime.Time, target, id string, r Result, random *rand.Rand) Outcome {
	q := o.Queues[target]
	if q == nil {
		return GivenUp // the target is gone
	}
	i := slices.IndexFunc(q.Items, func(i Item) bool { return i.ID == id })
	if r.Err == nil {
		q.Failing, q.Error = 0, ""
		if i >= 0 {
			o.remove(q, i)
		}
		return Delivered
	}
	if q.Error = cut(r.Err.Error(), maxError); q.Failing == 0 {
		q.Failing = now
	}
	switch {
	case i < 0:
		return GivenUp // dropped meanwhile
	case r.Gone || now.Sub(q.Failing) >= offAfter:
		q.Items[i].Next = now.Add(delays[0]) // unless it is off by then
		return TurnOff
	case q.Items[i].Tries >= len(delays):
		o.remove(q, i)
		return GivenUp
	}
	it := &q.Items[i]
	wait := delays[it.Tries]
	wait += time.Duration(random.Int64N(int64(wait)/5 + 1)) // targets that failed together must not be asked together
	it.Next = now.Add(max(wait, min(r.RetryAfter, maxRetryAfter)))
	it.Tries++
	return Retry
}

func (o *Outbox) remove(q *Queue, i int) {
	q.Items = slices.Delete(q.Items, i, i+1)
	o.sweep()
}

// sweep forgets the notices that no target waits for.
func (o *Outbox) sweep() {
	wanted := make(map[string]bool, len(o.Notices))
	for _, q := range o.Queues {
		for _, i := range q.Items {
			wanted[i.ID] = true
		}
	}
	maps.DeleteFunc(o.Notices, func(id string, _ *Notice) bool { return !wanted[id] })
}

// cut returns the beginning of a text, of at most n bytes, with all of its characters whole.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
