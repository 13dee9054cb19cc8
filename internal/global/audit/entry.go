// Package audit records the author of every change in a hash chain: each entry has the hash of the previous one. So
// the chain reveals an entry that was changed, removed or moved. It is also the history of rooms: an entry holds a
// room before and after a change.
//
// [Entry] and [Chain] are values, without clock or I/O. [Journal] adds entries to a [Stream], one at a time for all
// writers together: each entry is written only if the entry with its previous hash is still the newest.
//
// The chain cannot reveal the removal of its last entries, or a rewrite of all entries from some point on. An external
// record of the number and hash of an entry reveals both.
package audit

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"vestibule/internal/core/wire"
)

// By is the author of a change.
type By struct {
	ID        string `json:"id,omitempty"`   // of the token, "" for none
	Name      string `json:"name"`           // of the token, or of another author
	Role      string `json:"role,omitempty"` // of the token
	From      string `json:"from,omitempty"` // address, or name of the node
	Operation string `json:"operation"`
	Reason    string `json:"reason,omitempty"` // in the author's words
}

// Entry is one accepted change. PROTOCOL.md defines its format.
type Entry struct {
	Number   uint64 `json:"number"`            // 1 for the first of a stream; entries are numbered without gaps
	Previous string `json:"previous"`          // SHA-256 of the previous entry as stored, in hex, "" for the first
	Through  uint64 `json:"through,omitempty"` // newest version of the rooms in this or an earlier entry

	ID   string    `json:"id"`             // of the change
	At   time.Time `json:"at"`             // when it was made
	Late bool      `json:"late,omitempty"` // added later, not by the author
	By   By        `json:"by"`
	// changed object other than a room, such as a token; the entry precedes the change
	Target string `json:"target,omitempty"`
	Failed string `json:"failed,omitempty"` // id of an earlier entry: its change was not made

	Base    uint64          `json:"base,omitempty"`    // version of the rooms before the change
	Version uint64          `json:"version,omitempty"` // version of the rooms after it
	Rooms   []Room          `json:"rooms,omitempty"`
	Hosts   []Host          `json:"hosts,omitempty"`
	Before  json.RawMessage `json:"before,omitempty"` // of the target
	After   json.RawMessage `json:"after,omitempty"`

	Part    int `json:"part,omitempty"` // number of this entry among the Parts entries of one change
	Parts   int `json:"parts,omitempty"`
	Omitted int `json:"omitted,omitempty"` // changed rooms and hosts left out
}

// Of returns an entry about the change of a target that is no room, with a new ID. before and after are encoded in JSON;
// nil for none.
func Of(now time.Time, by By, target string, before, after any) (e Entry, err error) {
	e = Entry{ID: rand.Text()[:16], At: now.UTC(), By: by, Target: target}
	e.Before, err = encode(before)
	if err == nil {
		e.After, err = encode(after)
	}
	return e, err
}

// encode returns a value in JSON, nil for a nil one.
func encode(v any) (json.RawMessage, error) {
	if v == nil || reflect.ValueOf(v).Kind() == reflect.Pointer && reflect.ValueOf(v).IsNil() {
		return nil, nil
	}
	return json.Marshal(v)
}

// Room is the change of a room.
type Room struct {
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Before json.RawMessage `json:"before,omitempty"` // a document with this room alone, absent for a new room
	After  json.RawMessage `json:"after,omitempty"`  // absent for a deleted room
}

// Host is the change of the entry of a host.
type Host struct {
	Name   string `json:"name"`
	Before string `json:"before,omitempty"` // its site, "" for none
	After  string `json:"after,omitempty"`
}

// RoomSubject is the subject of entries about one room alone.
func RoomSubject(id string) string { return wire.AuditSubject("room." + id) }

// RoomsSubject is the subject of entries about several rooms, or none.
var RoomsSubject = wire.AuditSubject("rooms")

// Subject returns the subject of the entry.
func (e *Entry) Subject() string {
	switch {
	case len(e.Rooms) == 1 && e.Parts == 0:
		return RoomSubject(e.Rooms[0].ID)
	case e.Version > 0:
		return RoomsSubject
	}
	return wire.AuditSubject("other")
}

// Hash returns the hash of a stored entry.
func Hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Chain verifies entries from the oldest to the newest. The zero value accepts any first entry.
type Chain struct {
	Number  uint64 // of the newest entry
	Hash    string // of the newest entry
	Through uint64
	begun   bool
}

// BrokenError is the place of a break in a chain.
type BrokenError struct {
	Number uint64 // actual or expected number of the entry
	Why    string
}

func (e *BrokenError) Error() string { return fmt.Sprintf("entry %d: %s", e.Number, e.Why) }

// Next verifies the next stored entry. gap describes earlier changes of rooms without an entry: by a build that does
// not know this stream, or while it was not writable. The error is a [*BrokenError].
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
		return broken("has version %d, after an entry with version %d", e.Through, c.Through)
	}
	if c.begun && e.Version > 0 && e.Part <= 1 && c.Through > 0 && e.Base > c.Through {
		gap = fmt.Sprintf("before entry %d: changes of the rooms from version %d to %d have no entry", e.Number, c.Through,
			e.Base)
	}
	c.begun, c.Number, c.Hash, c.Through = true, e.Number, Hash(data), e.Through
	return e, gap, nil
}
