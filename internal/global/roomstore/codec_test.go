package roomstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vestibule/internal/core/compress"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/fakes"
)

var update = flag.Bool("update", false, "write the golden files anew")

// 10,000 rooms fit a store with the message size of the embedded server, and a change of one room writes one part of
// them.
func TestTenThousandRoomsFit(t *testing.T) {
	const limit = 400<<10 - 1<<10
	d := fakes.Rooms(room.MaxRooms)
	s := written(t, set(d))
	s.Version = 1 << 41
	first := testkit.Must(pack(s, limit, nil))(t)
	total, largest := 0, 0
	for _, p := range first.parts {
		total, largest = total+len(p.data), max(largest, len(p.data))
	}
	if max(largest, len(first.owned), len(first.rooms)) > limit || first.whole {
		t.Errorf("%d bytes in a value, the limit is %d", max(largest, len(first.owned), len(first.rooms)), limit)
	}
	plain := testkit.Must(room.EncodeDocument(s.Document()))(t)
	draft := NewDraft(s)
	one := d.Rooms[7]
	one.TotalActiveUsers++
	put(one)(draft)
	next := testkit.Must(draft.Apply(5, 1<<41+1))(t)
	second := testkit.Must(pack(next, limit, first.parts))(t)
	fresh := 0
	for i, p := range second.parts {
		if p != first.parts[i] {
			fresh++
		}
	}
	if fresh != 1 {
		t.Errorf("a change of one room writes %d of %d parts", fresh, len(second.parts))
	}
	t.Logf("%d rooms: %d bytes plain, %d compressed in %d parts of at most %d; rooms.owned %d, rooms %d bytes",
		len(s.Rooms), len(plain), total, len(first.parts), largest, len(first.owned), len(first.rooms))
	got := stored(t, second)
	if len(got.Rooms) != room.MaxRooms || got.Room(one.Name).TotalActiveUsers != one.TotalActiveUsers ||
		got.Room(one.Name).Revision != next.Version {
		t.Errorf("%d rooms, %+v", len(got.Rooms), got.Room(one.Name))
	}
}

// stored returns the state in a store that holds p.
func stored(t testing.TB, p *packed) *State {
	t.Helper()
	o := testkit.Must(decodeOwned(p.owned))(t)
	s := testkit.Must(o.assemble(func(hash string, most int) (*part, error) {
		for _, part := range p.parts {
			if part.hash == hash {
				return decodePart(hash, part.data, most)
			}
		}
		return nil, errLate
	}))(t)
	return s
}

func TestStoredAndReadBack(t *testing.T) {
	for _, n := range []int{0, 1, 40, 900} {
		for _, limit := range []int{8 << 10, 400 << 10, 1 << 20} {
			if n*1000 > limit*4 { // slow, and like the others
				continue
			}
			s := written(t, set(fakes.Rooms(n)), put(shop("api", 5)), func(d *Draft) {
				d.PutHost(room.Host{Name: "h.example", Origin: "http://10.0.0.2"})
			})
			if n%2 == 1 {
				s.FromFile = true
			}
			p, err := pack(s, limit, nil)
			if err != nil {
				t.Fatalf("%d rooms, %d bytes: %v", n, limit, err)
			}
			got := stored(t, p)
			if got.Version != s.Version || got.String() != s.String() ||
				!slices.EqualFunc(got.Rooms, s.Rooms, func(a, b *Room) bool { return a.Mark == b.Mark && a.Equal(b.Settings) }) {
				t.Errorf("%d rooms, %d bytes: read back %d, not what was stored", n, limit, len(got.Rooms))
			}
			// Nodes read the same rooms, plain if they fit.
			h := testkit.Must(roomdoc.DecodeHead(p.rooms))(t)
			want := testkit.Must(roomdoc.EncodeRooms(s.Version, s.Document()))(t)
			if plain := h.Document != nil; plain != (len(want) < limit) || (plain && !bytes.Equal(p.rooms, want)) {
				t.Errorf("%d rooms, %d bytes: plain is %t, %d bytes", n, limit, plain, len(want))
			}
			v := view{rooms: &h}
			s.parts = p.parts
			if !v.says(s) || v.says(written(t, set(shops("other")))) {
				t.Errorf("%d rooms, %d bytes: what the rooms document says is not seen", n, limit)
			}
			back := testkit.Must(encodeCopy(s))(t)
			if got, err := decodeCopy(back); err != nil || got.String() != s.String() || got.Version != s.Version {
				t.Errorf("%d rooms: the copy on disk: %v", n, err)
			}
		}
	}
}

func TestWhatCannotBeStoredIsRefusedWithItsSize(t *testing.T) {
	_, err := Pack(1, fakes.Rooms(300), 1000)
	if large, ok := errors.AsType[*TooLargeError](err); !ok || large.Limit != 1000 || large.Size <= 1000 {
		t.Errorf("got %v", err)
	}
}

// The stored form stays the same: golden files hold a store's documents.
func TestGoldenFiles(t *testing.T) {
	doc := shops("arena", "theatre")
	doc.Hosts = []room.Host{{Name: "arena.example", Origin: "http://10.0.0.2"}}
	s := written(t, set(doc), put(shop("club", 7)))
	s.changes = []string{"CHANGEONE", "CHANGETWO"}
	for name, limit := range map[string]int{"whole": 1 << 20, "sections": 400} {
		p := testkit.Must(pack(s, limit, nil))(t)
		if (name == "whole") != p.whole {
			t.Fatalf("%s: whole is %t", name, p.whole)
		}
		files := map[string][]byte{name + ".owned.json": p.owned, name + ".rooms.json": p.rooms}
		for i, part := range p.parts {
			plain := testkit.Must(compress.Gunzip(part.data, roomdoc.MaxUnpacked))(t)
			files[fmt.Sprintf("%s.%d.part.json", name, i)] = plain
			files[fmt.Sprintf("%s.%d.part.gz", name, i)] = part.data
		}
		for file, data := range files {
			file = filepath.Join("testdata", file)
			if *update {
				testkit.NoError(t, os.MkdirAll("testdata", 0o755))
				testkit.NoError(t, os.WriteFile(file, data, 0o644))
			}
			want := testkit.Must(os.ReadFile(file))(t)
			// The compression of gzip may change, but not the content.
			if strings.HasSuffix(file, ".gz") || strings.HasSuffix(file, "whole.owned.json") {
				continue
			}
			if !bytes.Equal(data, want) {
				t.Errorf("%s: got\n%s\nwant\n%s", file, data, want)
			}
		}
		read := func(file string) []byte {
			return testkit.Must(os.ReadFile(filepath.Join("testdata", file)))(t)
		}
		o := testkit.Must(decodeOwned(read(name + ".owned.json")))(t)
		got, err := o.assemble(func(hash string, most int) (*part, error) {
			for i, part := range p.parts {
				if part.hash == hash {
					return decodePart(hash, read(fmt.Sprintf("%s.%d.part.gz", name, i)), most)
				}
			}
			return nil, errLate
		})
		if err != nil || got.String() != s.String() || got.Version != s.Version || !slices.Equal(got.changes, s.changes) {
			t.Errorf("%s: read %v, %v", name, got, err)
		}
	}
}

func TestWhatIsNoStateIsRefused(t *testing.T) {
	const doc = `"document":{"rooms":[],"hosts":[]}`
	whole := func(plain string) string {
		data := testkit.Must(json.Marshal(owned{Format: 1, Version: 1, Content: compress.Gzip([]byte(plain))}))(t)
		return string(data)
	}
	bomb, err := json.Marshal(owned{Format: 1, Version: 1, Content: compress.Gzip(make([]byte, roomdoc.MaxUnpacked+1))})
	testkit.NoError(t, err)
	room := `{"rooms":[%s],"hosts":[],"document":{"rooms":[{"name":"a"}],"hosts":[]}}`
	for _, c := range []struct{ data, want string }{
		{"", "EOF"},
		{"{}", "format: must be"},
		{`{"format":1}`, "version: must be"},
		{`{"format":1,"version":18014398509481984,"sections":["a"]}`, "version: must be"},
		{`{"format":1,"version":1}`, "exactly one"},
		{`{"format":1,"version":1,"content":"AA==","sections":["a"]}`, "exactly one"},
		{`{"format":1,"version":1,"content":"AA=="}`, "content:"},
		{`{"format":1,"version":1,"sections":["a"],"more":1}`, "unknown field"},
		{`{"format":1,"version":1,"sections":["a"]}{}`, "data after"},
		{`{"format":2,"version":1,"more":true}`, "update this one: format: version 2"},
		{`{"format":1,"version":1,"sections":["` + strings.Repeat(`a","`, roomdoc.MaxSections) + `a"]}`, "at most 256"},
		{
			`{"format":1,"version":1,"changes":["` + strings.Repeat(`a","`, maxChanges) + `a"],"sections":["a"]}`,
			"at most 128",
		},
		{whole(`{` + doc + `,"more":1}`), "unknown field"},
		{whole(`{"rooms":[{"created":1,"changed":1,"revision":1}],` + doc + `}`), "not as many"},
		{whole(fmt.Sprintf(room, `{"created":-1,"changed":1,"revision":1}`)), "out of bounds"},
		{whole(fmt.Sprintf(room, `{"created":1,"changed":1,"revision":0}`)), "out of bounds"},
		{
			whole(`{"rooms":[],"hosts":[],"document":{"rooms":[{"later":1}],"hosts":[]}}`),
			"update this one: decode rooms: rooms[0].later",
		},
		{string(bomb), "more than"},
	} {
		if _, err := decodeCopy([]byte(c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s: %v, want %q", c.data, err, c.want)
		}
	}
	if _, err := decodeCopy([]byte(whole(fmt.Sprintf(room, `{"created":1,"changed":1,"revision":1}`)))); err != nil {
		t.Errorf("a good one: %v", err)
	}
}

// Sections together are bounded too, however small each is.
func TestManySmallBombsAreBounded(t *testing.T) {
	plain := []byte(`{"rooms":[],"hosts":[],"document":{"rooms":[],"hosts":[]}` + strings.Repeat(" ", 1<<20) + `}`)
	data := compress.Gzip(plain)
	hash := roomdoc.Hash(plain)
	o := owned{Format: 1, Version: 1, Sections: slices.Repeat([]string{hash}, 200)}
	made := 0
	_, err := o.assemble(func(_ string, most int) (*part, error) {
		p, err := decodePart(hash, data, most)
		if err == nil {
			made += p.size
		}
		return p, err
	})
	if err == nil || made > roomdoc.MaxUnpacked {
		t.Errorf("%d bytes were made of %d, %v", made, 200*len(data), err)
	}
}

func FuzzDecode(f *testing.F) {
	s := written(f, set(fakes.Rooms(3)), put(shop("api", 5)))
	for _, limit := range []int{1 << 20, 1000} {
		p := testkit.Must(pack(s, limit, nil))(f)
		plain := testkit.Must(compress.Gunzip(p.parts[0].data, roomdoc.MaxUnpacked))(f)
		f.Add(p.owned, plain)
	}
	f.Fuzz(func(t *testing.T, head, plain []byte) {
		if len(plain) > 1<<20 {
			return
		}
		data := compress.Gzip(plain)
		o, err := decodeOwned(head)
		if err != nil {
			o = owned{Format: 1, Version: 1, Content: data}
		}
		got, err := o.assemble(func(string, int) (*part, error) { return decodePart("", data, roomdoc.MaxUnpacked) })
		if err != nil {
			return
		}
		// A decoded state can be encoded, and decodes to the same.
		again, err := encodeCopy(got)
		if err != nil {
			return // more than a document may have
		}
		back, err := decodeCopy(again)
		if err != nil || back.String() != got.String() {
			t.Errorf("read %v, wrote %v, %v", got, back, err)
		}
	})
}

func BenchmarkChangeOfOneOf(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d := fakes.Rooms(n)
			s := written(b, set(room.Document{}), put(d.Rooms...))
			p := testkit.Must(pack(s, 400<<10, nil))(b)
			s.parts = p.parts
			for i := 0; b.Loop(); i++ {
				r := d.Rooms[i%n]
				r.TotalActiveUsers = 1 + i%100_000
				draft := NewDraft(s)
				put(r)(draft)
				next := testkit.Must(draft.Apply(int64(i), s.Version+1))(b)
				p := testkit.Must(pack(next, 400<<10, s.parts))(b)
				next.parts = p.parts
				s = next
			}
		})
	}
}
