package members

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/jsondoc"
	"vestibule/internal/node"
)

// Request is the document by which an operator asks the leading global to initialize the fleet, and gets the answer: it
// works by any global and by NATS, and only one leader can answer.
type Request struct {
	ID    string    `json:"id"`
	At    time.Time `json:"at"`
	Done  string    `json:"done,omitempty"`
	Error string    `json:"error,omitempty"`
}

// Answered reports whether a leader has carried out or refused the request.
func (r *Request) Answered() bool { return r.Done != "" || r.Error != "" }

// ErrInitialized means that there is nothing to initialize.
var ErrInitialized = errors.New("the fleet is initialized already: nothing was changed; vestibule status says why nobody enters")

const (
	// InitFor is how long Init waits for the answer: longer than a leader waits for nodes.
	InitFor  = 30 * time.Second
	initLook = 200 * time.Millisecond
)

// Init asks the leading global to initialize the fleet, and returns its answer.
func (l *List) Init(ctx context.Context) (done string, err error) {
	ctx, cancel := context.WithTimeout(ctx, InitFor)
	defer cancel()
	tick := time.NewTicker(initLook)
	defer tick.Stop()
	data, _, err := l.Docs.Get(ctx, node.MembersDocument)
	for ; err != nil; data, _, err = l.Docs.Get(ctx, node.MembersDocument) { // the first leader makes the store
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", err
		}
	}
	if data != nil {
		return "", &RefusedError{ErrInitialized}
	}
	_, revision, err := l.Docs.Get(ctx, node.InitDocument)
	if err != nil {
		return "", err
	}
	own := &Request{ID: rand.Text(), At: time.Now()}
	if err := jsondoc.Write(ctx, l.Docs, node.InitDocument, own, revision); err != nil {
		if errors.Is(err, wire.ErrChanged) {
			err = &RefusedError{errors.New("somebody else initializes the fleet now")}
		}
		return "", err
	}
	for founded := false; ; { // the list: by an earlier request, since a leader answers before it founds the list
		before := founded
		if data, _, err := l.Docs.Get(ctx, node.MembersDocument); err == nil {
			founded = data != nil
		}
		r, _, err := jsondoc.Read[Request](ctx, l.Docs, node.InitDocument)
		switch {
		case err != nil && ctx.Err() == nil:
			return "", err
		case err != nil:
		case (r == nil || r.ID == own.ID && !r.Answered()) && before:
			return "", &RefusedError{ErrInitialized}
		case r == nil || r.ID == own.ID && !r.Answered():
		case r.ID != own.ID:
			return "", &RefusedError{errors.New("somebody else initializes the fleet now")}
		case r.Error != "":
			return "", &RefusedError{errors.New(r.Error)}
		default:
			return r.Done, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", &RefusedError{errors.New("no leading global has answered: see the alarms of its /readyz, and try again")}
		}
	}
}
