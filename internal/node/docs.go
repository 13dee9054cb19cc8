package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// Documents that global publishes and every node watches.
const (
	RoomsDocument    = roomdoc.RoomsDocument
	KeysDocument     = "keys"
	ControlsDocument = "controls"
	DrawsDocument    = "draws"

	// NotifierDocument has the secret of notifications, for notifiers only. Other nodes have it in the keys.
	NotifierDocument = "notifier"
)

// followed lists the documents that nodes keep copies of.
var followed = []string{RoomsDocument, KeysDocument, MembersDocument, ControlsDocument, DrawsDocument}

// Fleet is this node's view of the fleet's documents: the room set, the keys, the custom pages, and at globals and
// regionals the list of data centres. It keeps copies of the last valid ones on disk. An older, empty or invalid
// document never replaces them; while the store holds a rejected one, there is an alarm. It is safe for concurrent
// use.
type Fleet struct {
	dir     string
	docs    wire.DocumentFeed
	log     *slog.Logger
	changed func()

	mu       sync.Mutex
	turn     uint64                   // number of the newest offer of rooms
	late     []byte                   // that offer, while some of its sections are missing
	sections map[string]room.Document // of the current rooms, by content hash
	digest   [sha256.Size]byte        // of the sorted rooms of set, with defaults
	set      atomic.Pointer[room.Set]
	base     *room.Set     // as published; set adds event phases and controls
	laid     int64         // fleet time of set, in milliseconds
	bound    time.Duration // its uncertainty
	ends     int64         // fleet time of the next change of a phase or a control, 0 for never
	clock    atomic.Pointer[func() (fleettime.Time, time.Duration)]

	keys     document[ticket.Keyring]
	members  document[Members] // nil before the first list, and at edges
	controls document[room.Controls]
	board    document[draw.Board]
	inUse    map[string]inUse // all of them by name, and the rooms

	pages pageCache
	keyConfirmation
	*alarms
	version *prometheus.GaugeVec
}

// inUse is a document as this node uses it.
type inUse interface {
	version() uint64                  // 0 before the first
	adopt(data []byte) (bool, error)  // switches to another one, and reports whether it did
	encoded() (uint64, []byte, error) // with its version; nil before the first
}

// document is a document of one value, nil before the first.
type document[T any] struct {
	atomic.Pointer[T]
	number func(*T) uint64 // its version
	decode func([]byte) (*T, error)
	encode func(*T) ([]byte, error)
	check  func(have, next *T) error // beside the version; nil for none
}

func (d *document[T]) version() uint64 {
	if v := d.Load(); v != nil {
		return d.number(v)
	}
	return 0
}

func (d *document[T]) adopt(data []byte) (bool, error) {
	next, err := d.decode(data)
	if err != nil {
		return false, err
	}
	if have := d.Load(); have != nil {
		same := reflect.DeepEqual(next, have)
		err := succeeds(d.number(have), d.number(next), same)
		if err == nil && !same && d.check != nil {
			err = d.check(have, next)
		}
		if err != nil || same {
			return false, err
		}
	}
	d.Store(next)
	return true, nil
}

func (d *document[T]) encoded() (uint64, []byte, error) {
	v := d.Load()
	if v == nil {
		return 0, nil, nil
	}
	data, err := d.encode(v)
	return d.number(v), data, err
}

// keysFollow returns an error if next does not follow the keys in use.
func keysFollow(have, next *ticket.Keyring) error {
	switch {
	case !next.Newer(*have):
		return &refusedError{older, have.Version, next.Version}
	case !next.Continues(*have):
		return &refusedError{foreign, have.Version, next.Version}
	}
	return nil
}

// NewFleet loads the copies on disk. It calls changed after every change, never concurrently.
func NewFleet(
	dir string, docs wire.DocumentFeed, log *slog.Logger, reg prometheus.Registerer, changed func(),
) (*Fleet, error) {
	log = log.With(slog.String("component", "fleet"))
	f := &Fleet{
		dir: dir, docs: docs, log: log, changed: changed, alarms: newAlarms(log, reg),
		version: Meter{reg}.Gauges("vestibule_document_version", "Version of the document in use, 0 for none.", "document",
			followed...),
		pages:           pageCache{dir: dir, docs: docs, log: log},
		keyConfirmation: keyConfirmation{doubts: make(chan struct{}, 1), begun: time.Now()},
		keys: document[ticket.Keyring]{
			number: func(r *ticket.Keyring) uint64 { return r.Version }, check: keysFollow,
			decode: func(data []byte) (*ticket.Keyring, error) {
				r, err := ticket.DecodeKeyring(data)
				return &r, err
			},
			encode: func(r *ticket.Keyring) ([]byte, error) { return ticket.EncodeKeyring(*r) },
		},
		members: document[Members]{
			number: func(m *Members) uint64 { return m.Version }, decode: DecodeMembers, encode: EncodeMembers,
		},
		controls: document[room.Controls]{
			number: func(c *room.Controls) uint64 { return c.Version }, decode: room.DecodeControls, encode: room.EncodeControls,
		},
		board: document[draw.Board]{
			number: func(b *draw.Board) uint64 { return b.Version }, decode: draw.DecodeBoard, encode: draw.EncodeBoard,
		},
	}
	f.inUse = map[string]inUse{
		RoomsDocument: roomsInUse{f}, KeysDocument: &f.keys, MembersDocument: &f.members, ControlsDocument: &f.controls,
		DrawsDocument: &f.board,
	}
	f.Tell(func() (fleettime.Time, time.Duration) { return fleettime.TimeOf(time.Now()), 0 })
	f.pages.byHash.Store(&map[string][]byte{})
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	for _, doc := range followed {
		data, err := os.ReadFile(copyFile(dir, doc))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("data_dir: %w", err)
		}
		if _, err := f.adopt(doc, data); err != nil {
			f.log.Error("last good copy cannot be used", slog.String("document", doc), slog.Any("error", err))
		}
	}
	return f, nil
}

// copyFile returns the file with the copy of a document.
func copyFile(dir, doc string) string { return filepath.Join(dir, doc+".json") }

// Set returns the current room set, or nil before the first.
func (f *Fleet) Set() *room.Set { return f.set.Load() }

// Ring returns the current keys, empty before the first.
func (f *Fleet) Ring() (ring ticket.Keyring) {
	if r := f.keys.Load(); r != nil {
		ring = *r
	}
	return ring
}

// Controls returns the operators' current controls, or nil before the first. It must not be modified.
func (f *Fleet) Controls() *room.Controls { return f.controls.Load() }

// Board returns the public state of draws, or nil before the first. It must not be modified.
func (f *Fleet) Board() *draw.Board { return f.board.Load() }

// Tell sets the clock for event phases and controls, fleet time with its uncertainty. Before, they follow the
// machine's clock.
func (f *Fleet) Tell(now func() (fleettime.Time, time.Duration)) { f.clock.Store(&now) }

// rebuild builds the current room set from the published one, its events and the controls.
func (f *Fleet) rebuild() {
	now, bound := (*f.clock.Load())()
	f.laid, f.bound = int64(now), bound
	base := f.base.WithDraws(f.board.Load())
	f.ends = base.Next(f.controls.Load(), f.laid, f.bound)
	f.set.Store(base.Under(f.controls.Load(), f.laid, f.bound))
}

// updatePhase rebuilds the room set if a phase or a control has begun or ended since, also by a correction of the
// clock. It returns the time until the next check.
func (f *Fleet) updatePhase() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.controls.Load() == nil && !f.base.Planned() {
		return lateEvery
	}
	t, bound := (*f.clock.Load())()
	now := int64(t)
	if now < f.laid || (f.ends != 0 && now >= f.ends) || (bound-f.bound).Abs() > fleettime.Guard {
		before := f.set.Load()
		if f.rebuild(); f.set.Load() != before {
			f.log.Info("rooms rebuilt for a phase of an event or the end of a control", slog.Uint64("rooms", f.base.Version()))
			f.changed()
		}
	}
	if left := time.Duration(f.ends-now) * time.Millisecond; f.ends != 0 && left < lateEvery {
		return max(left, time.Millisecond)
	}
	return lateEvery
}

// Members returns the current list of data centres, or nil before the first.
func (f *Fleet) Members() *Members { return f.members.Load() }

// Run follows the documents until ctx ends.
func (f *Fleet) Run(ctx context.Context) error {
	var again sync.WaitGroup
	defer again.Wait()
	again.Go(func() { // a page or section may reach the store's replicas after the document that refers to it
		again := time.NewTimer(0)
		defer again.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
			f.retry(ctx, n%pagesEvery == 0)
			again.Reset(f.updatePhase())
		}
	})
	again.Go(func() { f.confirm(ctx, f) })
	return f.docs.Watch(ctx, func(key string, data []byte) { f.Offer(ctx, key, data) })
}

const (
	lateEvery  = 250 * time.Millisecond // interval of look-ups of missing sections
	pagesEvery = 8                      // intervals between look-ups of pages
)

// retry loads sections and pages that were missing.
func (f *Fleet) retry(ctx context.Context, pages bool) {
	f.mu.Lock()
	late, turn, missing := f.late, f.turn, f.pages.missing
	f.mu.Unlock()
	if late != nil {
		f.offerRooms(ctx, turn, late)
	}
	if !pages || len(missing) == 0 {
		return
	}
	got := f.pages.fetchAll(ctx, missing)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(got) > 0 {
		f.pages.keep(f.base, got)
		f.changed()
	}
}

// Offer handles a document from the store, or nil for a missing one. A rejected one is logged and counted, and the
// last valid one stays in use. It raises an alarm until the store holds the document in use, or a newer one.
func (f *Fleet) Offer(ctx context.Context, doc string, data []byte) {
	f.mu.Lock()
	if doc == RoomsDocument {
		f.turn, f.late = f.turn+1, nil
		turn := f.turn
		f.mu.Unlock()
		f.offerRooms(ctx, turn, data)
		return
	}
	defer f.mu.Unlock()
	news, err := f.adopt(doc, data)
	if !f.record(doc, err) && news {
		f.saveCopy(doc, data)
	}
}

// saveCopy stores a copy of a new document and calls changed.
func (f *Fleet) saveCopy(doc string, data []byte) {
	if err := WriteFile(copyFile(f.dir, doc), data); err != nil {
		f.log.Error("last good copy not written", slog.String("document", doc), slog.Any("error", err))
	}
	f.log.Debug("document updated",
		slog.String("document", doc), slog.Uint64("rooms", f.set.Load().Version()), slog.Uint64("keys", f.keys.version()))
	f.changed()
}

// adopt switches to a document, and reports whether it did: not to the one in use.
func (f *Fleet) adopt(doc string, data []byte) (news bool, err error) {
	d := f.inUse[doc]
	if d == nil {
		return false, fmt.Errorf("unknown document %q", doc)
	}
	if data != nil {
		news, err = d.adopt(data)
		return f.adopted(doc, news), err
	}
	if have := d.version(); have != 0 {
		return false, &refusedError{why: missing, have: have}
	}
	return false, nil // a new fleet
}

// adopted rebuilds the rooms after a new document, and counts it.
func (f *Fleet) adopted(doc string, news bool) bool {
	if news {
		if doc != KeysDocument && doc != MembersDocument {
			f.rebuild()
		}
		f.version.WithLabelValues(doc).Set(float64(f.inUse[doc].version()))
	}
	return news
}
