package sim

import (
	"testing"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/ticket"
)

// TestDraws: under faults nobody enters before a draw is settled, or by a place other than the drawn one; and these
// worlds do make draws.
func TestDraws(t *testing.T) {
	t.Parallel()
	made, entered := 0, 0
	for seed := range uint64(12) {
		w := New(Draws(seed))
		w.oracle.seeDrawn = func(*draw.Notice, *ticket.Ticket) { entered++ }
		if r := w.Run(); r.Fault != "" {
			t.Errorf("draws, seed %d: %s", seed, r.Fault)
		}
		for _, n := range drawsOf(w) {
			if n.Drawn() != nil {
				made++
			}
		}
	}
	if made < 6 || entered < 50 {
		t.Errorf("%d draws were made, and %d people entered by them", made, entered)
	}
}

func drawsOf(w *World) []*draw.Notice {
	if b := w.operator.draws.board; b != nil {
		return b.Notices
	}
	return nil
}
