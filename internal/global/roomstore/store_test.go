package roomstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/fakes"
)

func newStore(docs wire.DocumentStore, file string) *Store {
	return New(Options{
		Docs: docs, Copy: file, Log: slog.New(slog.DiscardHandler), Floor: func() uint64 { return 0 },
		Keep: func(file string, data []byte) error {
			return os.WriteFile(file, data, 0o600)
		},
	})
}

// change puts rooms as the API does, or fails the test.
func change(t testing.TB, s *Store, rooms ...room.Settings) *State {
	t.Helper()
	return testkit.Must(s.Change(context.Background(), all(put(rooms...))))(t)
}

// all is an edit that does not fail.
func all(edit func(*Draft)) func(*Draft) error {
	return func(d *Draft) error {
		edit(d)
		return nil
	}
}

// publish publishes doc like a leader with a file.
func publish(t testing.TB, s *Store, doc room.Document) *State {
	t.Helper()
	return lead(t, s, follow(doc))
}

// lead publishes an edit like a leader, or fails the test.
func lead(t testing.TB, s *Store, edit func(*Draft)) *State {
	t.Helper()
	return testkit.Must(s.Publish(context.Background(), false, all(edit)))(t)
}

// current returns a node's view of the store: the version and the rooms.
func current(t testing.TB, s *memoryStore) (uint64, string) {
	t.Helper()
	h := testkit.Must(roomdoc.DecodeHead(s.docs[roomdoc.RoomsDocument].data))(t)
	var doc room.Document
	if h.Document != nil {
		doc = testkit.Must(room.DecodeDocument(h.Document))(t)
	}
	for _, hash := range h.Sections {
		d, _, err := roomdoc.DecodeSection(hash, s.docs[roomdoc.SectionDocument(hash)].data, roomdoc.MaxUnpacked)
		testkit.NoError(t, err)
		doc.Rooms, doc.Hosts = append(doc.Rooms, d.Rooms...), append(doc.Hosts, d.Hosts...)
	}
	if _, err := room.NewSet(doc, h.Version); err != nil {
		t.Errorf("nodes get rooms that break a rule: %v", err)
	}
	var names []string
	for _, r := range doc.Rooms {
		names = append(names, fmt.Sprintf("%s=%d", r.Name, r.TotalActiveUsers))
	}
	slices.Sort(names)
	return h.Version, strings.Join(names, " ")
}

func want(t testing.TB, s *memoryStore, rooms string) {
	t.Helper()
	if _, got := current(t, s); got != rooms {
		t.Errorf("nodes get %q, want %q", got, rooms)
	}
}

// Either the file or the store decides, and no room is lost if the authority changes.
func TestOneAuthority(t *testing.T) {
	docs := newMemoryStore()
	leader, other := newStore(docs, ""), newStore(docs, "")
	other.File = "/etc/rooms.yaml"
	refused := func(s *Store, says string) {
		t.Helper()
		before := docs.revision
		_, err := s.Change(t.Context(), all(put(shop("x", 7))))
		if file, ok := errors.AsType[*FromFileError](err); !ok || file.Error() != says || docs.revision != before {
			t.Errorf("%v, want %s", err, says)
		}
	}
	const elsewhere, here = "rooms come from the rooms file of the leading global: change them there",
		"rooms come from /etc/rooms.yaml: change them there"
	refused(other, here) // also before the leader has published it
	publish(t, leader, shops("a", "b"))
	want(t, docs, "a=5 b=5")
	refused(leader, elsewhere)
	refused(other, here)
	version, _ := current(t, docs)
	revision := docs.revision
	publish(t, leader, shops("b", "a"))
	if v, _ := current(t, docs); v != version || docs.revision != revision {
		t.Errorf("nothing changed: version %d after %d, %d writes", v, version, docs.revision-revision)
	}
	publish(t, leader, shops("a"))
	want(t, docs, "a=5")

	lead(t, leader, (*Draft).Detach) // the file is gone from the configuration
	want(t, docs, "a=5")
	change(t, other, shop("x", 7))
	want(t, docs, "a=5 x=7")
	version, _ = current(t, docs)
	change(t, other, shop("x", 7))
	if v, _ := current(t, docs); v != version {
		t.Errorf("nothing changed: version %d after %d", v, version)
	}

	leadOther := func(doc room.Document) error { // it leads with another file
		_, err := newStore(docs, "").Publish(t.Context(), false, func(d *Draft) error { return d.Follow(doc) })
		return err
	}
	for _, doc := range []room.Document{shops("a"), shops("a", "x"), {}} {
		if _, ok := errors.AsType[*DiffersError](leadOther(doc)); !ok {
			t.Errorf("%v is followed", doc.Rooms)
		}
	}
	want(t, docs, "a=5 x=7")
	change(t, other, shop("x", 5)) // the store goes on to decide
	if err := leadOther(shops("a", "x")); err != nil {
		t.Error(err)
	}
	refused(other, here)
	publish(t, leader, shops("x"))
	want(t, docs, "x=5")
}

// A store without a state document has a rooms document alone. A leader that knows no other form publishes its file
// in between; the rooms of the store are not lost.
func TestAStoreWithoutAState(t *testing.T) {
	docs := newMemoryStore()
	put := func(version uint64, d room.Document) {
		t.Helper()
		data := testkit.Must(roomdoc.EncodeRooms(version, d.WithDefaults()))(t)
		testkit.Must(docs.Put(t.Context(), roomdoc.RoomsDocument, data,
			docs.docs[roomdoc.RoomsDocument].revision))(t)
	}
	ahead := uint64(time.Now().Add(time.Hour).UnixMilli())
	put(ahead, shops("a", "b"))
	other := newStore(docs, "")
	state := change(t, other, shop("x", 7))
	want(t, docs, "a=5 b=5 x=7")
	if state.FromFile || state.Version <= ahead {
		t.Errorf("%v of version %d after %d", state, state.Version, ahead)
	}
	version, _ := current(t, docs)
	put(version+100, shops("a", "c")) // by the old leader
	if got := lead(t, newStore(docs, ""), (*Draft).Detach); got.Version <= version+100 {
		t.Errorf("version %d does not follow %d", got.Version, version+100)
	}
	want(t, docs, "a=5 b=5 x=7")
}

func TestWhatTheStoreLostIsGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		limit int
		file  bool
	}{
		"whole": {1 << 20, false}, "sections": {2000, false}, "whole, of a file": {1 << 20, true},
		"sections, of a file": {2000, true},
	} {
		t.Run(name, func(t *testing.T) {
			docs := newMemoryStore()
			docs.limit = c.limit
			say := func(s *Store, totals ...int) *State {
				t.Helper()
				doc := room.Document{Rooms: []room.Settings{shop("a", totals[0]), shop("b", totals[1]), shop("x", totals[2])}}
				if c.file {
					return publish(t, s, doc)
				}
				change(t, s, doc.Rooms...)
				return lead(t, s, (*Draft).Detach)
			}
			file := filepath.Join(t.TempDir(), "rooms.owned.json")
			s := newStore(docs, file)
			say(s, 5, 5, 6)
			old := map[string]entry{
				OwnedDocument:         docs.docs[OwnedDocument],
				roomdoc.RoomsDocument: docs.docs[roomdoc.RoomsDocument],
			}
			before := say(s, 5, 5, 7)
			s.keep()
			restarted := func() *Store { return newStore(docs, file) }
			for what, spoil := range map[string]func(){
				"everything": docs.lose,
				"the state":  func() { delete(docs.docs, OwnedDocument) },
				"the rooms":  func() { delete(docs.docs, roomdoc.RoomsDocument) },
				"the last hour": func() {
					docs.docs[OwnedDocument], docs.docs[roomdoc.RoomsDocument] = old[OwnedDocument], old[roomdoc.RoomsDocument]
				},
				"its senses": func() { docs.docs[OwnedDocument] = entry{[]byte("{"), 9999, time.Now()} },
				"a section": func() {
					for key := range docs.docs {
						if roomdoc.ByContent(key) {
							delete(docs.docs, key)
						}
					}
				},
			} {
				for who, s := range map[string]*Store{"who lives": s, "who was restarted": restarted()} {
					if what == "a section" && who == "who was restarted" {
						continue // only their writer has them; its copy is of the same version, and must not be overwritten
					}
					s.applyOwned(t.Context(), docs.docs[OwnedDocument].data) // as from its watch
					spoil()
					if c.file {
						say(s, 5, 5, 7)
					} else {
						lead(t, s, (*Draft).Detach)
					}
					want(t, docs, "a=5 b=5 x=7")
					if r := s.Known().Room("x"); s.Known().FromFile != c.file || r.Mark != before.Room("x").Mark {
						t.Errorf("%s, given back by %s: %+v", what, who, r.Mark)
					}
					s.keep()
					old[OwnedDocument], old[roomdoc.RoomsDocument] = docs.docs[OwnedDocument], docs.docs[roomdoc.RoomsDocument]
					say(s, 6, 5, 7)
					say(s, 5, 5, 7)
					s.keep()
				}
			}
		})
	}
}

// An unreferenced part is deleted an hour after it was last written, a page after pageFor.
func TestWhatNothingNamesIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := newMemoryStore()
		docs.limit = 2000
		s := newStore(docs, "")
		parts := func() (n int) {
			for key := range docs.docs {
				if roomdoc.ByContent(key) {
					n++
				}
			}
			return n
		}
		lead(t, s, set(shops("a", "b")))
		page := func(content string) {
			testkit.Must(s.Publish(context.Background(), false, func(d *Draft) error {
				r := shop("a", 5)
				r.WaitingPage = d.AddPage("page.html", []byte(content))
				d.Set(room.Document{Rooms: []room.Settings{r, shop("b", 5)}})
				return nil
			}))(t)
		}
		page("one")
		page("two")
		if n := parts(); n != 5 { // two pages, three sections
			t.Errorf("%d parts at once", n)
		}
		time.Sleep(unnamedFor + time.Second)
		page("two")
		if n := parts(); n != 3 {
			t.Errorf("%d parts an hour later: the page that nothing names is kept for a restore", n)
		}
		time.Sleep(pageFor)
		page("two")
		if n := parts(); n != 2 {
			t.Errorf("%d parts a month later", n)
		}
		want(t, docs, "a=5 b=5")
		// A writer writes a part again that another leader is about to delete.
		page("one")
		page("three")
		time.Sleep(pageFor + time.Second)
		other := newStore(docs, "")
		docs.before = func(op, key string) fate {
			if op == "delete" && key == roomdoc.PageDocument(roomdoc.Hash([]byte("one"))) {
				docs.before = nil
				if _, err := other.Change(context.Background(), func(d *Draft) error {
					r := shop("x", 5)
					r.WaitingPage = d.AddPage("page.html", []byte("one"))
					d.Put(r)
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
			return done
		}
		page("three")
		if docs.before != nil || docs.docs[roomdoc.PageDocument(roomdoc.Hash([]byte("one")))].data == nil {
			t.Error("a page that is needed again was deleted")
		}
	})
}

// A lost answer is detected: the change is made once, and acknowledged.
func TestAChangeWithoutAnAnswerIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, bad := range []fate{failed, silent} {
			docs := newMemoryStore()
			s := newStore(docs, "")
			change(t, s, shop("a", 5), shop("x", 1))
			for _, key := range []string{OwnedDocument, roomdoc.RoomsDocument} {
				_, before := current(t, docs)
				times := 0
				docs.before = func(op, k string) fate {
					if op == "put" && k == key && times == 0 {
						times++
						return bad
					}
					return done
				}
				calls := 0
				state, err := s.Change(context.Background(), func(d *Draft) error {
					calls++
					r := d.Room("x").Settings
					r.TotalActiveUsers++ // not the same twice
					d.Put(r)
					return nil
				})
				if err != nil || times != 1 {
					t.Fatalf("%s %d: %v", key, bad, err)
				}
				docs.before = nil
				lead(t, s, (*Draft).Detach)
				if _, after := current(t, docs); after == before ||
					after != fmt.Sprintf("a=5 x=%d", state.Room("x").TotalActiveUsers) {
					t.Errorf("%s %d: %s, then %s", key, bad, before, after)
				}
			}
			want(t, docs, "a=5 x=3")
		}
		docs := newMemoryStore()
		s := newStore(docs, "")
		change(t, s, shop("a", 5))
		docs.before = func(op, key string) fate {
			if op == "put" && key == OwnedDocument {
				docs.before = func(string, string) fate { return failed }
				return silent
			}
			return done
		}
		if _, err := s.Change(context.Background(), all(put(shop("x", 1)))); !errors.Is(err, ErrUnknown) {
			t.Errorf("of a store that says nothing any more: %v", err)
		}
		docs.before = nil
		lead(t, s, (*Draft).Detach)
		want(t, docs, "a=5 x=1")
	})
}

// TestInterleavings: with any events between two operations of a writer, over any store, no acknowledged change is
// lost and none is made twice. Only the authority changes rooms, and another one begins with the same rooms. Nodes
// get valid sets of growing versions, and all agree in the end.
func TestInterleavings(t *testing.T) {
	rapid.Check(t, interleave)
}

func interleave(rt *rapid.T) {
	const ofFile, ofStore, ofBoth = "file", "store", "both in turns"
	authority := rapid.SampledFrom([]string{ofFile, ofStore, ofBoth}).Draw(rt, "authority")
	docs := newMemoryStore()
	docs.limit = rapid.SampledFrom([]int{1 << 20, 2500}).Draw(rt, "limit")
	stores := []*Store{newStore(docs, ""), newStore(docs, ""), newStore(docs, "")}
	now := time.UnixMilli(1_000_000)
	stream := &fakes.Stream{}
	audited := docs.limit > 1<<16 // else no document has room for pending entries
	var versions []uint64         // of all states that were written
	for _, s := range stores {
		if authority == ofFile {
			s.File = "rooms.yaml"
		}
		if audited {
			s.outbox.journal = audit.NewJournal(stream)
			s.outbox.journal.Pause = func(context.Context, time.Duration) {}
		}
		s.now = func() time.Time { return now }
		s.pause = func(context.Context, time.Duration) { now = now.Add(time.Millisecond) }
		s.both = func(a, b func()) { a(); b() }
	}
	var last *State
	var published uint64
	docs.wrote = func(key string, data []byte) {
		switch key {
		case OwnedDocument:
			o := testkit.Must(decodeOwned(data))(rt)
			next, err := o.assemble(func(hash string, most int) (*part, error) {
				return decodePart(hash, docs.docs[roomdoc.SectionDocument(hash)].data, most)
			})
			if err != nil {
				rt.Fatalf("a state is written before its parts: %v", err)
			}
			if last != nil {
				if next.Version <= last.Version {
					rt.Fatalf("version %d after %d", next.Version, last.Version)
				}
				if last.FromFile != next.FromFile && !last.empty() && !next.empty() && len(Changes(last, next)) > 0 {
					rt.Fatalf("another authority begins with other rooms: %v to %v", last, next)
				}
			}
			last, versions = next, append(versions, next.Version)
		case roomdoc.RoomsDocument:
			h, err := roomdoc.DecodeHead(data)
			if err != nil || h.Version <= published {
				rt.Fatalf("nodes have version %d after %d, %v", h.Version, published, err)
			}
			published = h.Version
			var doc room.Document
			if h.Document != nil {
				doc = testkit.Must(room.DecodeDocument(h.Document))(rt)
			}
			for _, hash := range h.Sections {
				d, _, err := roomdoc.DecodeSection(hash, docs.docs[roomdoc.SectionDocument(hash)].data, roomdoc.MaxUnpacked)
				if err != nil {
					rt.Fatalf("nodes are updated of a section that is not there: %v", err)
				}
				doc.Rooms, doc.Hosts = append(doc.Rooms, d.Rooms...), append(doc.Hosts, d.Hosts...)
			}
			if _, err := room.NewSet(doc, h.Version); err != nil {
				rt.Fatalf("nodes get rooms that break a rule: %v", err)
			}
		}
	}
	names := []string{"a", "b", "c", "d"}
	acked := map[string]int{} // by room of the API: acknowledged changes
	maybe := map[string]int{} // and changes with an unknown result
	var fileDoc room.Document // the last published one
	fileSure := true          // and no other publication was under way
	began, open := 0, 0       // publications
	depth := 0
	step := func() {
		depth++
		defer func() { depth-- }()
		s := stores[rapid.IntRange(0, len(stores)-1).Draw(rt, "store")]
		select {
		case s.turn <- struct{}{}: // else it waits for the one that is in the middle of something
			<-s.turn
		default:
			return
		}
		switch rapid.IntRange(0, 3).Draw(rt, "who") {
		case 0:
			if authority != ofFile { // a leader without a file
				_, _ = s.Publish(By(context.Background(), audit.By{Name: "api"}), rapid.Bool().Draw(rt, "doubted"),
					all((*Draft).Detach))
				return
			}
		case 1:
			if authority == ofStore {
				break
			}
			var doc room.Document
			for _, n := range names {
				switch rapid.IntRange(0, 3).Draw(rt, n) {
				case 0:
					doc.Rooms = append(doc.Rooms, shop(n, 5))
				case 1:
					doc.Rooms = append(doc.Rooms, shop(n, 6))
				}
			}
			began++
			open++
			mine, doubted := began, rapid.Bool().Draw(rt, "doubted")
			_, err := s.Publish(By(context.Background(), audit.By{Name: "file"}), doubted,
				func(d *Draft) error { return d.Follow(doc) })
			open--
			_, differs := errors.AsType[*DiffersError](err)
			if _, refused := errors.AsType[room.Faults](err); !refused && !differs {
				fileDoc, fileSure = doc, err == nil && began == mine && open == 0
			}
			return
		}
		n := rapid.SampledFrom(names).Draw(rt, "room")
		host := rapid.SampledFrom(names).Draw(rt, "host")
		_, err := s.Change(By(context.Background(), audit.By{Name: "api"}), func(d *Draft) error {
			r := d.Room(n)
			if r == nil {
				fresh := shop(n, 1)
				fresh.Host = host + ".example"
				d.Put(fresh)
				return nil
			}
			up := r.Settings
			up.TotalActiveUsers++
			d.Put(up)
			return nil
		})
		rt.Logf("store %p, room %s: %v", s, n, err)
		switch {
		case err == nil && authority == ofFile:
			rt.Fatal("the API changes rooms of a file")
		case err == nil:
			acked[n]++
		case errors.Is(err, ErrUnknown):
			maybe[n]++
		default: // not made
		}
	}
	ops := 0
	docs.before = func(op, key string) fate {
		if op == "get" && roomdoc.ByContent(key) {
			return done // these are read by several goroutines
		}
		if ops++; ops > 400 {
			return done
		}
		switch rapid.IntRange(0, 11).Draw(rt, "fate") {
		case 0:
			return failed
		case 1:
			if op == "put" {
				return silent
			}
			return stale
		case 2, 3:
			if depth < 3 {
				step()
			}
		}
		return done
	}
	stream.Before = func(op string) string {
		if ops++; ops > 400 {
			return ""
		}
		switch rapid.IntRange(0, 11).Draw(rt, "fate of the stream") {
		case 0, 1:
			return "failed"
		case 2:
			if op == "append" {
				return "silent"
			}
			return "stale"
		case 3:
			if depth < 3 {
				step()
			}
		}
		return ""
	}
	for range rapid.IntRange(1, 8).Draw(rt, "steps") {
		step()
	}
	docs.before, stream.Before = nil, nil
	leader := stores[0]
	state := testkit.Must(leader.Publish(context.Background(), false, func(d *Draft) error { return nil }))(rt)
	for _, n := range names {
		got := 0
		if r := state.Room(n); r != nil {
			got = r.TotalActiveUsers
		}
		if authority == ofStore && (got < acked[n] || got > acked[n]+maybe[n]) {
			rt.Fatalf("room %s was changed %d times, %d were told as made, of %d that is not known", n, got, acked[n], maybe[n])
		}
	}
	if authority == ofFile && fileSure {
		if len(state.Rooms) != len(fileDoc.Rooms) || state.FromFile == state.empty() {
			rt.Fatalf("%v is in force, the file has %d rooms", state, len(fileDoc.Rooms))
		}
		for _, r := range fileDoc.Rooms {
			if have := state.Room(r.Name); have == nil || !have.Equal(r) {
				rt.Fatalf("%s of the file is not in force", r.Name)
			}
		}
	}
	if state.Version != 0 && published != state.Version {
		rt.Fatalf("nodes have version %d, the state is %d", published, state.Version)
	}
	if !audited {
		return
	}
	// Every change has its entry, once, in order, with its author.
	var chain audit.Chain
	var entries []uint64
	for _, data := range stream.Entries() {
		e, gap, err := chain.Next(data)
		if err != nil || gap != "" {
			rt.Fatalf("%s: %v %s", data, err, gap)
		}
		entries = append(entries, e.Version)
		for _, r := range e.Rooms {
			if by := map[string]string{ofFile: "file", ofStore: "api"}[authority]; authority != ofBoth && e.By.Name != by &&
				e.By.Name != "unknown" {
				rt.Fatalf("a room of the %s was changed by %s: %s", authority, e.By.Name, data)
			}
			if e.By.Name == "api" {
				acked[r.Name]--
			}
		}
	}
	if !slices.Equal(entries, versions) {
		rt.Fatalf("there are entries of the versions %v, and states %v", entries, versions)
	}
	for _, n := range names {
		if acked[n] > 0 {
			rt.Fatalf("%d changes of %s were told as made and have no entry", acked[n], n)
		}
	}
}
