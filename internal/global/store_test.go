package global_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/fleet"
	"vestibule/internal/global"
	"vestibule/internal/natsbus/embedded"
	"vestibule/internal/node"
	"vestibule/internal/slots"
	"vestibule/internal/ticket"
)

const bucket = "vestibule_documents"

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// operator reaches the store as an operator does.
func operator(t *testing.T, s *embedded.Server) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// store returns what the store holds, nothing for a document that it does not.
func store(t *testing.T, js jetstream.JetStream) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	kv, err := js.KeyValue(within(t), bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return out
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{node.RoomsDocument, node.KeysDocument} {
		e, err := kv.Get(within(t), key)
		switch {
		case err == nil:
			out[key] = e.Value()
		case !errors.Is(err, jetstream.ErrKeyNotFound):
			t.Fatal(err)
		}
	}
	return out
}

// putBack replaces the store by a backup.
func putBack(t *testing.T, js jetstream.JetStream, backup map[string][]byte) {
	t.Helper()
	if err := js.DeleteKeyValue(within(t), bucket); err != nil {
		t.Fatal(err)
	}
	kv, err := js.CreateOrUpdateKeyValue(within(t), jetstream.KeyValueConfig{Bucket: bucket, History: 1, Storage: jetstream.FileStorage})
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range backup {
		if _, err := kv.Put(within(t), key, value); err != nil {
			t.Fatal(err)
		}
	}
}

// A store that loses its documents, or gets older ones back, while global leads is
// given back what it held. Nobody goes back meanwhile.
func TestTheStoreIsGivenBackWhatItLost(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, js jetstream.JetStream, backup map[string][]byte){
		"purged": func(t *testing.T, js jetstream.JetStream, _ map[string][]byte) {
			stream, err := js.Stream(within(t), "KV_"+bucket)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Purge(within(t)); err != nil {
				t.Fatal(err)
			}
		},
		"deleted": func(t *testing.T, js jetstream.JetStream, _ map[string][]byte) {
			if err := js.DeleteKeyValue(within(t), bucket); err != nil {
				t.Fatal(err)
			}
		},
		"older": putBack,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			file := roomsFile(t, 5, "", "a")
			c, f := stand(t, s, "one", file, func(c *global.Config) { c.KeyRotation = ticket.MinRotation }), reader(t, s)
			eventually(t, "the first rooms are known", func() bool { return total(f.Set(), "a") == 5 && len(f.Ring().Keys) == 2 })
			js := operator(t, s)
			backup := store(t, js)
			writeRooms(t, file, 7, "", "a")
			eventually(t, "the change is known", func() bool { return total(f.Set(), "a") == 7 })
			version, ring := f.Set().Version(), f.Ring()
			spoil(t, js, backup)
			eventually(t, "the store holds again what is in use", func() bool {
				if total(f.Set(), "a") != 7 || f.Set().Version() < version || f.Ring().Version < ring.Version {
					t.Fatalf("went back to %d of version %d, keys %d", total(f.Set(), "a"), f.Set().Version(), f.Ring().Version)
				}
				held := store(t, js)
				v, _, err := node.DecodeRooms(held[node.RoomsDocument])
				if err != nil || v < version {
					return false
				}
				keys, err := ticket.DecodeKeyring(held[node.KeysDocument])
				return err == nil && keys.Version >= ring.Version && keys.Keys[0] == ring.Keys[0]
			})
			eventually(t, "no alarm is left", func() bool { return len(f.Alarms()) == 0 && len(c.Ready().Alarms) == 0 })
		})
	}
}

// The list of data centres too: an older one, or none, is replaced by the one that
// the leading global knows.
func TestTheStoreIsGivenBackTheListOfDataCentres(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := stand(t, s, "one", roomsFile(t, 5, "", "a"), nil)
	eventually(t, "it leads, and the bucket is there", func() bool { return c.leads() && c.Status().Rooms["a"].Total == 5 })
	kv, err := operator(t, s).KeyValue(within(t), bucket)
	if err != nil {
		t.Fatal(err)
	}
	old := node.NewMembers(time.Now(), []string{"dublin"})
	newest, err := old.Add(time.Now(), "lima")
	if err != nil {
		t.Fatal(err)
	}
	put := func(m *node.Members) {
		t.Helper()
		data, err := node.EncodeMembers(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Put(within(t), node.MembersDocument, data); err != nil {
			t.Fatal(err)
		}
	}
	put(newest)
	listed := func() bool {
		return slices.ContainsFunc(c.Status().Rooms["a"].Centres, func(d slots.CentreLedger) bool { return d.Name == "lima" })
	}
	eventually(t, "it goes by the list without a restart", listed)
	for what, spoil := range map[string]func(){
		"older": func() { put(old) },
		"gone": func() {
			if err := kv.Delete(within(t), node.MembersDocument); err != nil {
				t.Fatal(err)
			}
		},
	} {
		spoil()
		eventually(t, what+": the store holds the list again", func() bool {
			e, err := kv.Get(within(t), node.MembersDocument)
			if err != nil {
				return false
			}
			m, err := node.DecodeMembers(e.Value())
			return err == nil && m.Version == newest.Version && len(c.Ready().Alarms) == 0
		})
		if !listed() {
			t.Errorf("%s: it went back to the older list", what)
		}
	}
}

// Everything of global is lost with the store; the nodes know more. The rooms file
// wins, by a version above all that were ever seen. The keys do not: the nodes
// keep theirs, and say so, until the operator hands them to global.
func TestAGlobalThatKnowsNothingDoesNotSilentlyGoBack(t *testing.T) {
	t.Parallel()
	s := serve(t)
	file := roomsFile(t, 5, "", "a")
	first, f := stand(t, s, "one", file, nil), reader(t, s)
	for n := range 5 {
		writeRooms(t, file, 10+n, "", "a")
		eventually(t, "the rooms are known", func() bool { return total(f.Set(), "a") == 10+n })
	}
	eventually(t, "the keys are known", func() bool { return len(f.Ring().Keys) == 2 })
	// Two rotations, so that keys made anew are older.
	js, ring := operator(t, s), f.Ring()
	ring.Version += 2
	data, err := ticket.EncodeKeyring(ring)
	if err != nil {
		t.Fatal(err)
	}
	first.stop()
	kv, err := js.KeyValue(within(t), bucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(within(t), node.KeysDocument, data); err != nil {
		t.Fatal(err)
	}
	eventually(t, "they are rotated", func() bool { return f.Ring().Version == ring.Version })
	if err := js.DeleteKeyValue(within(t), bucket); err != nil {
		t.Fatal(err)
	}

	before := f.Set().Version()
	second := stand(t, s, "two", roomsFile(t, 99, "", "a"), nil)
	eventually(t, "the rooms file wins", func() bool { return total(f.Set(), "a") == 99 })
	if v := f.Set().Version(); v <= before {
		t.Errorf("version %d after %d", v, before)
	}
	eventually(t, "the keys are refused", func() bool { return f.Alarm(node.KeysDocument) != "" && f.Alarm(node.RoomsDocument) == "" })
	if got := f.Ring(); got.Version != ring.Version || got.Keys[0] != ring.Keys[0] {
		t.Errorf("the keys in use are of version %d", got.Version)
	}

	// The operator copies a node's keys into global's folder.
	second.stop()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keys.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	stand(t, s, "three", roomsFile(t, 99, "", "a"), func(c *global.Config) { c.DataDir = dir })
	eventually(t, "the store holds the keys in use", func() bool { return len(f.Alarms()) == 0 })
	if got := f.Ring(); got.Version != ring.Version {
		t.Errorf("keys of version %d, want %d", got.Version, ring.Version)
	}
}

// Keys that were begun anew and rotated until their version is higher are not
// believed either: the leading global, who has the others, replaces them.
func TestKeysThatWereBegunAnewAreReplaced(t *testing.T) {
	t.Parallel()
	s := serve(t)
	stand(t, s, "one", roomsFile(t, 5, "", "a"), nil)
	f := reader(t, s)
	eventually(t, "the keys are known", func() bool { return len(f.Ring().Keys) == 2 && f.Set() != nil })
	ours := f.Ring()
	other := ticket.Keyring{}
	for i := range 3 {
		var err error
		if other, err = other.Rotate(fleet.TimeOf(time.Now().Add(time.Duration(i-5)*time.Hour)), time.Hour, zeros{}); err != nil {
			t.Fatal(err)
		}
	}
	data, err := ticket.EncodeKeyring(other)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := operator(t, s).KeyValue(within(t), bucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(within(t), node.KeysDocument, data); err != nil {
		t.Fatal(err)
	}
	eventually(t, "they are refused", func() bool { return f.Alarm(node.KeysDocument) != "" })
	eventually(t, "they are replaced", func() bool { return f.Ring().Version > other.Version && len(f.Alarms()) == 0 })
	if got := f.Ring(); got.Keys[0] != ours.Keys[0] || len(got.Keys) != 2 {
		t.Errorf("%d keys, not those of before", len(got.Keys))
	}
}

// zeros is a source of keys that are not ours.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'z'
	}
	return len(p), nil
}
