package console

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

// reading is the state of one room at one moment.
type reading struct {
	at       time.Time
	room     api.Room
	status   *api.Status // nil without a leading global
	controls api.Controls
	release  *api.Release // newest of the current pause, nil for none

	last lately // nil if it is unknown
}

// lately is the last minute of a room.
type lately history.Row

// number returns a column. ok is false if it is unknown.
func (l lately) number(column string) (n float64, ok bool) {
	i := slices.IndexFunc(history.Columns, func(c history.Column) bool { return c.Name == column })
	if i < 0 || i >= len(l) || math.IsNaN(l[i]) {
		return 0, false
	}
	return l[i], true
}

// count returns a total of the minute, as text.
func (l lately) count(column string) string {
	n, ok := l.number(column)
	if !ok {
		return unknown
	}
	return count(int(n))
}

// minutes returns a number of seconds in minutes, and the unit.
func (l lately) minutes(column string) (n, unit string) {
	s, ok := l.number(column)
	if !ok {
		return unknown, ""
	}
	return waitWords(int(math.Ceil(s / 60)))
}

const zonePath = "/zones/" // followed by the zone

// roomsPath returns the path of rooms in the API.
func roomsPath() string { return zonePath + control.Zone + "/waiting_rooms" }

// ownPath returns the path of a room's operations that the hosted product lacks.
func ownPath(id string) string { return "/vestibule/rooms/" + id }

// caller calls an operation for somebody.
type caller func(method, path string, body, result any) error

// readRoom reads a room.
func (c *Console) readRoom(call caller, id string) (*reading, error) {
	rd := &reading{at: time.Now()}
	if err := call(http.MethodGet, roomsPath()+"/"+id, nil, &rd.room); err != nil {
		return nil, err
	}
	if err := call(http.MethodGet, ownPath(id)+"/controls", nil, &rd.controls); err != nil {
		return nil, err
	}
	var releases []api.Release
	if err := call(http.MethodGet, ownPath(id)+"/releases", nil, &releases); err != nil {
		return nil, err
	}
	if len(releases) > 0 {
		rd.release = &releases[0]
	}
	if name, ok := rd.room.Vestibule["identity"].(string); ok && c.Live != nil {
		if m, ok := c.Live(room.IDOf(name)); ok {
			rd.last = lately(m.Row())
		}
	}
	var err error
	rd.status, err = readStatus(call, id)
	return rd, err
}

// readStatus reads the numbers of a room; nil if there is no leading global.
func readStatus(call caller, id string) (*api.Status, error) {
	var status api.Status
	err := call(http.MethodGet, roomsPath()+"/"+id+"/status", nil, &status)
	if control.Status(err) == http.StatusServiceUnavailable {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &status, nil
}

// shared is the newest reading of one thing. Its lock is held while it is read, so that streams wait for one reading.
type shared struct {
	mu    sync.Mutex
	at    time.Time
	value any
	notes []string // why it is old
	err   error
}

const (
	maxShared = 200
	sharedFor = 700 * time.Millisecond // less than the interval of streams
)

// newest returns the newest reading under a key, for an operator.
func newest[T any](q *request, key string, read func(caller) (T, error)) (T, []string, error) {
	// A stream begins with a reading for its operator, and shares the others with all operators of the same rooms.
	who := control.Principal{Name: "console", Role: control.Viewer, Rooms: q.who.Rooms}
	key += " " + strings.Join(who.Rooms, " ")
	s, ok := q.c.readings.Get(key)
	if !ok {
		s = &shared{}
		if first, ok, _ := q.c.readings.PeekOrAdd(key, s); ok {
			s = first
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.at) >= sharedFor {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(q.Context()), 5*time.Second) // others wait for it too
		s.notes = nil
		noting := control.Noting(ctx, func(message string) {
			if !slices.Contains(s.notes, message) {
				s.notes = append(s.notes, message)
			}
		})
		s.value, s.err = read(func(method, path string, body, result any) error {
			return q.c.API.Call(noting, who, "", method, path, body, result)
		})
		cancel()
		s.at = now
	}
	value, ok := s.value.(T)
	if !ok {
		return value, s.notes, fmt.Errorf("reading of %s: %w", key, s.err)
	}
	return value, s.notes, s.err
}
