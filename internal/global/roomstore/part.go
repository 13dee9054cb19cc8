package roomstore

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"vestibule/internal/room"
	"vestibule/internal/strictjson"
)

// part is a share of a state as it is stored: the rooms and hosts of which the leading bits of
// the ID are the same. It is not modified.
type part struct {
	rooms []*Room
	hosts []*Host
	hash  string // of the content
	size  int    // bytes of it
	data  []byte // the content, compressed
}

// content is what a part holds. A node reads the document alone.
type content struct {
	Rooms    []mark          `json:"rooms"` // as in the document
	Hosts    []mark          `json:"hosts"`
	Document json.RawMessage `json:"document"`
}

type mark struct {
	Owner    Owner  `json:"owner"`
	Created  int64  `json:"created"`
	Changed  int64  `json:"changed"`
	Revision uint64 `json:"revision"`
}

func encodePart(rooms []*Room, hosts []*Host) (*part, error) {
	doc, err := room.EncodeDocument(document(rooms, hosts))
	if err != nil {
		return nil, err
	}
	c := content{Rooms: []mark{}, Hosts: []mark{}, Document: doc}
	for _, r := range rooms {
		c.Rooms = append(c.Rooms, mark(r.Mark))
	}
	for _, h := range hosts {
		c.Hosts = append(c.Hosts, mark(h.Mark))
	}
	plain, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return &part{rooms: rooms, hosts: hosts, hash: Hash(plain), size: len(plain), data: compress(plain)}, nil
}

// compress is the opposite of unpack.
func compress(plain []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(plain); err != nil {
		panic(err) // a buffer takes everything
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// plainPage is up to how many bytes a waiting page is stored as it is, so that nodes of
// release 0.1.0 can read it. They take larger ones for missing and show the built-in page.
const plainPage = 180 << 10

// usualMessage is how large a value NATS servers take by default, in bytes, with room for what
// goes around it.
const usualMessage = 1<<20 - 1<<10

// PageDoubts tells for whom a waiting page may be too large, nothing for nobody.
func PageDoubts(content []byte) []string {
	if len(content) <= plainPage {
		return nil
	}
	if n := len(packPage(content)); n > usualMessage {
		return []string{fmt.Sprintf("%d bytes, and %d with gzip: more than NATS servers take by default (1 MB); it is refused when it is to be stored, unless their max_payload is larger", len(content), n)}
	}
	return []string{fmt.Sprintf("%d bytes: nodes of release 0.1.0 show the built-in page where it is larger than %d", len(content), plainPage)}
}

func packPage(content []byte) []byte {
	if len(content) <= plainPage {
		return content
	}
	return compress(content)
}

// DecodePage returns the waiting page with this content hash from what is stored of it.
func DecodePage(hash string, data []byte) ([]byte, error) {
	if Hash(data) == hash {
		return data, nil
	}
	page, err := unpack(data, room.MaxPageBytes)
	if err != nil || Hash(page) != hash {
		return nil, errContent
	}
	return page, nil
}

// unpack returns at most so many bytes of what was compressed.
func unpack(data []byte, most int) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(z, int64(most)+1))
	switch {
	case err != nil:
		return nil, err
	case len(plain) > most:
		return nil, fmt.Errorf("more than %d bytes", most)
	}
	return plain, nil
}

var errContent = errors.New("another content than its name says")

// DecodeSection reads the rooms and hosts of a section with this content hash. It makes at most
// so many bytes of it, and tells how many.
func DecodeSection(hash string, data []byte, most int) (d room.Document, size int, err error) {
	plain, err := unpack(data, most)
	if err != nil {
		return d, 0, err
	}
	if Hash(plain) != hash {
		return d, 0, errContent
	}
	var c struct {
		Document json.RawMessage `json:"document"`
	}
	if err := json.Unmarshal(plain, &c); err != nil {
		return d, 0, err
	}
	d, err = room.DecodeDocument(c.Document)
	return d, len(plain), err
}

// decodePart reads a part, of which hash is the content hash where it is known.
func decodePart(hash string, data []byte, most int) (*part, error) {
	plain, err := unpack(data, most)
	if err != nil {
		return nil, err
	}
	p := &part{hash: Hash(plain), size: len(plain), data: data}
	if hash != "" && p.hash != hash {
		return nil, errContent
	}
	var c content
	if err := strictjson.Decode(plain, &c); err != nil {
		return nil, err
	}
	var table struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(c.Document, &table); err == nil && table.Version > room.SchemaVersion {
		// A node may leave out settings that it does not know; who writes would lose them.
		return nil, &NewerError{"settings", table.Version, room.SchemaVersion}
	}
	doc, err := room.DecodeDocument(c.Document)
	if err != nil {
		return nil, err
	}
	if len(c.Rooms) != len(doc.Rooms) || len(c.Hosts) != len(doc.Hosts) {
		return nil, errors.New("rooms, hosts: not as many as in the document")
	}
	for i, m := range slices.Concat(c.Rooms, c.Hosts) {
		if !m.Owner.valid() || m.Created < 0 || m.Created > maxVersion || m.Changed < 0 || m.Changed > maxVersion || m.Revision == 0 || m.Revision > maxVersion {
			return nil, fmt.Errorf("rooms, hosts: entry %d: owner %q, created %d, changed %d, revision %d: out of bounds", i, m.Owner, m.Created, m.Changed, m.Revision)
		}
	}
	doc = doc.WithDefaults()
	for i, s := range doc.Rooms {
		p.rooms = append(p.rooms, &Room{Mark(c.Rooms[i]), s})
	}
	for i, h := range doc.Hosts {
		p.hosts = append(p.hosts, &Host{Mark(c.Hosts[i]), h})
	}
	return p, nil
}

// divide returns the parts of s: so many, a power of two, that each has a small size and fits
// limit.
func divide(s *State, limit int, reuse []*part) ([]*part, error) {
	if n := len(reuse); n > 0 && n&(n-1) == 0 {
		parts, size, err := divideInto(s, n, limit, reuse)
		if err != nil {
			return nil, err
		}
		if parts != nil && size/n <= 2*partBytes && (n == 1 || size/n >= partBytes/4) {
			return parts, nil
		}
	}
	doc, err := room.EncodeDocument(s.Document())
	if err != nil {
		return nil, err // more than MaxDocumentBytes, or not UTF-8
	}
	n := 1
	for n < MaxSections && len(doc)/n > partBytes {
		n *= 2
	}
	for ; ; n *= 2 {
		parts, largest, err := divideInto(s, n, limit, nil)
		if err != nil || parts != nil {
			return parts, err
		}
		if n >= MaxSections {
			return nil, &TooLargeError{fmt.Sprintf("rooms: the largest of %d compressed parts of a document of %d bytes", n, len(doc)), largest, limit}
		}
	}
}

// divideInto returns n parts and the size of all before they are compressed, or nil and the
// compressed size of one that is larger than limit.
func divideInto(s *State, n, limit int, reuse []*part) (parts []*part, size int, err error) {
	rooms, hosts := make([][]*Room, n), make([][]*Host, n)
	of := func(name string) uint64 { return uint64(room.IDOf(name)) >> 32 * uint64(n) >> 32 }
	for _, r := range s.Rooms {
		rooms[of(r.Name)] = append(rooms[of(r.Name)], r)
	}
	for _, h := range s.Hosts {
		hosts[of(h.Name)] = append(hosts[of(h.Name)], h)
	}
	parts = make([]*part, n)
	for i := range parts {
		if reuse != nil && slices.Equal(reuse[i].rooms, rooms[i]) && slices.Equal(reuse[i].hosts, hosts[i]) {
			parts[i] = reuse[i]
		} else if parts[i], err = encodePart(rooms[i], hosts[i]); err != nil {
			return nil, 0, err
		}
		if len(parts[i].data) > limit {
			return nil, len(parts[i].data), nil
		}
		size += parts[i].size
	}
	return parts, size, nil
}
