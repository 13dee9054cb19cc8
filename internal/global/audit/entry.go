// Package audit is the record of who changed what: a chain of entries, of which each has the hash
// of the one before, so that it shows where somebody changed one, took one out, or put one
// elsewhere. It is the history of rooms too: an entry holds a room as it was and as it became.
//
// [Entry] and [Chain] are values, without clock or I/O. [Journal] adds entries to a [Stream], one at a time
// for all writers together: each entry is written only if the one whose hash it has is still
// the newest.
//
// What the chain cannot show by itself: entries that were taken away at its end, and a chain that was written anew
// from some entry on. Whoever notes the number and hash of an entry elsewhere finds both.
package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"vestibule/internal/core/wire"
)

// By is who makes a change.
type By struct {
	ID        string `json:"id,omitempty"`   // of the token, "" for none
	Name      string `json:"name"`           // of the token, or what else made the change
	Role      string `json:"role,omitempty"` // of the token
	From      string `json:"from,omitempty"` // address, or name of the node
	Operation string `json:"operation"`
}

// Entry is one change that was accepted. Its form is in PROTOCOL.md.
type Entry struct {
	Number   uint64 `json:"number"`            // 1 for the first of a stream; entries are numbered without gaps
	Previous string `json:"previous"`          // SHA-256 of the entry before as it is stored, in hex, "" for the first
	Through  uint64 `json:"through,omitempty"` // newest version of the rooms that this entry, or one before it, tells of

	ID     string    `json:"id"`             // of the change
	At     time.Time `json:"at"`             // when it was made
	Late   bool      `json:"late,omitempty"` // added later, by another than who made it
	By     By        `json:"by"`
	Target string    `json:"target,omitempty"` // what was changed that is no room, such as a token; such an entry comes before the change
	Failed string    `json:"failed,omitempty"` // id of an entry before, of which the change was not made

	Base    uint64          `json:"base,omitempty"`    // version of the rooms over which the change was made
	Version uint64          `json:"version,omitempty"` // that it made
	Rooms   []Room          `json:"rooms,omitempty"`
	Hosts   []Host          `json:"hosts,omitempty"`
	Before  json.RawMessage `json:"before,omitempty"` // of the target
	After   json.RawMessage `json:"after,omitempty"`

	Part    int `json:"part,omitempty"` // of so many entries that tell of one change together
	Parts   int `json:"parts,omitempty"`
	Omitted int `json:"omitted,omitempty"` // rooms and hosts that changed and are not told
}

// Room is what became of a room.
type Room struct {
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Before json.RawMessage `json:"before,omitempty"` // a document of rooms with it alone, absent where it was made
	After  json.RawMessage `json:"after,omitempty"`  // absent where it was deleted
}

// Host is what became of the entry of a host.
type Host struct {
	Name   string `json:"name"`
	Before string `json:"before,omitempty"` // the site behind it, "" for none
	After  string `json:"after,omitempty"`
}

// RoomSubject is where entries are published that tell of one room alone.
func RoomSubject(id string) string { return wire.AuditSubject("room." + id) }

// RoomsSubject is where those are that tell of several rooms, or of none.
var RoomsSubject = wire.AuditSubject("rooms")

// Subject is where an entry is published.
func (e *Entry) Subject() string {
	switch {
	case len(e.Rooms) == 1 && e.Parts == 0:
		return RoomSubject(e.Rooms[0].ID)
	case e.Version > 0:
		return RoomsSubject
	}
	return wire.AuditSubject("other")
}

// Hash names an entry by its stored form.
func Hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Chain follows entries from the oldest to the newest. The zero value takes any entry first.
type Chain struct {
	Number  uint64 // of the newest
	Hash    string // of it
	Through uint64
	begun   bool
}

// BrokenError says where a chain is broken.
type BrokenError struct {
	Number uint64 // that the entry has, or should have
	Why    string
}

func (e *BrokenError) Error() string { return fmt.Sprintf("entry %d: %s", e.Number, e.Why) }

// Next takes the next entry as it is stored. gap says that rooms were changed before it and
// nobody told: by a build that does not know this stream, or while it could not be written. The
// error is a [*BrokenError].
func (c *Chain) Next(data []byte) (e Entry, gap string, err error) {
	broken := func(format string, args ...any) (Entry, string, error) {
		return e, "", &BrokenError{cmp.Or(e.Number, c.Number+1), fmt.Sprintf(format, args...)}
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return broken("cannot be read: %v", err)
	}
	switch {
	case e.Number == 0:
		return broken("has no number")
	case !c.begun && e.Number == 1 && e.Previous != "":
		return broken("is the first, and names one before it")
	case c.begun && e.Number != c.Number+1:
		e.Number = c.Number + 1
		return broken("is missing: another one is in its place")
	case c.begun && e.Previous != c.Hash:
		return broken("does not follow the entry before it: that one or this one is not what was written")
	case c.begun && e.Through < c.Through:
		return broken("tells of version %d, after one that told of %d", e.Through, c.Through)
	}
	if c.begun && e.Version > 0 && e.Part <= 1 && c.Through > 0 && e.Base > c.Through {
		gap = fmt.Sprintf("before entry %d: changes of the rooms from version %d to %d have no entry", e.Number, c.Through, e.Base)
	}
	c.begun, c.Number, c.Hash, c.Through = true, e.Number, Hash(data), e.Through
	return e, gap, nil
}
