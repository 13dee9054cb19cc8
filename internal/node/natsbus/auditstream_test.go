package natsbus_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node/natsbus"
)

// The stream accepts an entry only after the newest, is read in order, and does not allow deletions.
func TestTheAuditStream(t *testing.T) {
	server := newSite(t)
	stream := natsbus.NewAudit(connect(t, server.URL(), "global"), 1)
	ctx := within(t)
	if first, last, err := stream.Bounds(ctx); err != nil || first != 1 || last != 0 {
		t.Fatalf("an empty one: %d to %d, %v", first, last, err)
	}
	if got, err := stream.Read(ctx, 1, 10, ""); err != nil || len(got) != 0 {
		t.Errorf("an empty one: %v, %v", got, err)
	}
	subject := func(i uint64) string { return audit.RoomSubject(fmt.Sprint("room-", i%2)) }
	for i := range uint64(30) {
		testkit.Must(stream.Append(ctx, subject(i), []byte(fmt.Sprint("entry ", i+1)), i))(t)
	}
	for _, last := range []uint64{0, 29, 31} {
		if _, err := stream.Append(ctx, subject(0), []byte("late"), last); !errors.Is(err, wire.ErrChanged) {
			t.Errorf("after %d: %v", last, err)
		}
	}
	if first, last, err := stream.Bounds(ctx); err != nil || first != 1 || last != 30 {
		t.Errorf("%d to %d, %v", first, last, err)
	}
	got, err := stream.Read(ctx, 5, 10, "")
	if err != nil || len(got) != 10 || got[0].Sequence != 5 || string(got[9].Data) != "entry 14" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err = stream.Read(ctx, 5, 100, subject(1)); err != nil || len(got) != 13 || got[0].Sequence != 6 ||
		got[12].Sequence != 30 {
		t.Errorf("of one subject: %d, %v", len(got), err)
	}
	if got, err = stream.Read(ctx, 31, 100, ""); err != nil || len(got) != 0 {
		t.Errorf("past the newest: %v, %v", got, err)
	}

	js := testkit.JetStream(t, server.URL())
	raw := testkit.Must(js.Stream(ctx, "VESTIBULE_AUDIT"))(t)
	if err := raw.DeleteMsg(ctx, 3); err == nil {
		t.Error("an entry was deleted")
	}
	if err := raw.SecureDeleteMsg(ctx, 3); err == nil {
		t.Error("an entry was deleted and written over")
	}
	if err := raw.Purge(ctx); err == nil {
		t.Error("all entries were deleted")
	}
	config := raw.CachedInfo().Config
	config.DenyDelete, config.DenyPurge = false, false
	if _, err := js.UpdateStream(ctx, config); err == nil {
		t.Error("the stream was made to allow it")
	}
	if got, err = stream.Read(ctx, 1, 100, ""); err != nil || len(got) != 30 ||
		!bytes.Equal(got[2].Data, []byte("entry 3")) {
		t.Errorf("%d entries, %v", len(got), err)
	}
	if config.MaxAge == 0 || config.MaxBytes <= 0 || config.Storage != jetstream.FileStorage {
		t.Errorf("not bounded, or not on disk: %+v", config)
	}
}
