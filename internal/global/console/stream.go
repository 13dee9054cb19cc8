package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

const (
	maxStreams  = 1000
	streamEvery = time.Second
	streamFor   = 5 * time.Minute // then the browser connects again
	checkEvery  = 4 * time.Second // whether the session goes on
)

var errStreams = &control.RefusalError{Status: http.StatusServiceUnavailable, Notes: []api.Note{{
	Message: fmt.Sprintf("This global streams to %d pages already. Close some.", maxStreams),
}}}

// streamRooms streams a page of the list of rooms.
func streamRooms(q *request) error {
	x := readListQuery(q)
	return stream(q, "list", readList, func(l *listReading) values { return viewList(l, x).fields() })
}

// streamRoom streams the numbers of a room.
func streamRoom(q *request) error {
	id := q.PathValue("id")
	read := func(call caller) (*reading, error) { return q.c.readRoom(call, id) }
	return stream(q, "room "+id, read, viewRoom)
}

// streamFleet streams the values of the page of the fleet.
func streamFleet(q *request) error {
	return stream(q, "fleet", readFleet, func(f *api.Fleet) values { return viewFleet(time.Now(), f).Values })
}

// stream sends the values of readings under a key each second: all at first, then those that differ. All streams send
// at the begin of a second, so that they share one reading.
func stream[T any](q *request, key string, read func(caller) (T, error), view func(T) values) error {
	if _, err := read(q.call); err != nil { // may this operator see it?
		return err
	}
	select {
	case q.c.streams <- struct{}{}:
		defer func() { <-q.c.streams }()
	default:
		return errStreams
	}
	out := http.NewResponseController(q.w)
	if err := out.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err,
		http.ErrNotSupported) { // the server's is for requests
		return nil // the client disconnected
	}
	q.w.Header().Set("Content-Type", "text/event-stream")
	end := time.NewTimer(streamFor)
	defer end.Stop()
	sent, checked := values{}, time.Now()
	for {
		if now := time.Now(); now.Sub(checked) >= checkEvery {
			checked = now
			if who, ok := q.c.Who(q.Request); !ok || who.Role != q.who.Role {
				return nil // the browser connects again, and learns why
			}
		}
		if err := out.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil && !errors.Is(err,
			http.ErrNotSupported) {
			return nil // the client disconnected
		}
		got, notes, err := newest(q, key, read)
		news := values{}
		if err != nil {
			news["trouble"] = "These numbers are old: " + failureOf(err).Notes[0]
		} else {
			news["trouble"] = oldWords(notes)
			for name, value := range view(got) {
				if old, ok := sent[name]; !ok || old != value {
					news[name], sent[name] = value, value
				}
			}
		}
		data, err := json.Marshal(news)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(q.w, "data: %s\n\n", data); err != nil {
			return nil // the client disconnected
		}
		if err := out.Flush(); err != nil {
			return nil // the client disconnected
		}
		next := time.NewTimer(time.Until(time.Now().Truncate(streamEvery).Add(streamEvery)))
		select {
		case <-next.C:
			continue
		case <-q.Context().Done():
		case <-end.C:
		case <-q.c.stopped:
		}
		next.Stop()
		return nil
	}
}
