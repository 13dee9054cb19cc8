package roomstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"vestibule/internal/core/compress"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/strictjson"
)

// part is a stored share of a state: the rooms and hosts with the same leading bits of the ID. It is immutable.
type part struct {
	rooms []*Room
	hosts []*Host
	hash  string // of the content
	size  int    // bytes of it
	data  []byte // the content, compressed

	fromFile bool // of the state: see State.FromFile
}

// content is the decoded content of a part. A node reads the document alone.
type content struct {
	Rooms    []Mark          `json:"rooms"` // in the order of the document
	Hosts    []Mark          `json:"hosts"`
	Document json.RawMessage `json:"document"`
	FromFile bool            `json:"from_file,omitempty"`
}

func encodePart(rooms []*Room, hosts []*Host, fromFile bool) (*part, error) {
	doc, err := room.EncodeDocument(document(rooms, hosts))
	if err != nil {
		return nil, err
	}
	c := content{Rooms: []Mark{}, Hosts: []Mark{}, Document: doc, FromFile: fromFile}
	for _, r := range rooms {
		c.Rooms = append(c.Rooms, r.Mark)
	}
	for _, h := range hosts {
		c.Hosts = append(c.Hosts, h.Mark)
	}
	plain, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return &part{
		rooms: rooms, hosts: hosts, hash: roomdoc.Hash(plain), size: len(plain), data: compress.Gzip(plain),
		fromFile: fromFile,
	}, nil
}

// decodePart decodes a part. hash is its content hash, if known.
func decodePart(hash string, data []byte, most int) (*part, error) {
	plain, err := compress.Gunzip(data, most)
	if err != nil {
		return nil, err
	}
	p := &part{hash: roomdoc.Hash(plain), size: len(plain), data: data}
	if hash != "" && p.hash != hash {
		return nil, roomdoc.ErrContent
	}
	var c content
	if err := strictjson.Decode(plain, &c); err != nil {
		return nil, err
	}
	p.fromFile = c.FromFile
	doc, err := room.DecodeDocument(c.Document)
	if errors.Is(err, room.ErrUnknownField) {
		return nil, &NewerError{err}
	}
	if err != nil {
		return nil, err
	}
	if len(c.Rooms) != len(doc.Rooms) || len(c.Hosts) != len(doc.Hosts) {
		return nil, errors.New("rooms, hosts: not as many as in the document")
	}
	marks := slices.Concat(c.Rooms, c.Hosts)
	for i, m := range marks {
		if m.Created < 0 || m.Created > maxVersion || m.Changed < 0 || m.Changed > maxVersion || m.Revision == 0 ||
			m.Revision > maxVersion {
			return nil, fmt.Errorf("rooms, hosts: entry %d: created %d, changed %d, revision %d: out of bounds", i, m.Created,
				m.Changed, m.Revision)
		}
	}
	doc = doc.WithDefaults()
	for i, s := range doc.Rooms {
		p.rooms = append(p.rooms, &Room{c.Rooms[i], s})
	}
	for i, h := range doc.Hosts {
		p.hosts = append(p.hosts, &Host{c.Hosts[i], h})
	}
	return p, nil
}

// divide returns the parts of s. Their number is the power of two that makes each small enough, also for limit.
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
	for n < roomdoc.MaxSections && len(doc)/n > partBytes {
		n *= 2
	}
	for ; ; n *= 2 {
		parts, largest, err := divideInto(s, n, limit, nil)
		if err != nil || parts != nil {
			return parts, err
		}
		if n >= roomdoc.MaxSections {
			return nil, &TooLargeError{
				fmt.Sprintf("rooms: the largest of %d compressed parts of a document of %d bytes", n, len(doc)), largest, limit,
			}
		}
	}
}

// divideInto returns n parts and their total size before compression, or nil and the compressed size of a part that is
// larger than limit.
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
		if reuse != nil && reuse[i].fromFile == s.FromFile && slices.Equal(reuse[i].rooms, rooms[i]) &&
			slices.Equal(reuse[i].hosts, hosts[i]) {
			parts[i] = reuse[i]
		} else if parts[i], err = encodePart(rooms[i], hosts[i], s.FromFile); err != nil {
			return nil, 0, err
		}
		if len(parts[i].data) > limit {
			return nil, len(parts[i].data), nil
		}
		size += parts[i].size
	}
	return parts, size, nil
}
