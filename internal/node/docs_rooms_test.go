package node

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vestibule/internal/core/compress"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/fakes"
)

// many returns n rooms, and a host with an origin.
func many(n int) room.Document {
	d := fakes.Rooms(n)
	d.Hosts = []room.Host{{Name: d.Rooms[0].Host, Origin: "http://10.0.0.1"}}
	return d
}

// publish stores a document and returns its head.
func publish(t *testing.T, docs memoryStore, version uint64, d room.Document, limit int) []byte {
	t.Helper()
	stored := testkit.Must(roomstore.Pack(version, d, limit))(t)
	for key, data := range stored {
		if len(data) > limit {
			t.Errorf("%s: %d bytes, the limit is %d", key, len(data), limit)
		}
	}
	head := stored[RoomsDocument]
	delete(stored, RoomsDocument)
	maps.Copy(docs, stored)
	return head
}

func TestADocumentThatFitsIsPlain(t *testing.T) {
	d := many(100)
	sortDocument(&d)
	head := publish(t, memoryStore{}, 7, d, 1<<20)
	want := testkit.Must(roomdoc.EncodeRooms(7, d))(t)
	if !bytes.Equal(head, want) {
		t.Errorf("not plain: %.100s", head)
	}
}

func TestALargeDocumentIsDivided(t *testing.T) {
	const limit = 8 << 10
	d := many(500)
	docs := memoryStore{}
	head := publish(t, docs, 7, d, limit)
	f := follow(t, t.TempDir(), docs)
	f.Offer(t.Context(), RoomsDocument, head)
	if n := len(f.Set().Rooms()); n != 500 || f.Set().Origins()[d.Rooms[0].Host] != "http://10.0.0.1" || f.changes != 1 {
		t.Fatalf("%d rooms, %d changes", n, f.changes)
	}
	// The copy on disk is whole.
	data := testkit.Must(os.ReadFile(filepath.Join(f.dir, "rooms.json")))(t)
	if _, d, err := roomdoc.DecodeRooms(data); err != nil || len(d.Rooms) != 500 {
		t.Fatalf("on disk: %d rooms, %v", len(d.Rooms), err)
	}
	again := follow(t, f.dir, nil)
	if n := len(again.Set().Rooms()); n != 500 || again.Set().Version() != 7 {
		t.Errorf("after a restart: %d rooms of version %d", n, again.Set().Version())
	}
	again.Fleet.docs = docs
	again.Offer(t.Context(), RoomsDocument, head)
	if again.changes != 0 || again.Alarm(RoomsDocument) != "" {
		t.Error("the same document is not known again")
	}

	// One more room changes one section, at any position.
	before := maps.Clone(docs)
	next := room.Document{Rooms: slices.Concat(many(501).Rooms[500:], d.Rooms), Hosts: d.Hosts}
	head = publish(t, docs, 8, next, limit)
	if n := len(docs) - len(before); n != 1 {
		t.Errorf("one room more changed %d sections of %d", n, len(before))
	}
	f.docs = docs
	for key := range before {
		delete(docs, key) // unchanged ones are not read again
	}
	f.Offer(t.Context(), RoomsDocument, head)
	if n := len(f.Set().Rooms()); n != 501 {
		t.Errorf("%d rooms after the change, alarm %q", n, f.Alarm(RoomsDocument))
	}
}

// A section may reach a store's replica after the head that refers to it.
func TestSectionsMayBeLate(t *testing.T) {
	docs := memoryStore{}
	f := follow(t, t.TempDir(), docs)
	f.Offer(t.Context(), RoomsDocument, rooms(t, 3, "", "a"))
	head := publish(t, docs, 4, many(200), 8<<10)
	there := maps.Clone(docs)
	key := slices.Sorted(maps.Keys(docs))[0]
	for what, spoil := range map[string]func(){
		"not there": func() { delete(docs, key) },
		"broken":    func() { docs[key] = docs[key][:len(docs[key])/2] },
		"another": func() {
			docs[key] = compress.Gzip([]byte(`{"rooms":[],"hosts":[{"name":"evil.example","origin":"http://10.6.6.6"}]}`))
		},
		"a bomb": func() { docs[key] = bytes.Repeat(compress.Gzip(make([]byte, 1<<20)), roomdoc.MaxUnpacked>>20+1) },
	} {
		spoil()
		f.Offer(t.Context(), RoomsDocument, head)
		if f.Set().Version() != 3 || !strings.Contains(f.Alarm(RoomsDocument), strings.TrimPrefix(key, "section.")) {
			t.Errorf("%s: version %d, alarm %q", what, f.Set().Version(), f.Alarm(RoomsDocument))
		}
		maps.Copy(docs, there)
	}
	f.retry(t.Context(), false)
	if f.Set().Version() != 4 || f.Alarm(RoomsDocument) != "" {
		t.Errorf("once they are there: version %d, alarm %q", f.Set().Version(), f.Alarm(RoomsDocument))
	}
}

// Rooms that were overtaken while their sections were read are dropped.
func TestLateRoomsDoNotOvertake(t *testing.T) {
	docs := memoryStore{}
	f := follow(t, t.TempDir(), docs)
	head := publish(t, docs, 4, many(200), 8<<10)
	slow := &slowStore{memoryStore: docs, asked: make(chan bool, 100), answer: make(chan bool)}
	f.Fleet.docs = slow
	done := make(chan bool)
	go func() {
		defer close(done)
		f.Offer(context.Background(), RoomsDocument, head)
	}()
	<-slow.asked
	f.Offer(t.Context(), RoomsDocument, rooms(t, 5, "", "a")) // does not wait for the slow store
	if f.Set().Version() != 5 {
		t.Fatal("a slow store keeps newer rooms from being taken")
	}
	close(slow.answer)
	<-done
	if f.Set().Version() != 5 || f.Alarm(RoomsDocument) != "" || f.changes != 1 {
		t.Errorf("version %d, alarm %q, %d changes", f.Set().Version(), f.Alarm(RoomsDocument), f.changes)
	}
}

type slowStore struct {
	memoryStore
	asked, answer chan bool
}

func (s *slowStore) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	s.asked <- true
	<-s.answer
	return s.memoryStore.Get(ctx, key)
}

func TestEnvelopesAreReadStrictly(t *testing.T) {
	for _, bad := range []string{
		`{"version":1,"document":{"rooms":[]},"sections":["a"]}`, `{"version":0,"sections":["a"]}`,
		`{"version":1,"sections":["a"],"more":1}`,
		`{"version":1,"sections":["a"]} {}`, `{"version":1,"sections":["` + strings.Repeat(`a","`,
			roomdoc.MaxSections) + `a"]}`, `{"version":1}`,
	} {
		docs := memoryStore{}
		f := follow(t, t.TempDir(), docs)
		f.Offer(t.Context(), RoomsDocument, []byte(bad))
		if f.Set() != nil || f.late != nil || f.Alarm(RoomsDocument) == "" {
			t.Errorf("taken: %.60s", bad)
		}
	}
}
