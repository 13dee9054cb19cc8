package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/room"
	"vestibule/internal/roomstore"
	"vestibule/internal/slots"
	"vestibule/internal/ticket"
)

// The documents that global publishes and every node watches.
const (
	RoomsDocument = roomstore.RoomsDocument
	KeysDocument  = "keys"
)

// followed lists the documents of which a node may keep a last good copy.
var followed = []string{RoomsDocument, KeysDocument, MembersDocument}

// Documents is where documents come from.
type Documents interface {
	// Watch calls handle with every version of the rooms and the keys, and with
	// nil for one that is not there, until ctx ends, and returns ctx's error.
	Watch(ctx context.Context, handle func(key string, data []byte)) error

	// Get returns a document and its revision, (nil, 0) if there is none.
	Get(ctx context.Context, key string) ([]byte, uint64, error)
}

// Fleet is what this node was told of the fleet: the room set, the keys, the custom
// pages, and at globals and regionals the list of data centres. It keeps the last good copies on disk and never lets an older,
// an empty or a broken document replace them; while the store holds one that was
// refused, there is an alarm. It is safe for concurrent use.
type Fleet struct {
	dir     string
	docs    Documents
	log     *slog.Logger
	changed func()

	mu       sync.Mutex
	turn     uint64                   // number of the newest rooms that were offered
	late     []byte                   // those, while sections of them are not there yet
	sections map[string]room.Document // of the rooms in use, by content hash
	plain    []byte                   // the rooms of set, sorted, with their defaults
	missing  []string                 // content hashes of pages that set names and that are not here yet
	set      atomic.Pointer[room.Set]
	ring     atomic.Pointer[ticket.Keyring]
	pages    atomic.Pointer[map[string][]byte] // by content hash

	members atomic.Pointer[Members] // nil before there is a list, and at edges

	doubts    chan struct{} // somebody doubts that the keys are the newest
	confirmed atomic.Int64  // when the store was asked last whether they are, and said so: nanoseconds since begun, 0 for never
	begun     time.Time

	alarmMu sync.Mutex
	alarms  map[string]string // by document: why what the store holds is refused

	refused *prometheus.CounterVec
	version *prometheus.GaugeVec
	alarm   *prometheus.GaugeVec
}

// NewFleet returns what is on disk. changed is called after every change, not
// concurrently.
func NewFleet(dir string, docs Documents, log *slog.Logger, reg prometheus.Registerer, changed func()) (*Fleet, error) {
	f := &Fleet{
		dir: dir, docs: docs, log: log.With(slog.String("component", "fleet")), changed: changed,
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vestibule_documents_refused_total", Help: "Documents from the store that were refused, by document and reason.",
		}, []string{"document", "reason"}),
		version: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "vestibule_document_version", Help: "Version of the document in use, 0 for none.",
		}, []string{"document"}),
		alarm: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "vestibule_document_alarm", Help: "1 while what the store holds of the document is refused, 0 while it is what this node uses.",
		}, []string{"document"}),
		alarms: map[string]string{},
		doubts: make(chan struct{}, 1), begun: time.Now(),
	}
	reg.MustRegister(f.refused, f.version, f.alarm)
	for _, doc := range followed {
		f.version.WithLabelValues(doc).Set(0)
		f.alarm.WithLabelValues(doc).Set(0)
		for _, why := range []refusal{older, missing, differs, foreign, invalid} {
			f.refused.WithLabelValues(doc, string(why))
		}
	}
	f.ring.Store(&ticket.Keyring{})
	f.pages.Store(&map[string][]byte{})
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	for _, doc := range followed {
		data, err := os.ReadFile(f.file(doc))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("data_dir: %w", err)
		}
		if err := f.take(doc, data); err != nil {
			f.log.Error("last good copy cannot be used", slog.String("document", doc), slog.Any("error", err))
		}
	}
	return f, nil
}

func (f *Fleet) file(doc string) string { return filepath.Join(f.dir, doc+".json") }

// Set returns the room set in use, nil before there is one.
func (f *Fleet) Set() *room.Set { return f.set.Load() }

// Ring returns the keys in use; empty before there are any.
func (f *Fleet) Ring() ticket.Keyring { return *f.ring.Load() }

// Members returns the list of data centres in use, nil before there is one.
func (f *Fleet) Members() *Members { return f.members.Load() }

// Run follows the documents until ctx ends.
func (f *Fleet) Run(ctx context.Context) error {
	var again sync.WaitGroup
	defer again.Wait()
	again.Go(func() { // a page or a section may reach the store's replicas after what names it
		tick := time.NewTicker(lateEvery)
		defer tick.Stop()
		for n := 0; ; n++ {
			f.retry(ctx, n%pagesEvery == 0)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	again.Go(func() { f.confirm(ctx) })
	return f.docs.Watch(ctx, func(key string, data []byte) { f.Offer(ctx, key, data) })
}

const (
	lateEvery  = 250 * time.Millisecond // between looks for sections that are not there yet
	pagesEvery = 8                      // so many of them between looks for pages
)

// retry brings in what was not there when it was named.
func (f *Fleet) retry(ctx context.Context, pages bool) {
	f.mu.Lock()
	late, turn, missing := f.late, f.turn, f.missing
	f.mu.Unlock()
	if late != nil {
		f.offerRooms(ctx, turn, late)
	}
	if !pages || len(missing) == 0 {
		return
	}
	got := f.fetchPages(ctx, missing)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(got) > 0 {
		f.keepPages(got)
		f.changed()
	}
}

// How long the store's word that the keys are the newest is good for, and how often
// it is asked at most. A key is known for ten minutes before anybody seals with it.
const (
	confirmFor   = 10 * time.Second
	confirmEvery = time.Second
)

// KeysAreNewest reports whether the store was asked a moment ago for the keys, and
// holds those in use. It never waits: where that is not known, it has the store asked.
func (f *Fleet) KeysAreNewest() bool {
	if at := f.confirmed.Load(); at != 0 && time.Since(f.begun)-time.Duration(at) < confirmFor {
		return true
	}
	select {
	case f.doubts <- struct{}{}:
	default:
	}
	return false
}

// confirm answers doubts about the keys until ctx ends.
func (f *Fleet) confirm(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.doubts:
		}
		at := time.Since(f.begun)
		if err := f.askKeys(ctx); err != nil {
			f.log.Debug("whether the keys are the newest is not known", slog.Any("error", err))
		} else {
			f.confirmed.Store(int64(at))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(confirmEvery):
		}
	}
}

// askKeys returns nil where the store holds the keys in use, perhaps since now.
func (f *Fleet) askKeys(ctx context.Context) error {
	ask, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	data, _, err := f.docs.Get(ask, KeysDocument)
	if err != nil {
		return err
	}
	ring, err := ticket.DecodeKeyring(data)
	if err != nil {
		return err
	}
	if ring.Newer(f.Ring()) { // the watch is behind, or cut off
		f.Offer(ctx, KeysDocument, data)
	}
	if have := f.Ring(); have.Version != ring.Version || !slices.Equal(have.Keys, ring.Keys) {
		return errors.New("the store holds other keys")
	}
	if why := f.Alarm(KeysDocument); why != "" {
		return errors.New(why)
	}
	return nil
}

// Offer brings in a document from the store, nil for one that is not there. What
// is refused is logged and counted, and the last good one stays: that is an alarm
// until the store holds what this node uses, or something newer.
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
	keys, members := f.ring.Load(), f.members.Load()
	err := f.take(doc, data)
	if f.refuses(doc, err) || (f.ring.Load() == keys && f.members.Load() == members) {
		return
	}
	f.taken(doc, data)
}

// offerRooms is Offer for the rooms. What they consist of is read from the store
// before anything is locked; what was overtaken meanwhile is dropped.
func (f *Fleet) offerRooms(ctx context.Context, turn uint64, data []byte) {
	var o roomsOffer
	var err error
	pages := map[string][]byte{}
	if data != nil {
		if o, err = f.readRooms(ctx, data); err == nil {
			pages = f.fetchPages(ctx, o.pages(*f.pages.Load()))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if turn != f.turn {
		return
	}
	if late, ok := errors.AsType[*lateError](err); ok {
		f.late = data
		f.raise(RoomsDocument, late.Error())
		return
	}
	f.late = nil
	before := f.set.Load()
	switch {
	case err != nil:
	case data == nil:
		err = f.take(RoomsDocument, nil)
	default:
		err = f.takeRooms(o)
	}
	if f.refuses(RoomsDocument, err) || f.set.Load() == before {
		return
	}
	if f.keepPages(pages); len(f.missing) > 0 {
		f.log.Error("pages missing, the built-in one is shown", slog.Any("pages", f.missing))
	}
	if o.sections != nil { // the copy on disk is whole, and of the form that every release reads
		if data, err = roomstore.EncodeRooms(o.version, o.doc); err != nil {
			f.log.Error("last good copy not written", slog.String("document", RoomsDocument), slog.Any("error", err))
			f.changed()
			return
		}
	}
	f.taken(RoomsDocument, data)
}

// refuses notes what became of an offer.
func (f *Fleet) refuses(doc string, err error) bool {
	if err == nil {
		f.raise(doc, "")
		return false
	}
	why := invalid
	if r, ok := errors.AsType[*refusedError](err); ok {
		why = r.why
	}
	f.refused.WithLabelValues(doc, string(why)).Inc()
	f.raise(doc, err.Error())
	f.log.Error("document refused, the last good one stays", slog.String("document", doc), slog.String("reason", string(why)), slog.Any("error", err))
	return true
}

// taken keeps a copy of a document that is in use from now on, and tells.
func (f *Fleet) taken(doc string, data []byte) {
	if err := WriteFile(f.file(doc), data); err != nil {
		f.log.Error("last good copy not written", slog.String("document", doc), slog.Any("error", err))
	}
	f.log.Info("document taken", slog.String("document", doc), slog.Uint64("rooms", f.set.Load().Version()), slog.Uint64("keys", f.ring.Load().Version))
	f.changed()
}

// raise sets the alarm of a document, or ends it where there is nothing to say.
func (f *Fleet) raise(doc, why string) {
	f.alarmMu.Lock()
	defer f.alarmMu.Unlock()
	switch {
	case why != "":
		f.alarms[doc] = why
		f.alarm.WithLabelValues(doc).Set(1)
	case f.alarms[doc] != "":
		delete(f.alarms, doc)
		f.alarm.WithLabelValues(doc).Set(0)
		f.log.Info("the store holds again what is in use", slog.String("document", doc))
	}
}

// Alarm returns why what the store holds of a document is refused, "" where it
// is not.
func (f *Fleet) Alarm(doc string) string {
	f.alarmMu.Lock()
	defer f.alarmMu.Unlock()
	return f.alarms[doc]
}

// Alarms returns all alarms, for people.
func (f *Fleet) Alarms() []string {
	var out []string
	for _, doc := range followed {
		if why := f.Alarm(doc); why != "" {
			out = append(out, "the store's "+doc+" are refused: "+why)
		}
	}
	return out
}

// refusal is why a document is refused. The set is closed: it labels metrics.
type refusal string

const (
	older   refusal = "older"   // the store came back older than what was seen
	missing refusal = "missing" // it came back emptier
	differs refusal = "differs" // it has another document of the version in use
	foreign refusal = "foreign" // keys that were begun anew
	invalid refusal = "invalid" // what cannot be read, or breaks a rule
)

type refusedError struct {
	why       refusal
	have, got uint64
}

func (e *refusedError) Error() string {
	switch e.why {
	case missing:
		return fmt.Sprintf("missing, have version %d", e.have)
	case differs:
		return fmt.Sprintf("version %d with another content", e.got)
	case foreign:
		return fmt.Sprintf("version %d does not continue version %d: the keys were begun anew", e.got, e.have)
	case older, invalid:
	}
	return fmt.Sprintf("version %d, have version %d", e.got, e.have)
}

// succeeds decides about a version where another one is in use; nil says that it
// is taken. same tells that the contents are equal.
func succeeds(have, got uint64, same bool) error {
	switch {
	case got < have:
		return &refusedError{older, have, got}
	case got == have && !same:
		return &refusedError{differs, have, got}
	}
	return nil
}

// versionOf returns the version of a document in use, 0 for none.
func (f *Fleet) versionOf(doc string) uint64 {
	switch doc {
	case RoomsDocument:
		return f.set.Load().Version()
	case MembersDocument:
		if m := f.members.Load(); m != nil {
			return m.Version
		}
		return 0
	}
	return f.ring.Load().Version
}

// take takes a document over. It returns nil, and does nothing, for the one in
// use.
func (f *Fleet) take(doc string, data []byte) error {
	if data == nil {
		have := f.versionOf(doc)
		if have == 0 {
			return nil // a fleet that begins
		}
		return &refusedError{why: missing, have: have}
	}
	switch doc {
	case RoomsDocument:
		version, d, err := roomstore.DecodeRooms(data)
		if err != nil {
			return err
		}
		return f.takeRooms(roomsOffer{version: version, doc: d})
	case KeysDocument:
		ring, err := ticket.DecodeKeyring(data)
		if err != nil {
			return err
		}
		have := f.ring.Load()
		same := ring.Version == have.Version && slices.Equal(ring.Keys, have.Keys)
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
		f.version.WithLabelValues(doc).Set(float64(ring.Version))
	case MembersDocument:
		m, err := DecodeMembers(data)
		if err != nil {
			return err
		}
		if have := f.members.Load(); have != nil {
			same := reflect.DeepEqual(m, have)
			if err := succeeds(have.Version, m.Version, same); err != nil || same {
				return err
			}
		}
		f.members.Store(m)
		f.version.WithLabelValues(doc).Set(float64(m.Version))
	default:
		return fmt.Errorf("unknown document %q", doc)
	}
	return nil
}

// Page returns the custom page with this content hash, nil where this node
// does not have it yet.
func (f *Fleet) Page(hash string) []byte {
	return (*f.pages.Load())[hash]
}

// keepPages makes the pages that the room set names those in use, of what there
// was and what was got, and notes which are missing.
func (f *Fleet) keepPages(got map[string][]byte) {
	have, need := *f.pages.Load(), map[string][]byte{}
	f.missing = nil
	for _, r := range f.set.Load().Rooms() {
		hash := r.WaitingPage
		if hash == "" || need[hash] != nil {
			continue
		}
		page := have[hash]
		if page == nil {
			page = got[hash]
		}
		if page != nil {
			need[hash] = page
		} else if !slices.Contains(f.missing, hash) {
			f.missing = append(f.missing, hash)
		}
	}
	f.pages.Store(&need)
}

// fetchPages returns those of the pages that can be had within a second, from disk
// or from the store. The rooms of the others show the built-in page meanwhile.
func (f *Fleet) fetchPages(ctx context.Context, hashes []string) map[string][]byte {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var mu sync.Mutex
	got := map[string][]byte{}
	atOnce(hashes, func(_ int, hash string) {
		page, err := f.fetchPage(ctx, hash)
		if err != nil {
			f.log.Debug("page not had", slog.String("page", hash), slog.Any("error", err))
			return
		}
		mu.Lock()
		got[hash] = page
		mu.Unlock()
	})
	return got
}

// atOnce calls do with every item, a few at a time.
func atOnce(items []string, do func(i int, item string)) {
	var g sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i, item := range items {
		slots <- struct{}{}
		g.Go(func() {
			do(i, item)
			<-slots
		})
	}
	g.Wait()
}

func (f *Fleet) fetchPage(ctx context.Context, hash string) ([]byte, error) {
	file := f.file(roomstore.PageDocument(hash))
	page, err := os.ReadFile(file)
	if err == nil && roomstore.Hash(page) == hash {
		return page, nil
	}
	if page, _, err = f.docs.Get(ctx, roomstore.PageDocument(hash)); err != nil {
		return nil, err
	}
	if roomstore.Hash(page) != hash {
		return nil, errors.New("the store has no page with this content")
	}
	if err := WriteFile(file, page); err != nil {
		f.log.Error("page not kept", slog.Any("error", err))
	}
	return page, nil
}

// WriteFile replaces a file in one step, so that a crash leaves the old one or
// the new one. The content may hold keys: only the owner may read it.
func WriteFile(name string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone already when all went well
	if _, err := tmp.Write(data); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err := errors.Join(tmp.Chmod(0o600), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), name)
}

// LedgerRooms returns what the ledger needs to know of the rooms of a set.
func LedgerRooms(set *room.Set) []slots.RoomConfig {
	var out []slots.RoomConfig
	for _, r := range set.Rooms() {
		out = append(out, slots.RoomConfig{
			ID: r.ID, Total: uint64(r.TotalActiveUsers), Rate: uint64(r.NewUsersPerMinute), Session: r.SessionDuration,
			Cap: r.PartitionPolicy == room.PolicyCap, LostWait: r.LostAfter,
		})
	}
	return out
}

// IgnoreEnd turns the end of ctx into no error.
func IgnoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
