package roomstore

import (
	"encoding/json"
	"errors"
	"fmt"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/strictjson"
)

// The keys of the store. PROTOCOL.md defines their formats.
const (
	// OwnedDocument is the state. It is written by compare-and-set.
	OwnedDocument = "rooms.owned"
)

const (
	// SectionBytes bounds a compressed section.
	SectionBytes = 256 << 10

	// partBytes is the intended size of a part before compression: a change of one room writes one part.
	partBytes = 128 << 10

	// maxChanges is how many change ids a state remembers, so that a writer without an answer can find out whether its
	// change was written.
	maxChanges = 128

	// maxVersion bounds versions, revisions and times, so that they are exact as JSON numbers.
	maxVersion = 1 << 53

	// format is the newest format of the owned document that this build reads.
	format = 1
)

// TooLargeError means that a value is too large to be stored.
type TooLargeError struct {
	What        string
	Size, Limit int // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s: %d bytes, at most %d can be stored", e.What, e.Size, e.Limit)
}

// owned is the stored form of the owned document.
type owned struct {
	Format   int      `json:"format"`
	Version  uint64   `json:"version"`
	Changes  []string `json:"changes,omitempty"`  // ids, the newest last
	Content  []byte   `json:"content,omitempty"`  // one part, compressed
	Sections []string `json:"sections,omitempty"` // or the content hashes of parts

	Outbox []json.RawMessage `json:"outbox,omitempty"` // entries that may be missing in the audit stream, the oldest first
}

// NewerError means that a newer build wrote a document that this one cannot read.
type NewerError struct{ error }

func (e *NewerError) Error() string {
	return fmt.Sprintf("rooms.owned: a newer build wrote it, update this one: %v", e.error)
}

func decodeOwned(data []byte) (owned, error) {
	var o owned
	var f struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &f); err == nil && f.Format > format {
		return o, &NewerError{fmt.Errorf("format: version %d, this build knows version %d", f.Format, format)}
	}
	err := strictjson.Decode(data, &o)
	switch {
	case err != nil:
	case o.Format < 1:
		err = errors.New("format: must be at least 1")
	case o.Version == 0 || o.Version > maxVersion:
		err = errors.New("version: must be 1 to 2^53")
	case (len(o.Content) > 0) == (len(o.Sections) > 0):
		err = errors.New("content, sections: exactly one must be there")
	case len(o.Sections) > roomdoc.MaxSections:
		err = fmt.Errorf("sections: must be at most %d, got %d", roomdoc.MaxSections, len(o.Sections))
	case len(o.Changes) > maxChanges:
		err = fmt.Errorf("changes: must be at most %d, got %d", maxChanges, len(o.Changes))
	}
	if err != nil {
		return o, fmt.Errorf("rooms.owned: %w", err)
	}
	return o, nil
}

// assemble returns the state of an owned document. get returns the part with a content hash, of at most most bytes.
func (o *owned) assemble(get func(hash string, most int) (*part, error)) (*State, error) {
	s := &State{Version: o.Version, changes: o.Changes, sections: len(o.Sections) > 0}
	var err error
	if s.outbox, err = readOutbox(o.Outbox); err != nil {
		return nil, fmt.Errorf("rooms.owned: outbox: %w", err)
	}
	left := roomdoc.MaxUnpacked
	add := func(p *part) {
		left -= p.size
		s.parts = append(s.parts, p)
		s.Rooms, s.Hosts = append(s.Rooms, p.rooms...), append(s.Hosts, p.hosts...)
		s.FromFile = s.FromFile || p.fromFile
	}
	if len(o.Content) > 0 {
		p, err := decodePart("", o.Content, left)
		if err != nil {
			return nil, fmt.Errorf("rooms.owned: content: %w", err)
		}
		add(p)
	}
	for _, hash := range o.Sections {
		p, err := get(hash, left)
		if err != nil {
			return nil, fmt.Errorf("rooms.owned: section %s: %w", hash, err)
		}
		add(p)
		if max(len(s.Rooms), len(s.Hosts)) > room.MaxRooms || left < 0 {
			return nil, fmt.Errorf("rooms.owned: more than %d rooms or hosts, or %d bytes", room.MaxRooms, roomdoc.MaxUnpacked)
		}
	}
	s.sort()
	return s, nil
}

// packed is a state ready to be stored.
type packed struct {
	parts []*part
	rooms []byte // the rooms document
	owned []byte // the owned document
	whole bool   // the only part is inside the owned document, not a section
}

// envelopeBytes bounds the size of a rooms document without its contents.
const envelopeBytes = 128

// pack encodes s for a store with values of at most limit bytes. Unchanged parts of reuse are used again. A
// [*TooLargeError] means that s cannot be stored.
func pack(s *State, limit int, reuse []*part) (*packed, error) {
	parts, err := divide(s, min(limit, SectionBytes), reuse)
	if err != nil {
		return nil, err
	}
	p := &packed{parts: parts}
	size := 0 // of the document, or slightly more
	for _, part := range parts {
		size += part.size
	}
	rooms := roomdoc.Head{Version: s.Version}
	if size <= 4*limit || size > room.MaxDocumentBytes { // else it cannot fit one value, whatever the size of the marks
		doc, err := room.EncodeDocument(s.Document())
		if err != nil {
			return nil, err
		}
		if len(doc)+envelopeBytes <= limit {
			rooms.Document = doc
		}
	}
	o := owned{Format: format, Version: s.Version, Changes: s.changes, Outbox: writeOutbox(s.outbox)}
	waits := 0
	for _, w := range s.outbox {
		waits += len(w.raw)
	}
	p.whole = rooms.Document != nil && len(parts) == 1 && 2*len(parts[0].data)+waits+8<<10 <= limit
	if p.whole {
		o.Content = parts[0].data
	} else {
		for _, part := range parts {
			o.Sections = append(o.Sections, part.hash)
		}
	}
	if rooms.Document == nil {
		rooms.Sections = o.Sections
	}
	if p.rooms, err = json.Marshal(rooms); err != nil {
		return nil, err
	}
	if p.owned, err = json.Marshal(o); err != nil {
		return nil, err
	}
	if n := max(len(p.rooms), len(p.owned)); n > limit {
		return nil, &TooLargeError{fmt.Sprintf("rooms: the list of %d compressed parts", len(parts)), n, limit}
	}
	return p, nil
}

// Pack returns a document as stored, by key, with values of at most limit bytes: the rooms document and its sections.
// A
// [*TooLargeError] means that it cannot be stored.
func Pack(version uint64, d room.Document, limit int) (map[string][]byte, error) {
	s := imported(d, 1)
	s.Version = version
	p, err := pack(s, limit, nil)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{roomdoc.RoomsDocument: p.rooms}
	if !p.whole {
		for _, part := range p.parts {
			out[roomdoc.SectionDocument(part.hash)] = part.data
		}
	}
	return out, nil
}

// encodeCopy returns a state as one value of any size, for the copy on disk.
func encodeCopy(s *State) ([]byte, error) {
	p, err := encodePart(s.Rooms, s.Hosts, s.FromFile)
	if err != nil {
		return nil, err
	}
	return json.Marshal(owned{
		Format: format, Version: s.Version, Changes: s.changes, Content: p.data, Outbox: writeOutbox(s.outbox),
	})
}

// decodeCopy decodes the output of encodeCopy.
func decodeCopy(data []byte) (*State, error) {
	o, err := decodeOwned(data)
	if err != nil {
		return nil, err
	}
	s, err := o.assemble(func(string, int) (*part, error) { return nil, errors.New("a copy has no sections") })
	if err == nil {
		s.parts = nil // the store has others
	}
	return s, err
}
