package control

import (
	"testing"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/testkit"
)

// The audit log says that the visitors of a release are in, and for which reason somebody let them in.
func TestTheAuditLogSaysThatVisitorsAreIn(t *testing.T) {
	f := start(t)
	id := f.made()
	for n, want := range map[int]string{
		7: "let in the next 7 visitors of paused room shop: row one", 1: "let in the next visitor of paused room shop: row one",
	} {
		e := testkit.Must(LetIn(f.parts.controls.now(), id, "shop", "global-1", &room.Release{N: n, By: "Ben", Reason: "row one"}))(t)
		testkit.NoError(t, f.parts.members.journal.Add(t.Context(), e))
		if got := f.newestSentence(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
