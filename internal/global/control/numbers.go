package control

import (
	"context"
	"time"

	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
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

// History has the points of rooms.
type History interface {
	// Points calls each with the points of a room in the order of time, from the newest one up to from, to to, at steps of
	// at most step seconds.
	Points(ctx context.Context, id room.ID, from, to, step int64, each func([]history.Point)) error
}
