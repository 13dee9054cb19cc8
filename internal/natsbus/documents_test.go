package natsbus_test

import (
	"context"
	"errors"
	"testing"

	"vestibule/internal/natsbus"
	"vestibule/internal/wire"
)

func put(t *testing.T, d *natsbus.Documents, key, value string, revision uint64) uint64 {
	t.Helper()
	next, err := d.Put(within(t), key, []byte(value), revision)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// watch follows documents until the test ends.
func watch(t *testing.T, d *natsbus.Documents) <-chan [2]string {
	t.Helper()
	ch := make(chan [2]string, 64)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- d.Watch(ctx, func(key string, data []byte) { ch <- [2]string{key, string(data)} })
	}()
	t.Cleanup(func() {
		cancel()
		if err := receive(t, "Watch ends with its context", done); !errors.Is(err, context.Canceled) {
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

func TestAWatchTellsWhatIsThereAndEveryChange(t *testing.T) {
	s := newSite(t)
	reader := natsbus.NewDocuments(connect(t, s.URL(), "reader"), 0, "rooms", "keys")
	early := watch(t, reader) // there is no bucket yet, and a reader does not make one
	d := natsbus.NewDocuments(connect(t, s.URL(), "writer"), 1)
	rev := put(t, d, "rooms", "one", 0)
	put(t, d, "other", "nobody asked", 0)
	if got := receive(t, "the document", early); got != [2]string{"rooms", "one"} {
		t.Errorf("told %v", got)
	}
	late := watch(t, reader)
	if got := receive(t, "the document", late); got != [2]string{"rooms", "one"} {
		t.Errorf("told %v", got)
	}
	put(t, d, "rooms", "two", rev)
	put(t, d, "keys", "k", 0)
	for _, ch := range []<-chan [2]string{early, late} {
		for _, want := range [][2]string{{"rooms", "two"}, {"keys", "k"}} {
			if got := receive(t, "the change", ch); got != want {
				t.Errorf("told %v, want %v", got, want)
			}
		}
	}
}

// A change while the connection was down must not be missed.
func TestAWatchTellsEverythingAgainAfterTheServerWasAway(t *testing.T) {
	s := newSite(t)
	path := newLink(t, s.URL())
	ch := watch(t, natsbus.NewDocuments(connect(t, path.url(), "reader"), 0, "rooms", "keys"))
	writer := connect(t, s.URL(), "writer")
	d := natsbus.NewDocuments(writer, 1)
	rev := put(t, d, "rooms", "one", 0)
	receive(t, "the document", ch)

	path.up.hold() // connections that come now get nowhere
	path.cut()
	rev = put(t, d, "rooms", "two", rev)
	path.up.free()
	if got := receive(t, "what was missed", ch); got[1] != "two" {
		t.Errorf("told %v, want two", got)
	}

	s.Stop()
	eventually(t, "the writer sees it", func() bool { return !writer.Connected() })
	s.start()
	if got := receive(t, "all again", ch); got[1] != "two" {
		t.Errorf("told %v, want two", got)
	}
	eventually(t, "the writer is back", func() bool { return writer.Connected() })
	put(t, d, "rooms", "three", rev)
	if got := receive(t, "the change", ch); got[1] != "three" {
		t.Errorf("told %v, want three", got)
	}
}

func TestAWatchSurvivesAServerThatForgotEverything(t *testing.T) {
	s := newSite(t)
	ch := watch(t, natsbus.NewDocuments(connect(t, s.URL(), "reader"), 0, "rooms"))
	writer := connect(t, s.URL(), "writer")
	d := natsbus.NewDocuments(writer, 1)
	put(t, d, "rooms", "one", 0)
	receive(t, "the document", ch)
	s.Stop()
	eventually(t, "the writer sees it", func() bool { return !writer.Connected() })
	s.forget()
	s.start()
	eventually(t, "the writer is back", func() bool { return writer.Connected() })
	eventually(t, "the document is written again", func() bool {
		_, err := d.Put(within(t), "rooms", []byte("reborn"), 0)
		return err == nil
	})
	if got := receive(t, "the new document", ch); got[1] != "reborn" {
		t.Errorf("told %v", got)
	}
}
