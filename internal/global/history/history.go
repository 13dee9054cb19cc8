// Package history keeps the past of each room: the leading global writes a point a second, and every candidate can
// read them.
//
// The leader publishes the points of a second as one message of the log. Every candidate hears it and keeps the newest
// two minutes, so a successor continues where the log ends. After each minute the leader stores the minute's points as
// a block per room; after each hour the minutes, after each day the hours. A block is made from the level below, so a
// successor makes the blocks that its predecessor could not. After thirty days the hours are stored once more, in one
// block: a chart of a year reads thirteen messages of a room and not 400 among those of all rooms.
package history

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// Store keeps messages by level and room. Its methods are safe for concurrent use.
type Store interface {
	// Write adds a message of a room, or of a part of the log, unless one with its id was added in the last minutes.
	Write(ctx context.Context, level wire.HistoryLevel, of, id string, data []byte) error

	// Read calls each with the messages since a time, the oldest first, until there are no more or it returns false.
	Read(ctx context.Context, level wire.HistoryLevel, of string, since time.Time,
		each func(data []byte) (more bool)) error

	// Newest returns the newest message, nil for none.
	Newest(ctx context.Context, level wire.HistoryLevel, of string) ([]byte, error)
}

// kept is how many seconds of points each candidate keeps. Blocks are stored within that time.
const kept = 120

// History is the history as one candidate knows it. It is safe for concurrent use.
type History struct {
	Store

	log *slog.Logger

	mu     sync.Mutex
	rooms  map[room.ID]*recent
	at     int64 // newest second heard
	caught bool  // the contents of the log are known, and were heard since
}

// recent has the newest points of a room.
type recent struct {
	state  history.State // the newest
	points []history.Point
}

// New returns a history that has heard nothing.
func New(store Store, log *slog.Logger) *History {
	return &History{Store: store, log: log, rooms: map[room.ID]*recent{}}
}

// Receive takes a message of the log.
func (h *History) Receive(data []byte) error {
	at, states, err := history.DecodeSecond(data)
	if err != nil {
		return err
	}
	h.hear(at, states)
	return nil
}

// hear takes the states of a second.
func (h *History) hear(at int64, states []history.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at/kept > h.at/kept {
		h.sweep(at)
	}
	for _, s := range states {
		h.take(s)
	}
	h.at = max(h.at, at)
}

// sweep forgets the rooms that were removed, and the points of those at rest. Each room has a point per beat.
func (h *History) sweep(at int64) {
	for id, r := range h.rooms {
		switch newest := r.state.Point.At; {
		case newest < at-2*history.Beat:
			delete(h.rooms, id)
		case newest < at-kept:
			r.points = slices.Clone(r.points[len(r.points)-1:])
		}
	}
}

// take takes the state of a room. An older one than the newest is that of a leader that was replaced.
func (h *History) take(s history.State) {
	r := h.rooms[room.ID(s.Room)]
	if r == nil {
		if len(h.rooms) >= room.MaxRooms {
			return
		}
		r = &recent{}
		h.rooms[room.ID(s.Room)] = r
	}
	if s.Point.At <= r.state.Point.At {
		return
	}
	r.state = s
	r.points = append(r.points, s.Point)
	// The one before them is what the oldest is compared with.
	if n := slices.IndexFunc(r.points, func(p history.Point) bool { return p.At > s.Point.At-kept }); n > 1 {
		r.points = append(r.points[:0], r.points[n-1:]...)
	}
}

// Catch reads the log. It reports whether the newest state of every room is known: read now, or read before
// and heard since.
func (h *History) Catch(ctx context.Context, now time.Time) (known bool, err error) {
	h.mu.Lock()
	known = h.caught
	h.mu.Unlock()
	span, patience := time.Duration(history.Beat)*time.Second, 10*time.Second
	if known { // some may have been missed
		span, patience = kept*time.Second, time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = h.Read(ctx, wire.HistoryLog, "*", now.Add(-span), func(data []byte) bool {
		if err := h.Receive(data); err != nil {
			h.log.Warn("a second of the history is not readable", slog.Any("error", err))
		}
		return true
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.caught = known || err == nil
	return h.caught, err
}

// Minute returns the minute of a room up to a second; false if nothing is known of it.
func (h *History) Minute(id room.ID, at int64) (m history.Minute, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.rooms[id]; r != nil {
		return history.MinuteOf(r.points, at)
	}
	return m, false
}

// states returns the newest state of every room.
func (h *History) states() []history.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]history.State, 0, len(h.rooms))
	for _, r := range h.rooms {
		out = append(out, r.state)
	}
	return out
}

// recent returns the kept points of a room after a second, up to another.
func (h *History) recent(id room.ID, after, to int64) []history.Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rooms[id]
	if r == nil {
		return nil
	}
	var out []history.Point
	for _, p := range r.points {
		if p.At > after && p.At <= to {
			out = append(out, p)
		}
	}
	return out
}

// A level of blocks: the seconds between points and in a block.
type level struct {
	wire.HistoryLevel
	step, block int64
}

var levels = [...]level{
	{wire.HistorySeconds, 1, 60},
	{wire.HistoryMinutes, 60, 3600},
	{wire.HistoryHours, 3600, 86400},
	{wire.HistoryMonths, 3600, 30 * 86400},
}

// MaxRows bounds the steps of one reading.
const MaxRows = 100_000

// Points calls each with the points of a room in the order of time, from the newest one up to from, to to, at steps of
// at most step seconds.
func (h *History) Points(ctx context.Context, id room.ID, from, to, step int64, each func([]history.Point)) error {
	if (to-from)/step > MaxRows {
		return fmt.Errorf("history: at most %d steps, got %d", MaxRows, (to-from)/step)
	}
	last := int64(math.MinInt64) // second of the newest point
	for i := len(levels) - 1; i >= 0; i-- {
		l := levels[i]
		if l.step > step {
			continue
		}
		// The base of the first row may be a Beat old. A block is stored after its end.
		since := max(from-max(history.Beat, l.step), last)
		err := h.blocks(ctx, l, id, since, to, func(points []history.Point) {
			points = slices.DeleteFunc(points, func(p history.Point) bool { return p.At <= max(last, since) || p.At > to })
			if len(points) > 0 {
				last = points[len(points)-1].At
				each(points)
			}
		})
		if err != nil {
			return err
		}
	}
	each(h.recent(id, last, to))
	return nil
}

// blocks calls each with the blocks of a room that end after since, up to the block that begins after to.
func (h *History) blocks(
	ctx context.Context, l level, id room.ID, since, to int64, each func([]history.Point),
) error {
	from := time.Unix(max(0, since), 0).Add(-time.Minute) // the clocks of the store's servers may be behind
	return h.Read(ctx, l.HistoryLevel, public(id), from, func(data []byte) bool {
		points, e := history.DecodeBlock(data)
		if e != nil { // its time is a gap
			h.log.Warn("a block of the history is not readable and left out", slog.String("room", public(id)),
				slog.Int64("step", l.step), slog.Any("error", e))
			return true
		}
		if points[0].At > to+l.block {
			return false
		}
		each(points)
		return true
	})
}

// public returns the ID of a room in subjects.
func public(id room.ID) string { return fmt.Sprintf("%016x", uint64(id)) }
