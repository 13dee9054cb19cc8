package natsbus_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node/natsbus"
)

func put(t *testing.T, d *natsbus.Documents, key, value string, revision uint64) (next uint64) {
	t.Helper()
	unsure := false // a server that starts may drop a request without an answer
	eventually(t, "the document is written", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var err error
		if next, err = d.Put(ctx, key, []byte(value), revision); unsure && errors.Is(err, wire.ErrChanged) {
			var is []byte
			if is, next, err = d.Get(ctx, key); err == nil && string(is) != value {
				err = wire.ErrChanged
			}
		}
		unsure = unsure || errors.Is(err, context.DeadlineExceeded)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		return err == nil
	})
	return next
}

// gone stands for a missing document.
const gone = "(gone)"

// watch follows documents until the test ends, except for missing ones.
func watch(t *testing.T, d *natsbus.Documents) <-chan [2]string { return follow(t, d, false) }

// watchAll also reports missing ones.
func watchAll(t *testing.T, d *natsbus.Documents) <-chan [2]string { return follow(t, d, true) }

func follow(t *testing.T, d *natsbus.Documents, all bool) <-chan [2]string {
	t.Helper()
	ch := make(chan [2]string, 64)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- d.Watch(ctx, func(key string, data []byte) {
			if data == nil {
				data = []byte(gone)
				if !all {
					return
				}
			}
			ch <- [2]string{key, string(data)}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := testkit.Receive(t, "Watch ends with its context", done); !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
	})
	return ch
}

func TestADocumentIsWrittenOnlyAsItWasRead(t *testing.T) {
	s := newSite(t)
	d := natsbus.NewDocuments(connect(t, s.URL(), "a"), 1)
	if data, rev, err := d.Get(within(t), "rooms"); err != nil || data != nil || rev != 0 {
		t.Fatalf("a document that is not there: %q, %d, %v", data, rev, err)
	}
	first := put(t, d, "rooms", "one", 0)
	if _, err := d.Put(within(t), "rooms", []byte("mine"), 0); !errors.Is(err, wire.ErrChanged) {
		t.Errorf("created twice: %v", err)
	}
	second := put(t, d, "rooms", "two", first)
	if _, err := d.Put(within(t), "rooms", []byte("mine"), first); !errors.Is(err, wire.ErrChanged) {
		t.Errorf("overwritten: %v", err)
	}
	data, rev, err := d.Get(within(t), "rooms")
	if err != nil || string(data) != "two" || rev != second {
		t.Errorf("read %q at %d, %v; want two at %d", data, rev, err, second)
	}
}

// Writers do not check on every write that the bucket exists, and recreate a missing one.
func TestABucketThatIsGoneIsMadeByWhoWrites(t *testing.T) {
	s := newSite(t)
	d := natsbus.NewDocuments(connect(t, s.URL(), "a"), 1)
	first := put(t, d, "rooms", "one", 0)
	js, _ := s.bucket("vestibule_documents")
	testkit.NoError(t, js.DeleteKeyValue(within(t), "vestibule_documents"))
	eventually(t, "a write over a deleted document is refused", func() bool {
		_, err := d.Put(within(t), "rooms", []byte("two"), first)
		return errors.Is(err, wire.ErrChanged)
	})
	put(t, d, "rooms", "two", 0)
}

func TestAWatchTellsWhatIsThereAndEveryChange(t *testing.T) {
	s := newSite(t)
	reader := natsbus.NewDocuments(connect(t, s.URL(), "reader"), 0, "rooms", "keys")
	early := watch(t, reader) // there is no bucket yet, and readers do not create one
	d := natsbus.NewDocuments(connect(t, s.URL(), "writer"), 1)
	rev := put(t, d, "rooms", "one", 0)
	put(t, d, "other", "nobody asked", 0)
	if got := testkit.Receive(t, "the document", early); got != [2]string{"rooms", "one"} {
		t.Errorf("got %v", got)
	}
	late := watch(t, reader)
	if got := testkit.Receive(t, "the document", late); got != [2]string{"rooms", "one"} {
		t.Errorf("got %v", got)
	}
	put(t, d, "rooms", "two", rev)
	put(t, d, "keys", "k", 0)
	for _, ch := range []<-chan [2]string{early, late} {
		changed := map[[2]string]bool{} // either of two documents may come first
		for range 2 {
			changed[testkit.Receive(t, "the change", ch)] = true
		}
		if !changed[[2]string{"rooms", "two"}] || !changed[[2]string{"keys", "k"}] {
			t.Errorf("got %v", changed)
		}
	}
}

// A change while disconnected must not be missed.
func TestAWatchTellsEverythingAgainAfterTheServerWasAway(t *testing.T) {
	s := newSite(t)
	path := newLink(t, s.URL())
	ch := watch(t, natsbus.NewDocuments(connect(t, path.url(), "reader"), 0, "rooms", "keys"))
	writer := connect(t, s.URL(), "writer")
	d := natsbus.NewDocuments(writer, 1)
	rev := put(t, d, "rooms", "one", 0)
	testkit.Receive(t, "the document", ch)

	path.up.hold() // new connections hang
	path.cut()
	rev = put(t, d, "rooms", "two", rev)
	path.up.free()
	if got := testkit.Receive(t, "what was missed", ch); got[1] != "two" {
		t.Errorf("got %v, want two", got)
	}

	s.Stop()
	eventually(t, "the writer sees it", func() bool { return !writer.Connected() })
	s.start()
	if got := testkit.Receive(t, "all again", ch); got[1] != "two" {
		t.Errorf("got %v, want two", got)
	}
	eventually(t, "the writer is back", func() bool { return writer.Connected() })
	put(t, d, "rooms", "three", rev)
	if got := testkit.Receive(t, "the change", ch); got[1] != "three" {
		t.Errorf("got %v, want three", got)
	}
}

func TestAWatchSurvivesAServerThatForgotEverything(t *testing.T) {
	s := newSite(t)
	ch := watch(t, natsbus.NewDocuments(connect(t, s.URL(), "reader"), 0, "rooms"))
	writer := connect(t, s.URL(), "writer")
	d := natsbus.NewDocuments(writer, 1)
	put(t, d, "rooms", "one", 0)
	testkit.Receive(t, "the document", ch)
	s.Stop()
	eventually(t, "the writer sees it", func() bool { return !writer.Connected() })
	s.forget()
	s.start()
	eventually(t, "the writer is back", func() bool { return writer.Connected() })
	eventually(t, "the document is written again", func() bool {
		_, err := d.Put(within(t), "rooms", []byte("reborn"), 0)
		return err == nil
	})
	if got := testkit.Receive(t, "the new document", ch); got[1] != "reborn" {
		t.Errorf("got %v", got)
	}
}

// Whatever happens to the store during a watch: missing documents are reported as missing, restored older ones as
// they are, and the caller decides.
func TestAWatchTellsThatTheStoreCameBackOlderOrEmptier(t *testing.T) {
	t.Parallel()
	const bucket = "vestibule_documents"
	for name, c := range map[string]struct {
		spoil func(t *testing.T, js jetstream.JetStream, kv jetstream.KeyValue)
		want  [2]string
	}{
		"the key is deleted": {func(t *testing.T, _ jetstream.JetStream, kv jetstream.KeyValue) {
			testkit.NoError(t, kv.Delete(within(t), "rooms"))
		}, [2]string{"rooms", gone}},
		"the key is purged": {func(t *testing.T, _ jetstream.JetStream, kv jetstream.KeyValue) {
			testkit.NoError(t, kv.Purge(within(t), "rooms"))
		}, [2]string{"rooms", gone}},
		"the stream is purged": {func(t *testing.T, js jetstream.JetStream, _ jetstream.KeyValue) {
			stream := testkit.Must(js.Stream(within(t), "KV_"+bucket))(t)
			testkit.NoError(t, stream.Purge(within(t)))
		}, [2]string{"rooms", gone}},
		"the bucket is deleted": {func(t *testing.T, js jetstream.JetStream, _ jetstream.KeyValue) {
			testkit.NoError(t, js.DeleteKeyValue(within(t), bucket))
		}, [2]string{"rooms", gone}},
		"a backup is put in its place": {func(t *testing.T, js jetstream.JetStream, _ jetstream.KeyValue) {
			testkit.NoError(t, js.DeleteKeyValue(within(t), bucket))
			kv := testkit.Must(js.CreateKeyValue(within(t), jetstream.KeyValueConfig{
				Bucket: bucket, History: 1,
				Storage: jetstream.FileStorage,
			}))(t)
			for key, value := range map[string]string{"rooms": "one", "keys": "k"} {
				testkit.Must(kv.PutString(within(t), key, value))(t)
			}
		}, [2]string{"rooms", "one"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			d := natsbus.NewDocuments(connect(t, s.URL(), "writer"), 1)
			put(t, d, "keys", "k", 0)
			put(t, d, "rooms", "two", put(t, d, "rooms", "one", 0))
			ch := watchAll(t, natsbus.NewDocuments(connect(t, s.URL(), "reader"), 0, "rooms", "keys"))
			for range 2 {
				testkit.Receive(t, "what is there", ch)
			}
			js, kv := s.bucket(bucket)
			c.spoil(t, js, kv)
			for {
				if got := testkit.Receive(t, "what became of the rooms", ch); got[0] == "rooms" {
					if got != c.want {
						t.Errorf("got %q, want %q", got, c.want)
					}
					return
				}
			}
		})
	}
}

// A reader with its own copies learns at once that the store is empty.
func TestAWatchTellsWhatIsMissingFromTheStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	early := watchAll(t, natsbus.NewDocuments(connect(t, s.URL(), "reader"), 0, "rooms", "keys")) // no bucket
	want := map[[2]string]bool{{"rooms", gone}: true, {"keys", gone}: true}
	for range 2 {
		if got := testkit.Receive(t, "what is missing", early); !want[got] {
			t.Errorf("got %q", got)
		}
	}
	put(t, natsbus.NewDocuments(connect(t, s.URL(), "writer"), 1), "rooms", "one", 0)
	late := watchAll(t, natsbus.NewDocuments(connect(t, s.URL(), "reader"), 0, "rooms", "keys"))
	for _, want := range [][2]string{{"rooms", "one"}, {"keys", gone}} {
		if got := testkit.Receive(t, "the document", late); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
