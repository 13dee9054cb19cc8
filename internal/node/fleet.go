package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/room"
	"vestibule/internal/slots"
	"vestibule/internal/ticket"
)

// The documents that global publishes and every node watches.
const (
	RoomsDocument = "rooms"
	KeysDocument  = "keys"
)

// PageDocument names the page with the content hash.
func PageDocument(hash string) string { return "page." + hash }

// Documents is where documents come from.
type Documents interface {
	// Watch calls handle with every version of the rooms and the keys, and with
	// nil for one that is not there, until ctx ends, and returns ctx's error.
	Watch(ctx context.Context, handle func(key string, data []byte)) error

	// Get returns a document and its revision, (nil, 0) if there is none.
	Get(ctx context.Context, key string) ([]byte, uint64, error)
}

// Fleet is what this node was told of the fleet: the room set, the keys and the
// custom pages. It keeps the last good copies on disk and never lets an older,
// an empty or a broken document replace them; while the store holds one that was
// refused, there is an alarm. It is safe for concurrent use.
type Fleet struct {
	dir     string
	docs    Documents
	log     *slog.Logger
	changed func()

	mu    sync.Mutex
	plain []byte // the rooms of set, with their defaults
	set   atomic.Pointer[room.Set]
	ring  atomic.Pointer[ticket.Keyring]
	pages atomic.Pointer[map[string][]byte] // by content hash

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
	}
	reg.MustRegister(f.refused, f.version, f.alarm)
	for _, doc := range []string{RoomsDocument, KeysDocument} {
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
	for _, doc := range []string{RoomsDocument, KeysDocument} {
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

// Run follows the documents until ctx ends.
func (f *Fleet) Run(ctx context.Context) error {
	var again sync.WaitGroup
	defer again.Wait()
	again.Go(func() { // a page may reach the store's replicas after the room set that names it
		for tick := time.NewTicker(2 * time.Second); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				f.mu.Lock()
				if before := len(*f.pages.Load()); f.missesPages() {
					f.fetchPages(ctx)
					if len(*f.pages.Load()) != before {
						f.changed()
					}
				}
				f.mu.Unlock()
			}
		}
	})
	return f.docs.Watch(ctx, func(key string, data []byte) { f.Offer(ctx, key, data) })
}

// Offer brings in a document from the store, nil for one that is not there. What
// is refused is logged and counted, and the last good one stays: that is an alarm
// until the store holds what this node uses, or something newer.
func (f *Fleet) Offer(ctx context.Context, doc string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, keys := f.set.Load(), f.ring.Load()
	err := f.take(doc, data)
	if err != nil {
		why := invalid
		if r, ok := errors.AsType[*refusedError](err); ok {
			why = r.why
		}
		f.refused.WithLabelValues(doc, string(why)).Inc()
		f.raise(doc, err.Error())
		f.log.Error("document refused, the last good one stays", slog.String("document", doc), slog.String("reason", string(why)), slog.Any("error", err))
		return
	}
	f.raise(doc, "")
	if f.set.Load() == before && f.ring.Load() == keys {
		return
	}
	if err := writeFile(f.file(doc), data); err != nil {
		f.log.Error("last good copy not written", slog.String("document", doc), slog.Any("error", err))
	}
	f.fetchPages(ctx)
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
	for _, doc := range []string{RoomsDocument, KeysDocument} {
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

// take takes a document over. It returns nil, and does nothing, for the one in
// use.
func (f *Fleet) take(doc string, data []byte) error {
	if data == nil {
		have := f.ring.Load().Version
		if doc == RoomsDocument {
			have = f.set.Load().Version()
		}
		if have == 0 {
			return nil // a fleet that begins
		}
		return &refusedError{why: missing, have: have}
	}
	switch doc {
	case RoomsDocument:
		version, d, err := DecodeRooms(data)
		if err != nil {
			return err
		}
		plain, err := room.EncodeDocument(d.WithDefaults())
		if err != nil {
			return err
		}
		if have := f.set.Load(); have != nil {
			same := version == have.Version() && bytes.Equal(plain, f.plain)
			if err := succeeds(have.Version(), version, same); err != nil || same {
				return err
			}
		}
		set, err := room.NewSet(d, version)
		if err != nil {
			return err
		}
		f.plain = plain
		f.set.Store(set)
		f.version.WithLabelValues(doc).Set(float64(version))
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

func (f *Fleet) missesPages() bool {
	for _, r := range f.set.Load().Rooms() {
		if r.WaitingPage != "" && f.Page(r.WaitingPage) == nil {
			return true
		}
	}
	return false
}

// fetchPages brings in the pages that the room set names, from disk or from
// the store, and forgets the others. The room of one that cannot be had shows
// the built-in page meanwhile.
func (f *Fleet) fetchPages(ctx context.Context) {
	have, need := *f.pages.Load(), map[string][]byte{}
	for _, r := range f.set.Load().Rooms() {
		hash := r.WaitingPage
		if hash == "" {
			continue
		}
		if page := have[hash]; page != nil {
			need[hash] = page
			continue
		}
		page, err := f.fetchPage(ctx, hash)
		if err != nil {
			f.log.Error("page missing, the built-in one is shown", slog.String("room", r.Name), slog.String("page", hash), slog.Any("error", err))
			continue
		}
		need[hash] = page
	}
	f.pages.Store(&need)
}

func (f *Fleet) fetchPage(ctx context.Context, hash string) ([]byte, error) {
	file := f.file(PageDocument(hash))
	page, err := os.ReadFile(file)
	if err == nil && PageHash(page) == hash {
		return page, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if page, _, err = f.docs.Get(ctx, PageDocument(hash)); err != nil {
		return nil, err
	}
	if PageHash(page) != hash {
		return nil, errors.New("the store has no page with this content")
	}
	if err := writeFile(file, page); err != nil {
		f.log.Error("page not kept", slog.Any("error", err))
	}
	return page, nil
}

// PageHash returns the name of a page's content.
func PageHash(page []byte) string {
	sum := sha256.Sum256(page)
	return hex.EncodeToString(sum[:16])
}

// roomsEnvelope is the rooms document: what the operator wrote, and a version
// that grows with every change.
type roomsEnvelope struct {
	Version  uint64          `json:"version"`
	Document json.RawMessage `json:"document"`
}

// EncodeRooms returns the rooms document.
func EncodeRooms(version uint64, d room.Document) ([]byte, error) {
	data, err := room.EncodeDocument(d)
	if err != nil {
		return nil, err
	}
	return json.Marshal(roomsEnvelope{Version: version, Document: data})
}

// DecodeRooms reads a rooms document.
func DecodeRooms(data []byte) (uint64, room.Document, error) {
	var e roomsEnvelope
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return 0, room.Document{}, fmt.Errorf("rooms document: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return 0, room.Document{}, errors.New("rooms document: data after the document")
	}
	if e.Version == 0 {
		return 0, room.Document{}, errors.New("rooms document: version: must be at least 1")
	}
	doc, err := room.DecodeDocument(e.Document)
	return e.Version, doc, err
}

// writeFile replaces a file in one step, so that a crash leaves the old one or
// the new one. The content may hold keys: only the owner may read it.
func writeFile(name string, data []byte) error {
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
