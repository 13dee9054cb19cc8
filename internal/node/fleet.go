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
	// Watch calls handle with every version of the rooms and the keys until ctx
	// ends, and returns ctx's error.
	Watch(ctx context.Context, handle func(key string, data []byte)) error

	// Get returns a document and its revision, (nil, 0) if there is none.
	Get(ctx context.Context, key string) ([]byte, uint64, error)
}

// Fleet is what this node was told of the fleet: the room set, the keys and the
// custom pages. It keeps the last good copies on disk and never lets an older,
// an empty or a broken document replace them. It is safe for concurrent use.
type Fleet struct {
	dir     string
	docs    Documents
	log     *slog.Logger
	changed func()

	mu    sync.Mutex
	set   atomic.Pointer[room.Set]
	ring  atomic.Pointer[ticket.Keyring]
	pages atomic.Pointer[map[string][]byte] // by content hash

	refused *prometheus.CounterVec
	version *prometheus.GaugeVec
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
	}
	reg.MustRegister(f.refused, f.version)
	for _, doc := range []string{RoomsDocument, KeysDocument} {
		f.version.WithLabelValues(doc).Set(0)
		for _, why := range []string{"older", "invalid"} {
			f.refused.WithLabelValues(doc, why)
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

// Offer brings in a document from the store. What is refused is logged and
// counted; the last good one stays.
func (f *Fleet) Offer(ctx context.Context, doc string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, keys := f.set.Load(), f.ring.Load()
	err := f.take(doc, data)
	var old *olderError
	switch {
	case errors.As(err, &old):
		if old.same {
			return
		}
		f.refused.WithLabelValues(doc, "older").Inc()
		f.log.Error("the store came back older or emptier than what was seen: refused", slog.String("document", doc), slog.Any("error", err))
		return
	case err != nil:
		f.refused.WithLabelValues(doc, "invalid").Inc()
		f.log.Error("document refused, the last good one stays", slog.String("document", doc), slog.Any("error", err))
		return
	}
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

type olderError struct {
	have, got uint64
	same      bool
}

func (e *olderError) Error() string {
	return fmt.Sprintf("version %d, have version %d", e.got, e.have)
}

func (f *Fleet) take(doc string, data []byte) error {
	switch doc {
	case RoomsDocument:
		version, d, err := DecodeRooms(data)
		if err != nil {
			return err
		}
		if have := f.set.Load(); have != nil && version <= have.Version() {
			return &olderError{have: have.Version(), got: version, same: version == have.Version()}
		}
		set, err := room.NewSet(d, version)
		if err != nil {
			return err
		}
		f.set.Store(set)
		f.version.WithLabelValues(doc).Set(float64(version))
	case KeysDocument:
		ring, err := ticket.DecodeKeyring(data)
		if err != nil {
			return err
		}
		if have := f.ring.Load(); !ring.Newer(*have) {
			return &olderError{have: have.Version, got: ring.Version, same: ring.Version == have.Version}
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
