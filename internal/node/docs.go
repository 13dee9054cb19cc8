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
	ring     atomic.Pointer[ticket.Keyring]

	members atomic.Pointer[Members] // nil before the first list, and at edges

	base     *room.Set                     // as published; set adds event phases and controls
	controls atomic.Pointer[room.Controls] // nil before the first
	board    atomic.Pointer[draw.Board]    // public state of draws, nil before the first
	laid     int64                         // fleet time of set, in milliseconds
	bound    time.Duration                 // its uncertainty
	ends     int64                         // fleet time of the next change of a phase or a control, 0 for never
	clock    atomic.Pointer[func() (fleettime.Time, time.Duration)]

	pages pageCache
	keyConfirmation
	*alarms
	version *prometheus.GaugeVec
}

// NewFleet loads the copies on disk. It calls changed after every change, never concurrently.
func NewFleet(dir string, docs wire.DocumentFeed, log *slog.Logger, reg prometheus.Registerer, changed func()) (*Fleet, error) {
	log = log.With(slog.String("component", "fleet"))
	f := &Fleet{
		dir: dir, docs: docs, log: log, changed: changed, alarms: newAlarms(log, reg),
		version: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "vestibule_document_version", Help: "Version of the document in use, 0 for none.",
		}, []string{"document"}),
		pages:           pageCache{dir: dir, docs: docs, log: log},
		keyConfirmation: keyConfirmation{doubts: make(chan struct{}, 1), begun: time.Now()},
	}
	reg.MustRegister(f.version)
	for _, doc := range followed {
		f.version.WithLabelValues(doc).Set(0)
	}
	f.Tell(func() (fleettime.Time, time.Duration) { return fleettime.TimeOf(time.Now()), 0 })
	f.ring.Store(&ticket.Keyring{})
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
		if err := f.adopt(doc, data); err != nil {
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
func (f *Fleet) Ring() ticket.Keyring { return *f.ring.Load() }

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
	base := f.base.Told(f.board.Load())
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
	keys, members, controls, board := f.ring.Load(), f.members.Load(), f.controls.Load(), f.board.Load()
	err := f.adopt(doc, data)
	if f.record(doc, err) || (f.ring.Load() == keys && f.members.Load() == members && f.controls.Load() == controls && f.board.Load() == board) {
		return
	}
	f.saveCopy(doc, data)
}

// saveCopy stores a copy of a new document and calls changed.
func (f *Fleet) saveCopy(doc string, data []byte) {
	if err := WriteFile(copyFile(f.dir, doc), data); err != nil {
		f.log.Error("last good copy not written", slog.String("document", doc), slog.Any("error", err))
	}
	f.log.Debug("document updated", slog.String("document", doc), slog.Uint64("rooms", f.set.Load().Version()), slog.Uint64("keys", f.ring.Load().Version))
	f.changed()
}

// versionOf returns the version of a document in use, or 0.
func (f *Fleet) versionOf(doc string) uint64 {
	switch doc {
	case RoomsDocument:
		return f.set.Load().Version()
	case MembersDocument:
		if m := f.members.Load(); m != nil {
			return m.Version
		}
		return 0
	case ControlsDocument:
		if c := f.controls.Load(); c != nil {
			return c.Version
		}
		return 0
	case DrawsDocument:
		if b := f.board.Load(); b != nil {
			return b.Version
		}
		return 0
	}
	return f.ring.Load().Version
}

// adopt switches to a document. It does nothing for the one in use.
func (f *Fleet) adopt(doc string, data []byte) error {
	if data == nil {
		have := f.versionOf(doc)
		if have == 0 {
			return nil // a new fleet
		}
		return &refusedError{why: missing, have: have}
	}
	switch doc {
	case RoomsDocument:
		version, d, err := roomdoc.DecodeRooms(data)
		if err != nil {
			return err
		}
		return f.adoptRooms(roomsOffer{version: version, doc: d})
	case KeysDocument:
		return f.adoptKeys(data)
	case MembersDocument:
		m, err := DecodeMembers(data)
		if err != nil {
			return err
		}
		_, err = replace(f, doc, &f.members, m, func(m *Members) uint64 { return m.Version })
		return err
	case ControlsDocument:
		c, err := room.DecodeControls(data)
		if err != nil {
			return err
		}
		news, err := replace(f, doc, &f.controls, c, func(c *room.Controls) uint64 { return c.Version })
		if news {
			f.rebuild()
		}
		return err
	case DrawsDocument:
		b, err := draw.DecodeBoard(data)
		if err != nil {
			return err
		}
		news, err := replace(f, doc, &f.board, b, func(b *draw.Board) uint64 { return b.Version })
		if news {
			f.rebuild()
		}
		return err
	}
	return fmt.Errorf("unknown document %q", doc)
}

// replace switches to next unless it equals the document in use. It reports whether it did.
func replace[T any](f *Fleet, doc string, in *atomic.Pointer[T], next *T, version func(*T) uint64) (news bool, err error) {
	if have := in.Load(); have != nil {
		same := reflect.DeepEqual(next, have)
		if err := succeeds(version(have), version(next), same); err != nil || same {
			return false, err
		}
	}
	in.Store(next)
	f.version.WithLabelValues(doc).Set(float64(version(next)))
	return true, nil
}

// adoptKeys switches to a key ring, like adopt.
func (f *Fleet) adoptKeys(data []byte) error {
	ring, err := ticket.DecodeKeyring(data)
	if err != nil {
		return err
	}
	have := f.ring.Load()
	same := ring.Equal(*have)
	switch err := succeeds(have.Version, ring.Version, same); {
	case len(ring.Keys) == 0 && len(have.Keys) > 0:
		return &refusedError{older, have.Version, ring.Version}
	case err != nil || same:
		return err
	case !ring.Newer(*have):
		return &refusedError{older, have.Version, ring.Version}
	case !ring.Continues(*have):
		return &refusedError{foreign, have.Version, ring.Version}
	}
	f.ring.Store(&ring)
	f.version.WithLabelValues(KeysDocument).Set(float64(ring.Version))
	return nil
}
