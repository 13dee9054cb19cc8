package wire

import (
	"time"

	"vestibule/internal/core/fleettime"
)

// Forms is a set of forms of messages. A form is something that a node of an older release would refuse or misread, as
// opposed to a new field, which it ignores. Every report and grant names the forms that its sender reads, and a form is
// written only to a receiver that named it: see [Reader].
type Forms uint64

// The forms, a bit each. Bits are given out in order and never reused.
const (
	// Extended are tickets with flags and fields of a newer release: see package ticket.
	Extended Forms = 1 << iota

	// Memberships are [Report.Membership] and [Grant.Membership]: without it, a coordinator grants permits to a data centre
	// under any membership.
	Memberships

	// Moves are sessions that change data centres with their permits: marks and transfers.
	Moves

	formsEnd
)

// Read are the forms that this release reads.
const Read = formsEnd - 1

// FormsFor is how long a receiver's word holds. A receiver of an older release may take the place of another at any time,
// and it would not answer a message that it cannot read.
const FormsFor = 2 * time.Second

// Reader is what a receiver said that it reads. The zero Reader reads no form.
type Reader struct {
	forms Forms
	at    fleettime.Mono
}

// Said records the forms named in a message that was received at now.
func (r *Reader) Said(now fleettime.Mono, f Forms) { r.forms, r.at = f, now }

// Reads reports whether a form may be written to the receiver at now. A sender writes what an older release reads
// otherwise.
func (r *Reader) Reads(now fleettime.Mono, f Forms) bool {
	return r.forms&f == f && now.Sub(r.at) <= FormsFor
}

// Names reports whether the receiver named a form when it was last heard: for a message that no other process acts on,
// since it names the instance or the term.
func (r *Reader) Names(f Forms) bool { return r.forms&f == f }
