package control

import (
	"context"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
)

// Numbers is the state of one room according to the leading global. Its JSON is part of the leader's messages, which
// have the other fields once for all rooms.
type Numbers struct {
	Active    int       // sessions
	Waiting   int       // waiting visitors
	Longest   float64   // wait in seconds of the last visitor in the queue; negative if unknown
	PerMinute float64   `json:",omitempty"` // admissions of the last minute
	Beyond    int       `json:",omitempty"` // sessions beyond T
	Complete  bool      // every data centre is heard
	At        time.Time `json:"-"` // when the numbers were read

	Subscribed int `json:"-"` // waiting visitors that will be notified

	Stops []stop.Stop `json:"-"` // why nobody enters, by data centre, or in the whole room

	Release uint64      `json:",omitempty"` // newest release lent by the leader, 0 for none
	LetIn   int         `json:",omitempty"` // visitors admitted by the release
	Leader  room.Lender `json:"-"`          // the leader
}

// LinkFunc makes a one-time link to the console for a token, and returns its path and the end of its validity.
type LinkFunc func(ctx context.Context, token string) (path string, expires time.Time, err error)

// ForgetFunc orders the leading regional of a data centre to forget an edge.
type ForgetFunc func(ctx context.Context, dc string, ask wire.ForgetAsk) (wire.ForgetAnswer, error)

// FindFunc returns the sessions of a data centre with a reference number.
type FindFunc func(ctx context.Context, dc, number string) ([]wire.FoundSession, error)

// clock holds both sources of time.
type clock struct {
	time func() fleettime.Time // fleet time as this node knows it
	now  func() time.Time      // the machine's
}

// fleet returns fleet time in Unix milliseconds.
func (c clock) fleet() int64 { return int64(c.time()) }
