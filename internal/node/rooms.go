package node

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"vestibule/internal/room"
)

// The rooms document has two forms. As long as everything fits one value of the
// store it is plain: the version and the document. What is larger is divided into
// sections, each a document of some of the rooms, compressed, under a name made of
// its content; the rooms document then names the version and the sections. It is
// written last. A node of release 0.1.0 refuses that form and keeps what it has.
//
// A room belongs to the section that the leading bits of its ID say, so a change
// of one room changes one section; all others are neither written nor read again.

// SectionDocument names a section with the content hash.
func SectionDocument(hash string) string { return sectionPrefix + hash }

const sectionPrefix = "section."

// StoredByContent reports whether a key of the store is named by its content: a
// page or a section. Those that nothing names any more may be deleted.
func StoredByContent(key string) bool {
	return strings.HasPrefix(key, sectionPrefix) || strings.HasPrefix(key, PageDocument(""))
}

const (
	// MaxSections bounds the sections of a rooms document.
	MaxSections = 256

	// SectionBytes is how large a compressed section may be.
	SectionBytes = 256 << 10
)

// roomsEnvelope is the rooms document: a version that grows with every change, and
// what the operator wrote, or the content hashes of its sections.
type roomsEnvelope struct {
	Version  uint64          `json:"version"`
	Document json.RawMessage `json:"document,omitempty"`
	Sections []string        `json:"sections,omitempty"`
}

// EncodeRooms returns the plain rooms document.
func EncodeRooms(version uint64, d room.Document) ([]byte, error) {
	data, err := room.EncodeDocument(d)
	if err != nil {
		return nil, err
	}
	return json.Marshal(roomsEnvelope{Version: version, Document: data})
}

// DecodeRooms reads a plain rooms document.
func DecodeRooms(data []byte) (uint64, room.Document, error) {
	e, err := decodeEnvelope(data)
	if err != nil {
		return 0, room.Document{}, err
	}
	if len(e.Sections) > 0 {
		return 0, room.Document{}, errors.New("rooms document: sections: must be absent here")
	}
	doc, err := room.DecodeDocument(e.Document)
	return e.Version, doc, err
}

func decodeEnvelope(data []byte) (roomsEnvelope, error) {
	var e roomsEnvelope
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return e, fmt.Errorf("rooms document: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return e, errors.New("rooms document: data after the document")
	}
	switch {
	case e.Version == 0:
		return e, errors.New("rooms document: version: must be at least 1")
	case len(e.Document) > 0 && len(e.Sections) > 0:
		return e, errors.New("rooms document: sections: must be absent beside a document")
	case len(e.Sections) > MaxSections:
		return e, fmt.Errorf("rooms document: sections: must be at most %d, got %d", MaxSections, len(e.Sections))
	}
	return e, nil
}

// PackedRooms is a rooms document ready to be stored, but for its version.
type PackedRooms struct {
	plain    []byte            // the document, where it is stored whole
	names    []string          // else the content hashes of its sections
	sections map[string][]byte // compressed, by key
}

// TooLargeError says that something cannot be stored because of its size.
type TooLargeError struct {
	What        string
	Size, Limit int // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s: %d bytes, at most %d can be stored", e.What, e.Size, e.Limit)
}

// envelopeBytes is more than the version and the names around a document take.
const envelopeBytes = 128

// PackRooms makes d ready for a store whose values have at most limit bytes. An
// error of type [*TooLargeError] says that it cannot be stored.
func PackRooms(d room.Document, limit int) (*PackedRooms, error) {
	plain, err := room.EncodeDocument(d)
	if err != nil {
		return nil, err // more than MaxDocumentBytes, or not UTF-8
	}
	if len(plain)+envelopeBytes <= limit {
		return &PackedRooms{plain: plain}, nil
	}
	limit = min(limit, SectionBytes)
	largest := 0
	for n := 1; n <= MaxSections; n *= 2 {
		if n < MaxSections && len(plain)/n > 32*limit {
			continue // too few, however well they compress
		}
		p := &PackedRooms{sections: map[string][]byte{}}
		largest = 64 * n // the head, at most
		for _, part := range divide(d, n) {
			name, data, err := packSection(part)
			if err != nil {
				return nil, err
			}
			if largest = max(largest, len(data)); largest > limit {
				break
			}
			p.names = append(p.names, name)
			p.sections[SectionDocument(name)] = data
		}
		if largest <= limit {
			return p, nil
		}
	}
	return nil, &TooLargeError{fmt.Sprintf("rooms: the largest of %d compressed parts of a document of %d bytes", MaxSections, len(plain)), largest, limit}
}

// divide returns the n parts of d, a power of two. Where something stands in d does
// not matter to what they are.
func divide(d room.Document, n int) []room.Document {
	parts := make([]room.Document, n)
	of := func(name string) *room.Document {
		return &parts[uint64(room.IDOf(name))>>32*uint64(n)>>32]
	}
	for _, r := range d.Rooms {
		p := of(r.Name)
		p.Rooms = append(p.Rooms, r)
	}
	for _, h := range d.Hosts {
		p := of(h.Name)
		p.Hosts = append(p.Hosts, h)
	}
	for i := range parts {
		sortDocument(&parts[i])
	}
	return parts
}

func sortDocument(d *room.Document) {
	slices.SortStableFunc(d.Rooms, func(a, b room.Settings) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(d.Hosts, func(a, b room.Host) int { return cmp.Compare(a.Name, b.Name) })
}

// packSection returns the content hash of a section and its compressed form.
func packSection(d room.Document) (hash string, data []byte, err error) {
	plain, err := room.EncodeDocument(d)
	if err != nil {
		return "", nil, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(plain); err != nil {
		return "", nil, err
	}
	if err := z.Close(); err != nil {
		return "", nil, err
	}
	return contentHash(plain), b.Bytes(), nil
}

// unpackSection reads a section with this content hash. It makes at most so many
// bytes of it, and tells how many.
func unpackSection(hash string, data []byte, most int) (d room.Document, size int, err error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return d, 0, err
	}
	plain, err := io.ReadAll(io.LimitReader(z, int64(most)+1))
	switch {
	case err != nil:
		return d, 0, err
	case len(plain) > most:
		return d, 0, fmt.Errorf("the sections hold more than %d bytes", room.MaxDocumentBytes)
	case contentHash(plain) != hash:
		return d, 0, errors.New("another content than its name says")
	}
	d, err = room.DecodeDocument(plain)
	return d, len(plain), err
}

// Head returns the rooms document with this version.
func (p *PackedRooms) Head(version uint64) ([]byte, error) {
	return json.Marshal(roomsEnvelope{Version: version, Document: p.plain, Sections: p.names})
}

// Sections returns what has to be stored before the head, by key. It must not be
// modified.
func (p *PackedRooms) Sections() map[string][]byte { return p.sections }

// Names returns the keys of the sections.
func (p *PackedRooms) Names() []string { return slices.Collect(maps.Keys(p.sections)) }

// Holds reports whether a stored rooms document says the same in the same form, and
// its version. The error says that it cannot be read.
func (p *PackedRooms) Holds(stored []byte) (version uint64, same bool, err error) {
	e, err := decodeEnvelope(stored)
	if err != nil {
		return 0, false, err
	}
	if len(e.Sections) > 0 || bytes.Equal(e.Document, p.plain) {
		return e.Version, slices.Equal(e.Sections, p.names), nil
	}
	d, err := room.DecodeDocument(e.Document)
	if err != nil {
		return 0, false, err
	}
	plain, err := room.EncodeDocument(d)
	return e.Version, err == nil && bytes.Equal(plain, p.plain), nil
}

// roomsOffer is a rooms document read whole.
type roomsOffer struct {
	version  uint64
	doc      room.Document
	sections map[string]room.Document // that it was made of, by content hash; nil for a plain one
}

// pages returns the content hashes of the pages that the rooms name and that are
// not in have.
func (o *roomsOffer) pages(have map[string][]byte) []string {
	var out []string
	seen := map[string]bool{"": true}
	for i := range o.doc.Rooms {
		if hash := o.doc.Rooms[i].WaitingPage; !seen[hash] && have[hash] == nil {
			out = append(out, hash)
		}
		seen[o.doc.Rooms[i].WaitingPage] = true
	}
	return out
}

// lateError says that the store does not hold yet what a rooms document names.
type lateError struct {
	version uint64
	section string
	err     error
}

func (e *lateError) Error() string {
	return fmt.Sprintf("version %d: section %s: %v", e.version, e.section, e.err)
}

func (e *lateError) Unwrap() error { return e.err }

// sectionWait is how long sections are waited for in one go.
const sectionWait = 5 * time.Second

// readRooms reads a rooms document of either form, and from the store the sections
// that are not in use already.
func (f *Fleet) readRooms(ctx context.Context, data []byte) (roomsOffer, error) {
	e, err := decodeEnvelope(data)
	if err != nil {
		return roomsOffer{}, err
	}
	o := roomsOffer{version: e.Version}
	if len(e.Sections) == 0 {
		o.doc, err = room.DecodeDocument(e.Document)
		return o, err
	}
	f.mu.Lock()
	have := f.sections
	f.mu.Unlock()
	o.sections = map[string]room.Document{}
	var missing []string
	for _, hash := range e.Sections {
		if d, ok := have[hash]; ok {
			o.sections[hash] = d
		} else if !slices.Contains(missing, hash) {
			missing = append(missing, hash)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sectionWait)
	defer cancel()
	got, failed := make([][]byte, len(missing)), make([]error, len(missing))
	atOnce(missing, func(i int, hash string) {
		got[i], _, failed[i] = f.docs.Get(ctx, SectionDocument(hash))
	})
	left := room.MaxDocumentBytes
	for i, hash := range missing {
		switch {
		case failed[i] != nil:
			return o, &lateError{e.Version, hash, failed[i]}
		case got[i] == nil:
			return o, &lateError{e.Version, hash, errors.New("not in the store yet")}
		}
		d, size, err := unpackSection(hash, got[i], left)
		if err != nil {
			return o, &lateError{e.Version, hash, err}
		}
		left -= size
		o.sections[hash] = d
	}
	for _, hash := range e.Sections {
		d := o.sections[hash]
		o.doc.Rooms, o.doc.Hosts = append(o.doc.Rooms, d.Rooms...), append(o.doc.Hosts, d.Hosts...)
		if max(len(o.doc.Rooms), len(o.doc.Hosts)) > room.MaxRooms {
			return o, fmt.Errorf("rooms document: rooms, hosts: must be at most %d", room.MaxRooms)
		}
	}
	return o, nil
}

// takeRooms makes the rooms those in use. It returns nil, and does nothing, for
// those that are.
func (f *Fleet) takeRooms(o roomsOffer) error {
	d := o.doc.WithDefaults()
	sortDocument(&d) // where a room stands says nothing
	plain, err := room.EncodeDocument(d)
	if err != nil {
		return err
	}
	if have := f.set.Load(); have != nil {
		same := o.version == have.Version() && bytes.Equal(plain, f.plain)
		if err := succeeds(have.Version(), o.version, same); err != nil || same {
			return err
		}
	}
	set, err := room.NewSet(o.doc, o.version)
	if err != nil {
		return err
	}
	f.plain, f.sections = plain, o.sections
	f.set.Store(set)
	f.version.WithLabelValues(RoomsDocument).Set(float64(o.version))
	f.keepPages(nil)
	return nil
}
