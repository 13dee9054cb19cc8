package roomstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/strictjson"
)

// The keys of the store. PROTOCOL.md has their forms.
const (
	// OwnedDocument is the state. Writers compare and set it.
	OwnedDocument = "rooms.owned"
)

const (
	// SectionBytes is how large a compressed section may be.
	SectionBytes = 256 << 10

	// partBytes is how large a part is meant to be before it is compressed: a change of one
	// room writes one part.
	partBytes = 128 << 10

	// maxChanges is how many ids of changes a state remembers, so that a writer who was not
	// told whether its change was written can find out.
	maxChanges = 128

	// maxVersion bounds versions, revisions and times: what JSON numbers hold everywhere.
	maxVersion = 1 << 53

	// format is the newest form of the owned document that this build reads.
	format = 1
)

// TooLargeError says that something cannot be stored because of its size.
type TooLargeError struct {
	What        string
	Size, Limit int // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s: %d bytes, at most %d can be stored", e.What, e.Size, e.Limit)
}

// owned is the owned document as it is stored.
type owned struct {
	Format   int      `json:"format"`
	Version  uint64   `json:"version"`
	Changes  []string `json:"changes,omitempty"`  // ids, the newest last
	Content  []byte   `json:"content,omitempty"`  // one part, compressed
	Sections []string `json:"sections,omitempty"` // or the content hashes of parts

	Outbox []json.RawMessage `json:"outbox,omitempty"` // entries that may not be in the audit stream yet, the oldest first
}

// NewerError says that a newer build wrote what this one cannot read, or could not write again
// without loss.
type NewerError struct {
	What       string // "format", or "settings" of the table of rooms
	Have, Know int
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("rooms.owned: %s: version %d, this build knows version %d: update it", e.What, e.Have, e.Know)
}

func decodeOwned(data []byte) (owned, error) {
	var o owned
	var f struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &f); err == nil && f.Format > format {
		return o, &NewerError{"format", f.Format, format}
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

// assemble returns the state that an owned document names. part returns the part of a content
// hash, of at most so many bytes.
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
	s.FromFile = !s.empty() && !slices.ContainsFunc(s.parts, func(p *part) bool { return p.owner != ownerFile && !p.empty() })
	return s, nil
}

// packed is a state ready to be stored.
type packed struct {
	parts []*part
	rooms []byte // the rooms document
	owned []byte // the owned document
	whole bool   // the one part lies in the owned document, and is no section
}

// envelopeBytes is more than a rooms document takes beside what it holds.
const envelopeBytes = 128

// pack makes s ready for a store whose values have at most limit bytes. Parts of reuse that
// did not change are not made again. An error of type [*TooLargeError] says that s cannot
// be stored.
func pack(s *State, limit int, reuse []*part) (*packed, error) {
	parts, err := divide(s, min(limit, SectionBytes), reuse)
	if err != nil {
		return nil, err
	}
	p := &packed{parts: parts}
	size := 0 // of the document, or a little more
	for _, part := range parts {
		size += part.size
	}
	rooms := roomdoc.Head{Version: s.Version}
	if size <= 4*limit || size > room.MaxDocumentBytes { // else it does not fit one value, whatever the marks take
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

// Pack returns what a store whose values have at most limit bytes holds of a document, by key: the rooms document, and the sections that it names. A [*TooLargeError]
// says that it cannot be stored.
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
	p, err := encodePart(s.Rooms, s.Hosts, s.owner())
	if err != nil {
		return nil, err
	}
	return json.Marshal(owned{Format: format, Version: s.Version, Changes: s.changes, Content: p.data, Outbox: writeOutbox(s.outbox)})
}

// decodeCopy reads what encodeCopy wrote.
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
