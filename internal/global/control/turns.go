package control

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/strictjson"
)

// Bounds of what the clients of a server have computed and kept in memory at once: a leading global has its lease and
// its grants to look after.
const (
	smallBody    = 64 << 10         // bytes; one larger body is in memory at a time
	maxAtOnce    = 4                // requests of a principal that are served at once
	maxWaiting   = 60               // more of them wait
	waitAtMost   = 10 * time.Second // for a turn
	largeWithin  = 15 * time.Second // a large body must have arrived
	answerWithin = 30 * time.Second // an operation must have answered
)

// bodyBounds bound the body of an operation.
type bodyBounds struct {
	bytes int64
	strictjson.Bounds
}

var (
	small = bodyBounds{smallBody, strictjson.Bounds{Depth: 8, Each: 1000, Values: 4000, Text: smallBody}}
	// large bodies have waiting pages, or a hundred rules.
	large = bodyBounds{maxBody, strictjson.Bounds{Depth: 8, Each: 1000, Values: 4000, Text: maxBody}}
	// files have a rooms file, and its pages by name.
	files = bodyBounds{maxApply, strictjson.Bounds{
		Depth: 3, Each: 2*room.MaxRooms + 1, Values: 3 * room.MaxRooms, Text: maxApply,
	}}
)

// bounds returns the bounds of the operation's body.
func (o *operation) bounds() *bodyBounds {
	switch o.id {
	case "apply-rooms":
		return &files
	case "waiting-room-create-waiting-room", "waiting-room-update-waiting-room", "waiting-room-patch-waiting-room",
		"waiting-room-create-event", "waiting-room-update-event", "waiting-room-patch-event",
		"waiting-room-create-a-custom-waiting-room-page-preview", "waiting-room-replace-waiting-room-rules":
		return &large
	}
	return &small
}

// turns serve a few requests of each principal at once, and one large body of all. They are safe for concurrent use.
type turns struct {
	mu  sync.Mutex
	by  map[string]*queue // of principals with requests
	one chan struct{}     // holds an element while a large body is in memory
}

// queue is that of a principal.
type queue struct {
	running chan struct{} // an element for each request that is served
	n       int           // requests, with those that wait; under turns.mu
}

func newTurns() *turns { return &turns{by: map[string]*queue{}, one: make(chan struct{}, 1)} }

// busyError refuses a request that has no turn.
type busyError struct{ what string }

func (e *busyError) Error() string { return e.what }

// Turn is the turn of a request to be served.
type Turn struct {
	of    *turns
	who   string
	queue *queue // nil within the turn of a caller
	body  bool   // may have a large body
	held  bool   // of all, this turn has the large body
}

type turnKey struct{}

// take waits for a turn of a principal. A request within a turn has that one.
func (t *turns) take(ctx context.Context, who string) (*Turn, error) {
	if caller, ok := ctx.Value(turnKey{}).(*Turn); ok {
		return &Turn{of: t, body: caller.body}, nil
	}
	t.mu.Lock()
	q := t.by[who]
	if q == nil {
		q = &queue{running: make(chan struct{}, maxAtOnce)}
		t.by[who] = q
	}
	q.n++
	crowd := q.n > maxAtOnce+maxWaiting
	t.mu.Unlock()
	if crowd || !enter(ctx, q.running) {
		t.leave(who, q)
		return nil, &busyError{fmt.Sprintf("this is one of more than %d requests of yours at once", maxAtOnce)}
	}
	return &Turn{of: t, who: who, queue: q}, nil
}

// Turn returns a request of a principal with its body in memory, once it has its turn. Its [Server.Call] calls have it
// too, until end, which is nil for none. most bounds the body, in bytes.
func (s *Server) Turn(
	w http.ResponseWriter, r *http.Request, who Principal, most int64,
) (turned *http.Request, end func(), err error) {
	turn, err := s.out.turns.take(r.Context(), who.ID)
	if err != nil {
		return r, nil, explain(err)
	}
	q := &request{Request: r, w: w, turn: turn}
	body, err := q.take(most)
	if err != nil {
		return r, turn.End, explain(err)
	}
	turned = r.WithContext(context.WithValue(r.Context(), turnKey{}, turn))
	turned.Body = io.NopCloser(bytes.NewReader(body))
	return turned, turn.End, nil
}

func (t *turns) leave(who string, q *queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.n--; q.n == 0 {
		delete(t.by, who)
	}
}

// enter adds an element to a channel. It returns false if there was no space for a while.
func enter(ctx context.Context, c chan<- struct{}) bool {
	timer := time.NewTimer(waitAtMost)
	defer timer.Stop()
	select {
	case c <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// large waits for the turn of a large body.
func (u *Turn) large(ctx context.Context) error {
	if u.body {
		return nil
	}
	if !enter(ctx, u.of.one) {
		return &busyError{fmt.Sprintf("another body of more than %d bytes is being read", smallBody)}
	}
	u.body, u.held = true, true
	return nil
}

// End gives the turn to the next request.
func (u *Turn) End() {
	if u.held {
		<-u.of.one
	}
	if u.queue != nil {
		<-u.queue.running
		u.of.leave(u.who, u.queue)
	}
}
