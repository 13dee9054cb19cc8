package room

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"vestibule/internal/core/room/match"
	"vestibule/internal/core/strictjson"
)

// Controls are what operators say of rooms for now: a document of its own beside the rooms,
// so that nothing that writes rooms undoes it. Times are fleet time in Unix milliseconds.
// Every node works out for itself what is in force: see [Settings.Under].
type Controls struct {
	Version uint64              `json:"version"` // grows with every change
	Rooms   map[string]*Control `json:"rooms"`   // by [PublicID]
}

// Control is what is said of one room. What is nil is not said.
type Control struct {
	Pause    *Pause   `json:"pause,omitempty"`
	QueueAll *Mark    `json:"queue_all,omitempty"`
	Message  *Message `json:"message,omitempty"`
	Limits   *Limits  `json:"limits,omitempty"`
}

// Mark is who said something, when, why, and until when it holds.
type Mark struct {
	Since  int64  `json:"since"`
	Until  int64  `json:"until,omitempty"` // 0: until it is taken back
	By     string `json:"by,omitempty"`    // name of a token
	Reason string `json:"reason,omitempty"`
}

// Pause lets nobody new in, but by a release.
type Pause struct {
	Mark
	Message string   `json:"message,omitempty"` // in place of every other one
	Release *Release `json:"release,omitempty"` // the newest; it ends with the pause
	Keys    []string `json:"keys,omitempty"`    // of releases before, the newest last, at most MaxKeys
}

// MaxKeys bounds how many keys of releases are remembered, MaxKey the bytes of each.
const (
	MaxKeys = 32
	MaxKey  = 64
)

// Release lets in the next N of those who wait in a room that is paused.
type Release struct {
	ID     uint64 `json:"id"` // a later one has a higher number
	N      int    `json:"n"`  // 1 to MaxRelease people
	At     int64  `json:"at"`
	By     string `json:"by,omitempty"` // name of a token
	Reason string `json:"reason,omitempty"`
	Key    string `json:"key,omitempty"` // who asks again with the same key asks for the same release

	// Lender is the coordinator that lends the release: it alone ever does, and only once this is stored. nil
	// before one has taken it.
	Lender *Lender `json:"lender,omitempty"`
}

// Lender is the term of a coordinator.
type Lender struct {
	Term  uint64 `json:"term"`
	Nonce uint64 `json:"nonce"`
}

// MaxRelease bounds how many people one release lets in: so many are held at the edges for their turn.
const MaxRelease = 1000

// Untaken returns the release of a room that is paused which no coordinator has taken, nil for none.
func (c *Control) Untaken(now int64) *Release {
	if c == nil || c.Pause == nil || c.Pause.Release == nil || c.Pause.Release.Lender != nil || !c.Pause.holds(now) {
		return nil
	}
	return c.Pause.Release
}

// Take returns c with every release that no coordinator has taken as taken by l, and how many these are. It
// changes nothing of c. What it returns is to be stored in place of c, and of nothing else, before any of them is lent.
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

// Message is what those who wait are told, in place of the room's queue_message.
type Message struct {
	Mark
	Text string `json:"text"`
}

// Limits take the place of T and R, each unless it is 0.
type Limits struct {
	Mark
	TotalActiveUsers  int `json:"total_active_users,omitempty"`
	NewUsersPerMinute int `json:"new_users_per_minute,omitempty"`
}

// MaxReason bounds a reason, in bytes.
const MaxReason = 200

// holds reports whether what m marks is in force at now.
func (m *Mark) holds(now int64) bool {
	return m.Until == 0 || now < m.Until
}

// At returns what of c is in force at now, nil for nothing.
func (c *Control) At(now int64) *Control {
	if c == nil {
		return nil
	}
	var in Control
	if c.Pause != nil && c.Pause.holds(now) {
		in.Pause = c.Pause
	}
	if c.QueueAll != nil && c.QueueAll.holds(now) {
		in.QueueAll = c.QueueAll
	}
	if c.Message != nil && c.Message.holds(now) {
		in.Message = c.Message
	}
	if c.Limits != nil && c.Limits.holds(now) {
		in.Limits = c.Limits
	}
	if in == (Control{}) {
		return nil
	}
	return &in
}

// Under returns s as it is in force at now under c: what c says goes before what s says.
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

// Surely returns s under c by a clock that is off by bound at most: with the smaller limits where some may have ended
// or not, and with those that bind where a pause over passthrough may have.
func (s Settings) Surely(c *Control, now int64, bound time.Duration) Settings {
	out := s.Under(c, now)
	for _, at := range []int64{now - bound.Milliseconds(), now + bound.Milliseconds()} {
		o := s.Under(c, at)
		out.TotalActiveUsers, out.NewUsersPerMinute = min(out.TotalActiveUsers, o.TotalActiveUsers), min(out.NewUsersPerMinute, o.NewUsersPerMinute)
		if out.QueueingMethod == MethodPassthrough {
			out.QueueAll = out.QueueAll || o.QueueAll // under which limits bind
		}
	}
	return out
}

// marks are those of everything that c says.
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

// Next returns the first moment after now at which something ends, 0 for never.
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

// Check returns everything that is wrong with c. Each error names the part and the rule.
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

// DecodeControls reads what EncodeControls wrote. It refuses fields that it does not know: what a newer release
// says by them is not known here, so the document of before stays in force.
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

// controlledID returns the ID in the id that the API gives a room.
func controlledID(public string) (ID, error) {
	if len(public) != 32 {
		return 0, errors.New("an id must be 32 hexadecimal digits")
	}
	n, err := strconv.ParseUint(public[:16], 16, 64)
	if err != nil {
		return 0, errors.New("an id must be 32 hexadecimal digits")
	}
	return ID(n), nil
}
