package room

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"vestibule/internal/core/room/match"
	"vestibule/internal/core/strictjson"
)

// Controls are the operators' temporary overrides of rooms: a document of its own, so that no writer of rooms reverts
// them. Times are fleet time in Unix milliseconds. Every node determines by itself which are in force: see
// [Settings.Under].
type Controls struct {
	Version uint64              `json:"version"` // grows with every change
	Rooms   map[string]*Control `json:"rooms"`   // by [PublicID]
}

// Control is the overrides of one room. A nil field overrides nothing.
type Control struct {
	Pause    *Pause   `json:"pause,omitempty"`
	QueueAll *Mark    `json:"queue_all,omitempty"`
	Message  *Message `json:"message,omitempty"`
	Limits   *Limits  `json:"limits,omitempty"`
}

// Mark is the author, time, reason and end of a control.
type Mark struct {
	Since  int64  `json:"since"`
	Until  int64  `json:"until,omitempty"` // 0: until it is revoked
	By     string `json:"by,omitempty"`    // name of a token
	Reason string `json:"reason,omitempty"`
}

// Pause stops admission, except by a release.
type Pause struct {
	Mark
	Message string   `json:"message,omitempty"` // replaces every other message
	Release *Release `json:"release,omitempty"` // the newest; it ends with the pause
	Keys    []string `json:"keys,omitempty"`    // of earlier releases, the newest last, at most MaxKeys
}

// MaxKeys bounds the number of remembered release keys, MaxKey the bytes of each.
const (
	MaxKeys = 32
	MaxKey  = 64
)

// Release admits the next N waiting visitors of a paused room.
type Release struct {
	ID     uint64 `json:"id"` // increases with each release
	N      int    `json:"n"`  // 1 to MaxRelease visitors
	At     int64  `json:"at"`
	By     string `json:"by,omitempty"` // name of a token
	Reason string `json:"reason,omitempty"`
	Key    string `json:"key,omitempty"` // idempotency key of the request

	// Lender is the coordinator that lends the release: no other ever does, and it does so only after this is stored.
	// nil until a coordinator takes the release.
	Lender *Lender `json:"lender,omitempty"`
}

// Lender is the term of a coordinator.
type Lender struct {
	Term  uint64 `json:"term"`
	Nonce uint64 `json:"nonce"`
}

// MaxRelease bounds the visitors of one release: the edges hold that many requests for their turn.
const MaxRelease = 1000

// Untaken returns the release of a paused room that no coordinator has taken, nil for none.
func (c *Control) Untaken(now int64) *Release {
	if c == nil || c.Pause == nil || c.Pause.Release == nil || c.Pause.Release.Lender != nil || !c.Pause.holds(now) {
		return nil
	}
	return c.Pause.Release
}

// Take returns a copy of c in which l has taken all untaken releases, and the number of these. The result must be
// stored in place of exactly c before any of them is lent.
func (c *Controls) Take(l Lender, now int64) (next *Controls, n int) {
	next = &Controls{Version: c.Version + 1, Rooms: maps.Clone(c.Rooms)}
	for id, r := range c.Rooms {
		if u := r.Untaken(now); u != nil {
			taken, pause, control := *u, *r.Pause, *r
			taken.Lender, pause.Release, control.Pause = &l, &taken, &pause
			next.Rooms[id] = &control
			n++
		}
	}
	return next, n
}

// Message replaces the room's queue_message for waiting visitors.
type Message struct {
	Mark
	Text string `json:"text"`
}

// Limits replace T and R, each unless it is 0.
type Limits struct {
	Mark
	TotalActiveUsers  int `json:"total_active_users,omitempty"`
	NewUsersPerMinute int `json:"new_users_per_minute,omitempty"`
}

// MaxReason bounds a reason, in bytes.
const MaxReason = 200

// holds reports whether the control with mark m is in force at now.
func (m *Mark) holds(now int64) bool {
	return m.Until == 0 || now < m.Until
}

// ifHeld returns a control that is in force at now, nil for any other.
func ifHeld[T any, P interface {
	*T
	holds(now int64) bool
}](c P, now int64) P {
	if c == nil || !c.holds(now) {
		return nil
	}
	return c
}

// At returns the part of c in force at now, nil for none.
func (c *Control) At(now int64) *Control {
	if c == nil {
		return nil
	}
	in := Control{
		Pause: ifHeld(c.Pause, now), QueueAll: ifHeld(c.QueueAll, now), Message: ifHeld(c.Message, now),
		Limits: ifHeld(c.Limits, now),
	}
	if in == (Control{}) {
		return nil
	}
	return &in
}

// Under returns s with the controls of c that are in force at now.
func (s Settings) Under(c *Control, now int64) Settings {
	in := c.At(now)
	if in == nil {
		return s
	}
	if in.Message != nil {
		s.QueueMessage = in.Message.Text
	}
	if in.Pause != nil && in.Pause.Message != "" {
		s.QueueMessage = in.Pause.Message
	}
	s.QueueAll = s.QueueAll || in.QueueAll != nil || in.Pause != nil
	if l := in.Limits; l != nil {
		if l.TotalActiveUsers > 0 {
			s.TotalActiveUsers = l.TotalActiveUsers
		}
		if l.NewUsersPerMinute > 0 {
			s.NewUsersPerMinute = l.NewUsersPerMinute
		}
	}
	return s
}

// Surely returns s under c with a clock uncertainty of bound. Where a control may or may not have ended, it uses the
// smaller limits, and the binding limits under a pause instead of passthrough.
func (s Settings) Surely(c *Control, now int64, bound time.Duration) Settings {
	out := s.Under(c, now)
	for _, at := range []int64{now - bound.Milliseconds(), now + bound.Milliseconds()} {
		o := s.Under(c, at)
		out.limitTo(&o)
		if out.QueueingMethod == MethodPassthrough {
			out.QueueAll = out.QueueAll || o.QueueAll // limits bind under queue_all
		}
	}
	return out
}

func (c *Control) marks() (all []*Mark) {
	if c.Pause != nil {
		all = append(all, &c.Pause.Mark)
	}
	if c.QueueAll != nil {
		all = append(all, c.QueueAll)
	}
	if c.Message != nil {
		all = append(all, &c.Message.Mark)
	}
	if c.Limits != nil {
		all = append(all, &c.Limits.Mark)
	}
	return all
}

// Next returns the first time after now at which a control ends, 0 for never.
func (c *Controls) Next(now int64) (next int64) {
	if c == nil {
		return 0
	}
	for _, r := range c.Rooms {
		for _, m := range r.marks() {
			if m.Until > now && (next == 0 || m.Until < next) {
				next = m.Until
			}
		}
	}
	return next
}

// Check returns all faults of c. Each error names the part and the rule.
func (c *Control) Check() (errs []error) {
	add := func(part, rule string) {
		if rule != "" {
			errs = append(errs, fmt.Errorf("%s %s", part, rule))
		}
	}
	limit := func(part string, n int) {
		if n < 0 || n > MaxRate {
			add(part, fmt.Sprintf("must be 1 to %d, got %d", MaxRate, n))
		}
	}
	for _, m := range c.marks() {
		add("reason", checkShort(m.Reason))
		add("by", checkShort(m.By))
		if m.Since <= 0 || m.Until < 0 || m.Until != 0 && m.Until <= m.Since {
			add("until", "must be after since")
		}
	}
	if c.Pause != nil {
		add("pause.message", checkMessage(c.Pause.Message))
		if len(c.Pause.Keys) > MaxKeys {
			add("pause.keys", fmt.Sprintf("must be at most %d", MaxKeys))
		}
		if r := c.Pause.Release; r != nil {
			add("pause.release", r.check())
		}
	}
	if c.Message != nil {
		add("message.text", checkMessage(c.Message.Text))
	}
	if l := c.Limits; l != nil {
		limit("limits.total_active_users", l.TotalActiveUsers)
		limit("limits.new_users_per_minute", l.NewUsersPerMinute)
		if l.TotalActiveUsers == 0 && l.NewUsersPerMinute == 0 {
			add("limits", "must name total_active_users or new_users_per_minute")
		}
		if l.Until == 0 {
			add("limits.until", "must say when they end")
		}
	}
	return errs
}

func (r *Release) check() string {
	switch {
	case r.ID == 0:
		return "must have an id"
	case r.N < 1 || r.N > MaxRelease:
		return fmt.Sprintf("must be of 1 to %d people, got %d", MaxRelease, r.N)
	}
	if len(r.Key) > MaxKey || !match.Readable(r.Key) {
		return fmt.Sprintf("must have a key of at most %d bytes of UTF-8 without control characters", MaxKey)
	}
	return cmp.Or(checkShort(r.By), checkShort(r.Reason))
}

func checkShort(s string) string {
	if len(s) > MaxReason || !match.Readable(s) {
		return fmt.Sprintf("must be at most %d bytes of UTF-8 without control characters", MaxReason) + got(s)
	}
	return ""
}

// EncodeControls returns c as JSON; equal documents give equal bytes.
func EncodeControls(c *Controls) ([]byte, error) { return json.Marshal(c) }

// DecodeControls decodes the output of EncodeControls. It refuses unknown fields, since this release cannot apply
// those of a newer one. The previous document then stays in force.
func DecodeControls(data []byte) (*Controls, error) {
	if len(data) > MaxDocumentBytes {
		return nil, fmt.Errorf("controls: must be at most %d bytes", MaxDocumentBytes)
	}
	c := &Controls{}
	if err := strictjson.Decode(data, c); err != nil {
		return nil, fmt.Errorf("controls: %w", err)
	}
	if c.Version == 0 || len(c.Rooms) > MaxRooms {
		return nil, fmt.Errorf("controls: must have a version and at most %d rooms", MaxRooms)
	}
	for _, id := range slices.Sorted(maps.Keys(c.Rooms)) {
		_, err := controlledID(id)
		if r := c.Rooms[id]; err == nil && r == nil {
			err = errors.New("must say something")
		} else if err == nil {
			err = errors.Join(r.Check()...)
		}
		if err != nil {
			return nil, fmt.Errorf("controls: room %.40q: %w", id, err)
		}
	}
	return c, nil
}
