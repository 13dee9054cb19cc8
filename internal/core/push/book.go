package push

import (
	"container/heap"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
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
	Claim  int64          `json:"claim,omitempty"` // seconds for which the turn of a called visitor lasts; 0 from an earlier release
}

const (
	soonIn    = 5 * time.Minute
	countedIn = 5 * time.Second // a visitor that subscribes counts in the view of the leading global, two reports later
	flowsIn   = 20 * time.Second
	againIn   = 10 * time.Second // notifiers that find the same attempt due store it once

	// turnFor is how long a turn lasts if the call does not tell.
	turnFor = 15 * time.Minute
)

// CallOf returns how far a room has called its visitors, whose turn lasts for claim. Nobody is called while nothing is
// free and nobody is about to enter. A visitor may subscribe on its first page, before it counts: a room in which nobody
// counts as waiting calls none while it is full, and else those that would count by now.
func CallOf(id room.ID, v *wire.View, claim time.Duration, now fleettime.Time) Call {
	c := Call{Room: id, Called: v.Cutoff, Claim: int64(claim / time.Second)}
	switch {
	case v.Queues() && (v.Free > 0 || estimate.Entered(v.Paces, flowsIn) >= 0.5):
	case v.Free <= 0:
		c.Called = 0
		return c
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
	Due     fleettime.Time `json:"due"`               // since when
	Until   fleettime.Time `json:"until,omitempty"`   // then it is over; 0 for never
	Attempt int            `json:"attempt,omitempty"` // how often it was due before, and failed or got lost
	ID      string         `json:"-"`                 // of this attempt to tell a subscription a stage
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

	Failing []string `json:"failing,omitempty"` // push services that fail, each with what is known of it
	Listens string   `json:"listens,omitempty"` // addresses of its listeners, separated by blanks: no site

	Rooms map[room.ID]int `json:"rooms"` // subscribed visitors
}

// Shard returns the shard of a visitor.
func Shard(visitor uint64) int { return int(visitor % wire.OutboxShards) }

// Window is how many notifications of a shard and a push service may be due at a time, and neither sent nor failed: a
// service that fails keeps those of others neither from the outbox nor from their turn.
const Window = 512

// Book holds the subscriptions of a fleet, sealed, and finds those that are due. It is not safe for concurrent use.
type Book struct {
	Max    int // subscriptions; more are left out
	rooms  map[room.ID]*bookRoom
	n      int
	posts  map[string]*[wire.OutboxShards]post // by push service
	paused [wire.OutboxShards]subHeap          // those whose last attempt failed, by the time of the next one
}

// post is what a push service is to be told of a shard.
type post struct {
	queued  int     // due, and neither sent nor failed
	confirm subHeap // to be confirmed first, of all rooms
}

type bookRoom struct {
	subs  map[uint64]*bookSub
	lines map[string]*[wire.OutboxShards][2]subHeap // by push service, shard, and stage: Soon and Called
}

// bookSub is a subscription.
type bookSub struct {
	room     room.ID
	visitor  uint64
	place    fleettime.Time
	since    fleettime.Time // it was read
	service  string         // its push service
	notified Stage          // or queued
	stored   Stage          // of the record
	nonce    string
	sealed   []byte
	seq      uint64 // of the record in its stream

	// The newest notification.
	stage   Stage
	queued  bool           // due, and neither sent nor failed
	at      fleettime.Time // when it was queued
	due     fleettime.Time // since when
	until   fleettime.Time // then it is over; 0 for never
	attempt int
	next    fleettime.Time // of a paused one

	in [slots]int // its index in a heap, plus one; 0 for none
}

// Heaps that have a subscription.
const (
	slotConfirm = iota
	slotSoon
	slotCalled
	slotPaused
	slots
)

// NewBook returns an empty book.
func NewBook(most int) *Book {
	b := &Book{Max: most, rooms: map[room.ID]*bookRoom{}, posts: map[string]*[wire.OutboxShards]post{}}
	for i := range b.paused {
		b.paused[i].slot = slotPaused
	}
	return b
}

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

// Set takes a record stored as number seq, of a subscription at a push service; nil for one that has ended. It reports
// whether there was room for it.
func (b *Book) Set(now fleettime.Time, id room.ID, visitor, seq uint64, service string, r *Record) bool {
	had := b.get(id, visitor)
	if r == nil || r.Notified == Called {
		b.drop(had)
		return true
	}
	nonce := hex.EncodeToString(r.Sealed[:min(len(r.Sealed), 8)])
	if had != nil && had.nonce == nonce && had.place == r.Place {
		had.seq = seq
		b.tell(had, r.Notified)
		return true
	}
	if had == nil && b.n >= b.Max {
		return false
	}
	b.drop(had)
	rm := b.rooms[id]
	if rm == nil {
		rm = &bookRoom{map[uint64]*bookSub{}, map[string]*[wire.OutboxShards][2]subHeap{}}
		b.rooms[id] = rm
	}
	s := &bookSub{
		room: id, visitor: visitor, place: r.Place, since: now, service: service, notified: r.Notified, stored: r.Notified,
		nonce: nonce, sealed: r.Sealed, seq: seq,
	}
	rm.subs[visitor] = s
	b.n++
	b.post(s) // it has one
	b.line(s)
	return true
}

func (b *Book) get(id room.ID, visitor uint64) *bookSub {
	if rm := b.rooms[id]; rm != nil {
		return rm.subs[visitor]
	}
	return nil
}

// post returns what the service of a subscription is to be told of its shard.
func (b *Book) post(s *bookSub) *post {
	all := b.posts[s.service]
	if all == nil {
		all = &[wire.OutboxShards]post{} // slotConfirm is 0
		b.posts[s.service] = all
	}
	return &all[Shard(s.visitor)]
}

// heap returns the heap of a slot for a subscription.
func (b *Book) heap(s *bookSub, slot int) *subHeap {
	switch slot {
	case slotConfirm:
		return &b.post(s).confirm
	case slotPaused:
		return &b.paused[Shard(s.visitor)]
	}
	rm := b.rooms[s.room]
	lines := rm.lines[s.service]
	if lines == nil {
		lines = &[wire.OutboxShards][2]subHeap{}
		for i := range lines {
			lines[i][0].slot, lines[i][1].slot = slotSoon, slotCalled
		}
		rm.lines[s.service] = lines
	}
	return &lines[Shard(s.visitor)][slot-slotSoon]
}

// line has a subscription wait for the stages that it was not notified of. One that is not confirmed waits for that
// alone: its messages could arrive in another order.
func (b *Book) line(s *bookSub) {
	switch {
	case s.notified == Unconfirmed:
		b.push(s, slotConfirm)
	case s.stored >= Confirmed:
		if s.notified < Soon {
			b.push(s, slotSoon)
		}
		if s.notified < Called {
			b.push(s, slotCalled)
		}
	}
}

func (b *Book) push(s *bookSub, slot int) {
	if s.in[slot] == 0 {
		heap.Push(b.heap(s, slot), s)
	}
}

func (b *Book) pull(s *bookSub, slot int) {
	if s.in[slot] != 0 {
		heap.Remove(b.heap(s, slot), s.in[slot]-1)
	}
}

// tell takes that a subscription was notified of a stage.
func (b *Book) tell(s *bookSub, stage Stage) {
	s.stored, s.notified = max(s.stored, stage), max(s.notified, stage)
	if s.stored >= s.notified {
		b.settle(s)
		b.pull(s, slotPaused)
		b.pull(s, slotConfirm)
	}
	if s.stored >= Soon {
		b.pull(s, slotSoon)
	}
	b.line(s)
}

// settle takes the newest notification of a subscription from those that are due.
func (b *Book) settle(s *bookSub) {
	if s.queued {
		s.queued = false
		b.post(s).queued--
	}
}

// Mark takes a stored mark.
func (b *Book) Mark(m Mark) {
	s := b.get(m.Room, m.Visitor)
	switch {
	case s == nil || s.nonce != m.Nonce: // it has ended, or is of another browser
	case m.Stage == Called:
		b.drop(s)
	default:
		b.tell(s, m.Stage)
	}
}

// Get returns the subscription that a job is for, with the number of its record, and the mark for its delivery. It
// returns nil if it has ended, was notified, or is due a later stage.
func (b *Book) Get(j *Job) (sealed []byte, seq uint64, m Mark) {
	if s := b.get(j.Room, j.Visitor); s != nil && s.stored < j.Stage && s.notified <= j.Stage {
		return s.sealed, s.seq, Mark{j.Room, j.Visitor, s.nonce, j.Stage}
	}
	return nil, 0, m
}

// Service returns the push service of a visitor, "" for none.
func (b *Book) Service(j *Job) string {
	if s := b.get(j.Room, j.Visitor); s != nil {
		return s.service
	}
	return ""
}

func (b *Book) drop(s *bookSub) {
	if s == nil {
		return
	}
	b.settle(s)
	for slot := range slots {
		b.pull(s, slot)
	}
	rm := b.rooms[s.room]
	delete(rm.subs, s.visitor)
	if b.n--; len(rm.subs) == 0 {
		delete(b.rooms, s.room)
	}
}

// Prune forgets subscriptions that were read longer ago than age: the store has dropped them.
func (b *Book) Prune(now fleettime.Time, age time.Duration) {
	for _, rm := range b.rooms {
		for _, s := range rm.subs {
			if now.Sub(s.since) > age {
				b.drop(s)
			}
		}
	}
}

// Confirm returns the subscriptions of a shard that are due a confirmation, within the window of each push service.
func (b *Book) Confirm(now fleettime.Time, shard int) (due []Job) {
	b.resume(now, shard)
	for _, service := range slices.Sorted(maps.Keys(b.posts)) {
		p := &b.posts[service][shard]
		for len(p.confirm.subs) > 0 && p.queued < Window {
			due = append(due, b.queue(now, heap.Pop(&p.confirm).(*bookSub), Confirmed, 0))
		}
	}
	return due
}

// Due returns the subscriptions of a shard that a call makes due, within the window of each push service.
func (b *Book) Due(now fleettime.Time, shard int, c Call) (due []Job) {
	b.resume(now, shard)
	rm := b.rooms[c.Room]
	if rm == nil {
		return nil
	}
	turn := time.Duration(c.Claim) * time.Second
	if turn == 0 {
		turn = turnFor
	}
	for _, service := range slices.Sorted(maps.Keys(rm.lines)) {
		lines, p := &rm.lines[service][shard], &b.posts[service][shard]
		for called := &lines[1]; called.upTo(c.Called) && p.queued < Window; {
			s := heap.Pop(called).(*bookSub)
			b.pull(s, slotSoon) // a called visitor gets no notification that its turn will come
			due = append(due, b.queue(now, s, Called, turn))
		}
		for soon := &lines[0]; soon.upTo(c.Soon) && p.queued < Window; {
			s := heap.Pop(soon).(*bookSub)
			if s.place > c.Called {
				due = append(due, b.queue(now, s, Soon, soonIn))
			}
		}
	}
	return due
}

// queue makes a notification of a subscription due, until it is over; 0 for never.
func (b *Book) queue(now fleettime.Time, s *bookSub, stage Stage, over time.Duration) Job {
	b.settle(s)
	b.pull(s, slotPaused)
	if s.stage != stage {
		s.stage, s.due, s.attempt, s.until = stage, now, 0, 0
		if over > 0 {
			s.until = now.Add(over)
		}
	}
	s.notified, s.at, s.queued = stage, now, true
	b.posts[s.service][Shard(s.visitor)].queued++
	id := fmt.Sprintf("%016x.%016x.%s.%d", uint64(s.room), s.visitor, s.nonce, stage)
	if s.attempt > 0 { // a notifier that has just started does not know the attempts of others
		id = fmt.Sprintf("%s.%d.%d", id, s.attempt, now/fleettime.Time(againIn/time.Millisecond))
	}
	return Job{s.room, s.visitor, stage, s.due, s.until, s.attempt, id}
}

// Failed takes that an attempt has failed, and makes the notification due again at a time.
func (b *Book) Failed(j *Job, next fleettime.Time) {
	s := b.get(j.Room, j.Visitor)
	if s == nil || !s.queued || s.stage != j.Stage || s.attempt != j.Attempt {
		return
	}
	b.settle(s)
	s.attempt++
	s.next = next
	b.push(s, slotPaused)
}

// Over takes that a notification is over: it is not due any more.
func (b *Book) Over(j *Job) {
	if s := b.get(j.Room, j.Visitor); s != nil && s.stage == j.Stage {
		b.settle(s)
		b.pull(s, slotPaused)
	}
}

// Lost makes due again what has been due for longer than after, and neither sent nor failed: another notifier could not
// send it, or the outbox has lost it.
func (b *Book) Lost(now fleettime.Time, after time.Duration) {
	for _, rm := range b.rooms {
		for _, s := range rm.subs {
			if s.queued && now.Sub(s.at) > after {
				b.Failed(&Job{Room: s.room, Visitor: s.visitor, Stage: s.stage, Attempt: s.attempt}, now)
			}
		}
	}
}

// Hurry makes due what failed at a push service: it works again.
func (b *Book) Hurry(service string) {
	for i := range b.paused {
		for _, s := range b.paused[i].subs {
			if s.service == service {
				s.next = 0
			}
		}
		heap.Init(&b.paused[i])
	}
}

// resume has the paused notifications of a shard whose time has come wait again.
func (b *Book) resume(now fleettime.Time, shard int) {
	h := &b.paused[shard]
	for len(h.subs) > 0 && h.subs[0].next <= now {
		s := heap.Pop(h).(*bookSub)
		s.notified = s.stage - 1
		b.line(s)
	}
}

// Again takes back jobs that could not be stored.
func (b *Book) Again(jobs []Job) {
	for i := range jobs {
		j := &jobs[i]
		s := b.get(j.Room, j.Visitor)
		if s == nil || !s.queued || s.stage != j.Stage || s.attempt != j.Attempt {
			continue
		}
		b.settle(s)
		s.notified = j.Stage - 1
		b.line(s)
	}
}

// subHeap has the earliest place first, or the next attempt.
type subHeap struct {
	slot int
	subs []*bookSub
}

// upTo reports whether the first one has a place up to a time.
func (h *subHeap) upTo(to fleettime.Time) bool { return len(h.subs) > 0 && h.subs[0].place <= to }

func (h *subHeap) Len() int { return len(h.subs) }

func (h *subHeap) Less(i, k int) bool {
	if h.slot == slotPaused {
		return h.subs[i].next < h.subs[k].next
	}
	return h.subs[i].place < h.subs[k].place
}

func (h *subHeap) Swap(i, k int) {
	h.subs[i], h.subs[k] = h.subs[k], h.subs[i]
	h.subs[i].in[h.slot], h.subs[k].in[h.slot] = i+1, k+1
}

func (h *subHeap) Push(x any) {
	s := x.(*bookSub)
	h.subs = append(h.subs, s)
	s.in[h.slot] = len(h.subs)
}

func (h *subHeap) Pop() any {
	last := len(h.subs) - 1
	s := h.subs[last]
	h.subs[last] = nil
	h.subs, s.in[h.slot] = h.subs[:last], 0
	return s
}
