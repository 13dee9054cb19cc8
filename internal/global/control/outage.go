package control

import (
	"context"
	"errors"
	"sync"
	"time"
)

// While the store does not answer, requests that change nothing are served from this candidate's memory, and their
// answers say so. Changes are refused.
const (
	readWithin = 2 * time.Second  // how long a request that changes nothing waits for the store
	outageFor  = 3 * time.Second  // after a failure the store is not asked for so long
	keptFor    = 15 * time.Minute // how long after its last check a token is accepted without the store
)

// errOutage means that the store did not answer a moment ago.
var errOutage = errors.New(noStore)

// outage remembers that the store does not answer, so that only some requests wait for it. It is safe for concurrent
// use.
type outage struct {
	now func() time.Time

	mu    sync.Mutex
	until time.Time
}

// read calls get, which reads the store, unless it failed a moment ago.
func (o *outage) read(ctx context.Context, get func(context.Context) error) error {
	o.mu.Lock()
	down := o.now().Before(o.until)
	o.mu.Unlock()
	if down {
		return errOutage
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	err := get(ctx)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.until = o.now().Add(outageFor)
	}
	return err
}

// currentKey marks the context of a request by a caller that does not read the messages of the answer.
type currentKey struct{}

type oldKey struct{}

// old is the age of an answer, and its reason: the zero value if the answer is current.
type old struct {
	at  time.Time
	why string
}

const (
	noStore  = "the store does not answer"
	noLeader = "no global leads"
)

// since notes that the answer contains something as of t.
func (o *old) since(t time.Time, why string) {
	if o.at.IsZero() || t.Before(o.at) {
		*o = old{t, why}
	}
}

// mayBeOld returns where to note that the answer is old; nil for a request that needs a current answer.
func mayBeOld(ctx context.Context) *old {
	o, _ := ctx.Value(oldKey{}).(*old)
	return o
}
