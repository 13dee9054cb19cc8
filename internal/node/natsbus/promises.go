package natsbus

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/wire"
)

// Promises are the stored promises of a data centre: the followed parent, and the roster of edges.
//
// One value, the head, is written by compare-and-set, which is the fence. The state of dead edges lies in sections,
// separate values named by the head. Sections are written before their head, and never changed: their names contain the
// writer's term, so that a replaced writer cannot touch those of its successor. Unnamed sections are removed.
type Promises struct {
	conn     *Conn
	dc       string
	replicas int

	kv  jetstream.KeyValue
	val wire.Promises
	rev uint64

	pieces   map[*wire.RosterRoom][][]byte // of rooms encoded before
	sections map[[sha256.Size]byte]string  // key of every stored section, by its checksum
	number   uint64                        // number of the newest section; its name is never reused
	swept    time.Time                     // time of the last listing of sections
}

var _ wire.PromiseStore = (*Promises)(nil)

const promisesBucket = "vestibule_promises"

// sweepEvery is the interval of listings of the stored sections. It finds those of a writer that died before naming
// them, and missing ones.
const sweepEvery = time.Minute

// NewPromises returns the promises of data centre dc; replicas applies if the bucket has to be created.
func NewPromises(conn *Conn, dc string, replicas int) *Promises {
	return &Promises{conn: conn, dc: dc, replicas: replicas}
}

// Open implements [wire.PromiseStore].
func (p *Promises) Open(ctx context.Context, term wire.Term) (wire.Durable, error) {
	kv, err := p.conn.bucket(ctx, promisesBucket, p.replicas)
	if err != nil {
		return wire.Durable{}, err
	}
	p.kv = kv
	for {
		e, err := kv.Get(ctx, p.dc)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			p.val, p.rev = wire.Promises{}, 0
		case err != nil:
			return wire.Durable{}, fmt.Errorf("promises of %s: %w", p.dc, err)
		default:
			val, err := wire.DecodePromises(e.Value())
			if err != nil {
				return wire.Durable{}, fmt.Errorf("promises of %s: %w", p.dc, err)
			}
			p.val, p.rev = *val, e.Revision()
		}
		if p.val.Owner.N > term.N {
			return wire.Durable{}, &wire.FencedError{Term: p.val.Owner.N}
		}
		p.pieces, p.sections = map[*wire.RosterRoom][][]byte{}, map[[sha256.Size]byte]string{}
		if err := p.readSections(ctx); err != nil {
			return wire.Durable{}, fmt.Errorf("promises of %s: %w", p.dc, err)
		}
		// The read may have been stale. Only this write decides, and it makes the next write of every older owner fail.
		p.val.Owner = term
		err = p.write(ctx)
		if err == nil {
			return p.val.Durable, nil
		}
		// Nothing is written over an unread value: a predecessor may have stored more meanwhile.
		if !errors.Is(err, wire.ErrFenced) && !errors.Is(err, errWriteAgain) {
			return wire.Durable{}, err
		}
		select {
		case <-ctx.Done():
			return wire.Durable{}, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// missingWait is how long to look for a section named by the head, since a replica may be behind.
const missingWait = time.Second

// readSections adds the sections named by the head. For a lost one it puts an unknown past on the roster.
func (p *Promises) readSections(ctx context.Context) error {
	for _, s := range p.val.Sections {
		err := p.readSection(ctx, s)
		if err == nil {
			p.sections[s.Sum] = s.Key
			continue
		}
		if !errors.Is(err, errSectionLost) {
			return err
		}
		p.conn.log.Error("part of the promises is lost: no visitor is admitted until every possible session has ended",
			slog.String("dc", p.dc), slog.Any("error", err))
		p.val.Lose()
	}
	p.val.Sections = nil
	return nil
}

var errSectionLost = errors.New("section lost")

func (p *Promises) readSection(ctx context.Context, s wire.Section) error {
	for begun := time.Now(); ; {
		e, err := p.kv.Get(ctx, s.Key)
		if err == nil {
			if err = p.val.Join(s, e.Value()); err != nil {
				return fmt.Errorf("%w: %w", errSectionLost, err)
			}
			return nil
		}
		if !errors.Is(err, jetstream.ErrKeyNotFound) {
			return err
		}
		if time.Since(begun) > missingWait {
			return fmt.Errorf("%w: %s", errSectionLost, s.Key)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// errWriteAgain reports a refused write that may succeed if repeated.
var errWriteAgain = errors.New("write again")

// Put implements [wire.PromiseStore].
func (p *Promises) Put(ctx context.Context, d wire.Durable) error {
	p.val.Durable = d
	return p.write(ctx)
}

// encode returns the head, after storing all its sections.
func (p *Promises) encode(ctx context.Context) ([]byte, error) {
	p.val.Sections = nil
	var pieces [][]byte
	kept := map[*wire.RosterRoom][][]byte{}
	for i := range p.val.Durable.Roster {
		e := &p.val.Durable.Roster[i]
		if len(e.Rooms) == 0 {
			continue
		}
		mine, known := p.pieces[&e.Rooms[0]]
		if !known {
			mine = wire.Pieces(e)
		}
		kept[&e.Rooms[0]] = mine
		pieces = append(pieces, mine...)
	}
	p.pieces = kept
	for _, content := range wire.CutSections(pieces) {
		data, sum, err := wire.PackSection(content)
		if err != nil {
			return nil, err
		}
		key, stored := p.sections[sum]
		if !stored {
			p.number++
			key = fmt.Sprintf("%s.%d-%016x.%d", p.dc, p.val.Owner.N, p.val.Owner.Nonce, p.number)
			if _, err := p.kv.Put(ctx, key, data); err != nil {
				return nil, fmt.Errorf("section: %w", err)
			}
			p.sections[sum] = key
		}
		p.val.Sections = append(p.val.Sections, wire.Section{Key: key, Sum: sum})
	}
	return wire.EncodeHead(&p.val)
}

// sweep removes the sections that the head, just written, does not name, except those of a higher term, which belong to
// a successor.
func (p *Promises) sweep(ctx context.Context) {
	named := map[string]bool{}
	for _, s := range p.val.Sections {
		named[s.Key] = true
	}
	var gone []string
	for sum, key := range p.sections {
		if !named[key] {
			gone = append(gone, key)
			delete(p.sections, sum)
		}
	}
	if time.Since(p.swept) > sweepEvery {
		p.swept = time.Now()
		gone = append(gone, p.leftovers(ctx, named)...)
	}
	if len(gone) == 0 {
		return
	}
	js, err := p.conn.jetStream()
	if err != nil {
		p.conn.log.Debug("sections not removed", slog.Any("error", err))
		return
	}
	stream, err := js.Stream(ctx, "KV_"+promisesBucket)
	for _, key := range gone {
		if err == nil { // a deletion would leave a marker for ever
			err = stream.Purge(ctx, jetstream.WithPurgeSubject("$KV."+promisesBucket+"."+key))
		}
	}
	if err != nil {
		p.conn.log.Debug("sections not removed", slog.Any("error", err))
		p.swept = time.Time{} // the next sweep retries
	}
}

// leftovers returns the unnamed sections of this data centre: of earlier terms, or of this one.
func (p *Promises) leftovers(ctx context.Context, named map[string]bool) (gone []string) {
	keys, err := p.kv.ListKeysFiltered(ctx, p.dc+".>")
	if err != nil {
		p.conn.log.Debug("sections not listed", slog.Any("error", err))
		return nil
	}
	there := map[string]bool{}
	for key := range keys.Keys() {
		there[key] = true
		var n, nonce, number uint64
		_, err := fmt.Sscanf(strings.TrimPrefix(key, p.dc+"."), "%d-%x.%d", &n, &nonce, &number)
		ours := n == p.val.Owner.N && nonce == p.val.Owner.Nonce
		if err == nil && !named[key] && (n < p.val.Owner.N || ours) {
			gone = append(gone, key)
		}
	}
	for sum, key := range p.sections {
		if named[key] && !there[key] {
			p.conn.log.Error("the store has lost part of the promises; rewriting it", slog.String("section", key))
			delete(p.sections, sum)
		}
	}
	return gone
}

func (p *Promises) write(ctx context.Context) error {
	if !p.conn.Connected() {
		return fmt.Errorf("promises of %s: %w", p.dc, wire.ErrDown)
	}
	p.val.Write++
	data, err := p.encode(ctx)
	var rev uint64
	switch {
	case err != nil:
	case p.rev == 0:
		rev, err = p.kv.Create(ctx, p.dc, data)
	default:
		rev, err = p.kv.Update(ctx, p.dc, data, p.rev)
	}
	if err == nil {
		p.rev = rev
		p.sweep(ctx)
		return nil
	}
	if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrStreamNotFound) {
		kv, berr := p.conn.bucket(ctx, promisesBucket, p.replicas)
		if berr != nil {
			return fmt.Errorf("promises of %s: %w", p.dc, berr)
		}
		p.kv, p.rev = kv, 0
		clear(p.sections) // lost with it
		return fmt.Errorf("promises of %s: the store has lost them all: %w", p.dc, errWriteAgain)
	}
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("promises of %s: %w", p.dc, err)
	}
	// Refused. An earlier write of ours that timed out may have happened.
	e, gerr := p.kv.Get(ctx, p.dc)
	if errors.Is(gerr, jetstream.ErrKeyNotFound) {
		// No successor has opened them, or they would exist: ours are the newest.
		p.rev = 0
		clear(p.sections)
		return fmt.Errorf("promises of %s: the store has lost them: %w", p.dc, errWriteAgain)
	}
	if gerr != nil {
		return fmt.Errorf("promises of %s: %w", p.dc, gerr)
	}
	have, derr := wire.DecodePromises(e.Value())
	if derr != nil {
		return fmt.Errorf("promises of %s: %w", p.dc, derr)
	}
	if have.Owner.N < p.val.Owner.N {
		// The store was restored to an older state. The next compare-and-set decides.
		p.rev = e.Revision()
		clear(p.sections) // possibly newer than it
		return fmt.Errorf("promises of %s: the store holds those of term %d, older than ours: %w", p.dc, have.Owner.N,
			errWriteAgain)
	}
	if have.Owner != p.val.Owner {
		return wire.ErrFenced
	}
	p.rev = e.Revision()
	return fmt.Errorf("promises of %s: an earlier write succeeded: %w", p.dc, errWriteAgain)
}
