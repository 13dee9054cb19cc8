package natsbus

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// trouble records why the store accepts no lease, and since when. It is safe for concurrent use.
type trouble struct {
	mu    sync.Mutex
	since time.Time
	why   string
}

// record records the result of a write, nil for success. A lost connection or a faster rival says nothing about the
// store.
func (t *trouble) record(err error) {
	if errors.Is(err, wire.ErrDown) || errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, context.Canceled) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.since, t.why = time.Time{}, ""
		return
	}
	if t.since.IsZero() {
		t.since = time.Now()
	}
	t.why = err.Error()
}

// Trouble implements [wire.Leadership].
func (l *Lease) Trouble() (time.Duration, string) {
	l.trouble.mu.Lock()
	defer l.trouble.mu.Unlock()
	if l.trouble.since.IsZero() {
		return 0, ""
	}
	return time.Since(l.trouble.since), l.trouble.why
}

// stand watches the key until it may be taken, takes it, and leads.
func (l *Lease) stand(ctx context.Context, minTerm func() uint64, lead func(context.Context, wire.Leading)) error {
	again := l.conn.link.next()
	kv, err := l.open(ctx)
	if err != nil {
		l.trouble.record(err)
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	t, err := l.acquire(ctx, kv, again, minTerm)
	if err != nil {
		return err
	}
	l.lead(ctx, kv, t, lead)
	return nil
}

// open returns the bucket of leases. It waits for 2 s, and twice as long each time that this is too short: what is lost
// is asked for again soon, and a slow store is waited for.
func (l *Lease) open(ctx context.Context) (jetstream.KeyValue, error) {
	const first, most = 2 * time.Second, 16 * time.Second
	l.patience = min(max(first, l.patience), most)
	open, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	kv, err := l.conn.bucket(open, leasesBucket, l.replicas)
	if l.patience *= 2; err == nil || open.Err() == nil {
		l.patience = first
	}
	return kv, err
}

// taken is an acquired lease.
type taken struct {
	value  leaseValue
	rev    uint64
	sent   fleettime.Mono // time of the request
	behind bool           // the store did not know an observed term
}

// end returns the end of the lease.
func (t *taken) end() fleettime.Mono { return t.sent.Add(fleettime.Shrink(t.value.length())) }

// candidature is a candidate's view of the key, and its own writes.
type candidature struct {
	*Lease
	kv    jetstream.KeyValue
	seen  leaseValue
	rev   uint64      // of the last entry seen, 0 for no key
	tried *taken      // our newest write with an unknown result, or nil
	timer *time.Timer // fires when the key may be taken, having not changed
}

// patience returns how long a rival waits without a change of a key with a lease of this length.
func patience(length time.Duration) time.Duration {
	return fleettime.Stretch(fleettime.Stretch(length)) + rivalMargin
}

// acquire watches the key until it may be taken, and takes it. It ends the watch: a leader does not read it, and
// nats.go would buffer its messages.
func (l *Lease) acquire(
	ctx context.Context, kv jetstream.KeyValue, again <-chan struct{}, minTerm func() uint64,
) (taken, error) {
	w, err := kv.Watch(ctx, l.name)
	if err != nil {
		return taken{}, fmt.Errorf("watch lease: %w", err)
	}
	defer func() {
		if err := w.Stop(); err != nil {
			l.log.Debug("watch did not end cleanly", slog.Any("error", err))
		}
	}()
	c := &candidature{Lease: l, kv: kv, timer: time.NewTimer(patience(LongestLease))} // for a key that is missing
	defer c.timer.Stop()
	for {
		free := false
		select {
		case <-ctx.Done():
			return taken{}, ctx.Err()
		case <-again:
			return taken{}, errAgain
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return taken{}, errors.New("watch lease: ended by the server")
			case e == nil: // the initial state is complete
				free = l.fresh && c.rev == 0 && !l.met && !l.conn.link.broken()
			default:
				won, given := c.observe(e)
				if won != nil {
					return *won, nil
				}
				free = given
			}
		case <-c.timer.C:
			free = true
		}
		if !free {
			continue
		}
		won, err := c.try(ctx, minTerm())
		if err != nil {
			return taken{}, err
		}
		if won != nil {
			return *won, nil
		}
	}
}

// observe records an entry of the key. It returns the lease if the entry is our write, and whether the leader released
// it.
func (c *candidature) observe(e jetstream.KeyValueEntry) (won *taken, given bool) {
	before := c.seen
	c.rev, c.seen = e.Revision(), leaseValue{}
	err := json.Unmarshal(e.Value(), &c.seen)
	if err != nil && len(e.Value()) > 0 {
		c.log.Error("the key holds no valid lease; taking it over if it does not change", slog.Any("error", err))
	}
	if c.tried != nil && c.seen == c.tried.value && c.now() < c.tried.end() {
		// Our write succeeded, only its response was lost.
		c.tried.rev = c.rev
		return c.tried, false
	}
	if before.Nonce != 0 && c.seen != before {
		c.trouble.record(nil) // another candidate writes
	}
	c.met = true
	if c.seen.Term > c.newest.N {
		c.newest = wire.Term{N: c.seen.Term, Nonce: c.seen.Nonce}
	}
	c.warnNamesake(c.seen)
	c.timer.Reset(patience(c.seen.length()))
	return nil, err == nil && c.seen.Leader == ""
}

// try writes our lease in place of the last entry seen, for a term above minTerm, and returns it if that certainly
// succeeded. After an error the watch is useless.
func (c *candidature) try(ctx context.Context, minTerm uint64) (*taken, error) {
	known := max(c.newest.N, minTerm)
	t := &taken{
		value: leaseValue{
			Leader: c.me, Nonce: nonce(), Term: max(known+1, c.seen.Term+1, unixSeconds()),
			Length: uint64(LongestLease / time.Millisecond),
		},
		sent:   c.now(),
		behind: known > c.seen.Term,
	}
	var err error
	t.rev, err = c.write(ctx, c.kv, t.value, c.rev, LongestLease/2)
	switch {
	case err == nil:
		return t, nil
	case errors.Is(err, jetstream.ErrKeyExists):
		return nil, errors.New("another candidate was faster") // or the watch is late: a new one is not
	}
	// It may have been written. Wait for the watch to tell.
	c.tried = t
	c.log.Debug("lease not taken", slog.Any("error", err))
	c.timer.Reset(patience(LongestLease))
	return nil, nil
}

// warnNamesake warns once of a rival with our name: a lease under it that is still being renewed is not from our
// previous process. Both stand like any candidates, since leases are identified by their nonce.
func (l *Lease) warnNamesake(seen leaseValue) {
	was := l.namesake
	l.namesake = seen
	if seen.Leader != l.me || l.me == "" || seen.Nonce != was.Nonce || seen.Beat == was.Beat || l.beats < 0 {
		return
	}
	if l.beats++; l.beats >= 3 {
		l.beats = -1
		l.log.Warn("another process with this one's name leads: give every candidate a name and a data_dir of its own",
			slog.String("name", l.me))
	}
}

// unixSeconds returns the current time in seconds, for terms.
func unixSeconds() uint64 { return uint64(max(0, time.Now().Unix())) }

// nonce returns a random number that identifies a write.
func nonce() uint64 {
	var b [8]byte
	rand.Read(b[:]) // documented never to fail
	return binary.BigEndian.Uint64(b[:])
}
