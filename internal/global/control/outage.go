package control

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"vestibule/internal/global/roomstore"
)

// While the store does not answer, requests that change nothing are served from what this candidate knows, and their
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

// currentKey marks the context of a request whose caller does not read the messages of the answer.
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

// mayBeOld returns where to note that the answer is old; nil for a request whose answer must be current.
func mayBeOld(ctx context.Context) *old {
	o, _ := ctx.Value(oldKey{}).(*old)
	return o
}

// current returns the rooms: those in the store, or if it does not answer and the request only reads, those that this
// candidate knows.
func (c *catalog) current(ctx context.Context) (state *roomstore.State, err error) {
	age := mayBeOld(ctx)
	if age == nil {
		return c.store.Read(ctx)
	}
	err = c.outage.read(ctx, func(ctx context.Context) error {
		state, err = c.store.Read(ctx)
		return err
	})
	if err == nil {
		return state, nil
	}
	known := c.store.Known()
	if known == nil {
		return nil, err
	}
	age.since(c.store.Seen(), noStore)
	return known, nil
}

// keptTokens are the tokens that were valid lately. It is safe for concurrent use.
type keptTokens struct {
	mu sync.Mutex
	by *simplelru.LRU[string, keptToken]
}

type keptToken struct {
	token
	at time.Time
}

func newKeptTokens() *keptTokens {
	by, err := simplelru.NewLRU[string, keptToken](maxTokens, nil)
	if err != nil {
		panic(err) // for a size below 1
	}
	return &keptTokens{by: by}
}

// keep remembers a valid token.
func (k *keptTokens) keep(now time.Time, id string, t *token) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.by.Add(id, keptToken{*t, now})
}

// get returns a token that was valid lately, nil for none.
func (k *keptTokens) get(now time.Time, id string) *token {
	k.mu.Lock()
	defer k.mu.Unlock()
	t, ok := k.by.Get(id)
	if !ok || now.Sub(t.at) > keptFor {
		return nil
	}
	return &t.token
}
