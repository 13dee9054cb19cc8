package push

import (
	"container/heap"
	"encoding/hex"
	"fmt"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// Call says how far a room has called its visitors: those with places up to Called may enter, and those up to Soon
// will in about five minutes.
type Call struct {
	Room   room.ID        `json:"room,string"`
	Called fleettime.Time `json:"called"`
	Soon   fleettime.Time `json:"soon"`
}

const (
	soonIn    = 5 * time.Minute
	countedIn = 5 * time.Second // a visitor that subscribes counts in the view of the leading global, two reports later
)

// CallOf returns how far a room has called its visitors. A visitor may subscribe on its first page, before it counts: a
// room in which nobody counts as waiting calls none while it is full, and else those that would count by now.
func CallOf(id room.ID, v *wire.View, now fleettime.Time) Call {
	c := Call{Room: id, Called: v.Cutoff}
	switch {
	case v.Queues():
	case v.Free <= 0:
		return Call{Room: id}
	default:
		c.Called = now.Add(-countedIn)
		c.Soon = c.Called
		return c
	}
	// Places are ordered: the last one with so many in front.
	soon := estimate.Entered(v.Paces, soonIn)
	low, high := v.Cutoff, max(v.Cutoff, now)
	for high-low > 250 {
		if mid := low + (high-low)/2; v.Place(mid, true) <= soon {
			low = mid
		} else {
			high = mid
		}
	}
	c.Soon = low
	return c
}

// Calls is a message with the calls of some rooms.
type Calls struct {
	At    fleettime.Time `json:"at"`
	Rooms []Call         `json:"rooms"`
}

// Job is a notification that is due.
type Job struct {
	Room    room.ID        `json:"room,string"`
	Visitor uint64         `json:"visitor,string"`
	Stage   Stage          `json:"stage"`
	Due     fleettime.Time `json:"due"` // since when
	ID      string         `json:"-"`   // the same for each attempt to tell a subscription a stage
}

// Mark records that a subscriber was notified of a stage.
type Mark struct {
	Room    room.ID `json:"room,string"`
	Visitor uint64  `json:"visitor,string"`
	Nonce   string  `json:"nonce"` // of the notified browser
	Stage   Stage   `json:"stage"`
}

// LateAfter is the delay of a notification, sent or not, that operators are alarmed about.
const LateAfter = 30 * time.Second

// State is the report of a notifier on itself, since its start.
type State struct {
	Name       string  `json:"name"`
	Subscribed int     `json:"subscribed"` // of the fleet
	Due        int     `json:"due"`
	Sent       int     `json:"sent"`
	Failed     int     `json:"failed"` // attempts
	Dead       int     `json:"dead"`
	Late       float64 `json:"late"` // the longest delay of the last minute, in seconds

	Rooms map[room.ID]int `json:"rooms"` // subscribed visitors
}

// Shard returns the shard of a visitor.
func Shard(visitor uint64) int { return int(visitor % wire.OutboxShards) }

// Book holds the subscriptions of a fleet, sealed, and finds those that are due. It is not safe for concurrent use.
type Book struct {
	Max   int // subscriptions; more are left out
	rooms map[room.ID]*bookRoom
	n     int
	first [wire.OutboxShards][]key // to be confirmed first
}

type key struct {
	room    room.ID
	visitor uint64
}

type bookRoom struct {
	subs  map[uint64]*bookSub
	lines [wire.OutboxShards][2]placeHeap // by stage, Soon and Called
}

// bookSub is a subscription.
type bookSub struct {
	place    fleettime.Time
	since    fleettime.Time // it was read
	notified Stage          // or queued
	stored   Stage          // of the record
	queued   fleettime.Time // when notified was set
	due      fleettime.Time // since when that stage is due
	nonce    string
	sealed   []byte
	seq      uint64 // of the record in its stream
}

// NewBook returns an empty book.
func NewBook(most int) *Book { return &Book{Max: most, rooms: map[room.ID]*bookRoom{}} }

// Len returns the number of subscriptions.
func (b *Book) Len() int { return b.n }

// Rooms returns the number of subscriptions of each room, of at most most.
func (b *Book) Rooms(most int) map[room.ID]int {
	out := map[room.ID]int{}
	for id, rm := range b.rooms {
		if len(out) < most {
			out[id] = len(rm.subs)
		}
	}
	return out
}

// Set takes a record stored as number seq, nil for a subscription that has ended. It reports whether there was room for
// it.
func (b *Book) Set(now fleettime.Time, id room.ID, visitor, seq uint64, r *Record) bool {
	rm := b.rooms[id]
	if r == nil || r.Notified == Called {
		if rm != nil && rm.subs[visitor] != nil {
			b.drop(id, rm, visitor)
		}
		return true
	}
	if rm == nil {
		rm = &bookRoom{subs: map[uint64]*bookSub{}}
		b.rooms[id] = rm
	}
	nonce := hex.EncodeToString(r.Sealed[:min(len(r.Sealed), 8)])
	had := rm.subs[visitor]
	if had != nil && had.nonce == nonce && had.place == r.Place {
		had.notified, had.stored, had.seq = max(had.notified, r.Notified), max(had.stored, r.Notified), seq
		return true
	}
	if had == nil {
		if b.n >= b.Max {
			return false
		}
		b.n++
	}
	rm.subs[visitor] = &bookSub{
		place: r.Place, since: now, notified: r.Notified, stored: r.Notified, nonce: nonce, sealed: r.Sealed, seq: seq,
	}
	shard := Shard(visitor)
	if r.Notified == Unconfirmed {
		b.first[shard] = append(b.first[shard], key{id, visitor})
	}
	for i := range rm.lines[shard] {
		if r.Notified < Soon+Stage(i) {
			heap.Push(&rm.lines[shard][i], placed{r.Place, visitor})
		}
	}
	return true
}

// Mark takes a stored mark.
func (b *Book) Mark(m Mark) {
	rm := b.rooms[m.Room]
	if rm == nil {
		return
	}
	s := rm.subs[m.Visitor]
	switch {
	case s == nil || s.nonce != m.Nonce: // it has ended, or is of another browser
	case m.Stage == Called:
		b.drop(m.Room, rm, m.Visitor)
	default:
		s.notified, s.stored = max(s.notified, m.Stage), max(s.stored, m.Stage)
	}
}

// Get returns the subscription that a job is for, with the number of its record, and the mark for its delivery. It
// returns nil if it has ended, or was notified.
func (b *Book) Get(j *Job) (sealed []byte, seq uint64, m Mark) {
	if rm := b.rooms[j.Room]; rm != nil {
		if s := rm.subs[j.Visitor]; s != nil && s.stored < j.Stage {
			return s.sealed, s.seq, Mark{j.Room, j.Visitor, s.nonce, j.Stage}
		}
	}
	return nil, 0, m
}

func (b *Book) drop(id room.ID, rm *bookRoom, visitor uint64) {
	delete(rm.subs, visitor)
	if b.n--; len(rm.subs) == 0 {
		delete(b.rooms, id)
	}
}

// Prune forgets subscriptions that were read longer ago than age: the store has dropped them.
func (b *Book) Prune(now fleettime.Time, age time.Duration) {
	for id, rm := range b.rooms {
		for visitor, s := range rm.subs {
			if now.Sub(s.since) > age {
				b.drop(id, rm, visitor)
			}
		}
	}
}

// Confirm returns at most most subscriptions of a shard that are due a confirmation.
func (b *Book) Confirm(now fleettime.Time, shard, most int) (due []Job) {
	for _, k := range b.first[shard] {
		if len(due) == most {
			break
		}
		b.first[shard] = b.first[shard][1:]
		if rm := b.rooms[k.room]; rm != nil {
			due = rm.due(due, now, k.room, k.visitor, Confirmed)
		}
	}
	return due
}

// Due returns at most most subscriptions of a shard that a call makes due. One that is not confirmed yet stays: its
// messages could arrive in another order.
func (b *Book) Due(now fleettime.Time, shard int, c Call, most int) (due []Job) {
	rm := b.rooms[c.Room]
	if rm == nil {
		return nil
	}
	for _, stage := range []Stage{Called, Soon} { // a called visitor gets no notification that its turn will come
		line, to := &rm.lines[shard][stage-Soon], c.Called
		if stage == Soon {
			to = c.Soon
		}
		var unconfirmed []placed
		for len(*line) > 0 && (*line)[0].place <= to && len(due)+len(unconfirmed) < most {
			p := heap.Pop(line).(placed)
			switch s := rm.subs[p.visitor]; {
			case s == nil || s.place != p.place || stage == Soon && p.place <= c.Called:
			case s.stored < Confirmed:
				unconfirmed = append(unconfirmed, p)
			default:
				due = rm.due(due, now, c.Room, p.visitor, stage)
			}
		}
		for _, p := range unconfirmed {
			heap.Push(line, p)
		}
	}
	return due
}

// due adds a subscription unless it was notified of the stage, and marks it.
func (rm *bookRoom) due(to []Job, now fleettime.Time, id room.ID, visitor uint64, stage Stage) []Job {
	s := rm.subs[visitor]
	if s == nil || s.notified >= stage {
		return to
	}
	s.notified, s.queued, s.due = stage, now, now
	return append(to, s.job(id, visitor))
}

// job returns the newest notification of a subscription.
func (s *bookSub) job(id room.ID, visitor uint64) Job {
	return Job{id, visitor, s.notified, s.due, fmt.Sprintf("%016x.%016x.%s.%d", uint64(id), visitor, s.nonce, s.notified)}
}

// Stale returns what was returned as due longer ago than after, is not stored as notified, and became due later than
// most ago. The outbox may have lost it; it has a copy at most.
func (b *Book) Stale(now fleettime.Time, after, most time.Duration) (jobs []Job) {
	for id, rm := range b.rooms {
		for visitor, s := range rm.subs {
			if s.notified > s.stored && now.Sub(s.queued) > after && now.Sub(s.due) < most {
				s.queued = now
				jobs = append(jobs, s.job(id, visitor))
			}
		}
	}
	return jobs
}

// Again takes back jobs that could not be stored.
func (b *Book) Again(jobs []Job) {
	for _, j := range jobs {
		rm := b.rooms[j.Room]
		if rm == nil || rm.subs[j.Visitor] == nil {
			continue
		}
		s, shard := rm.subs[j.Visitor], Shard(j.Visitor)
		s.notified = j.Stage - 1
		if j.Stage == Confirmed {
			b.first[shard] = append(b.first[shard], key{j.Room, j.Visitor})
		} else {
			heap.Push(&rm.lines[shard][j.Stage-Soon], placed{s.place, j.Visitor})
		}
	}
}

// placed is a visitor with its place.
type placed struct {
	place   fleettime.Time
	visitor uint64
}

// placeHeap has the earliest place first.
type placeHeap []placed

func (h placeHeap) Len() int           { return len(h) }
func (h placeHeap) Less(i, k int) bool { return h[i].place < h[k].place }
func (h placeHeap) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }

func (h *placeHeap) Push(x any) { *h = append(*h, x.(placed)) }

func (h *placeHeap) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	*h = (*h)[:last]
	return p
}
