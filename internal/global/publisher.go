package global

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/node"
)

// publisher keeps the rooms in the store equal to the rooms file, if there is one, and makes the first keys. Only a
// leader runs one.
type publisher struct {
	refill
	lender room.Lender // the term

	census   func() census // of the data centres
	status   []byte        // last published state of them
	statusAt time.Time

	recalled      bool                                  // the state that a predecessor published was read
	recallSilence func(dc string, silent time.Duration) // tells the allocator

	churn   *churnKeeper
	churnAt time.Time // when it was last stored

	begun func() // tells the allocator that nobody was ever admitted

	letIn func(room.ID) (release uint64, people int) // by the ledger
	said  map[string]uint64                          // the releases whose end the audit log has, by room

	draws   *drawer
	drawsAt time.Time // when to check them again

	joined uint64 // version of the newest ring logged as merged

	file      roomsFile
	own       ownSites
	again     bool   // the file as read may be unpublished
	rejected  bool   // it cannot be stored, or the store is the authority and differs
	published uint64 // version of the rooms last published, or found in the store
}

// drawAgain is the retry delay of a failed draw. drawsDue is the name that its errors are reported under.
const (
	drawAgain = time.Second
	drawsDue  = node.DrawsDocument + " (what is due)"
)

// storeEvery is how often the contents of the store are checked.
const storeEvery = 10 * time.Second

// recordResult records whether a document is published, and logs each new failure once.
func (p *publisher) recordResult(doc string, err error) {
	if errors.Is(err, context.Canceled) { // the term ends
		return
	}
	if text, news := p.s.metrics.trouble.note(doc, err); news {
		p.s.log.Warn("not published yet", slog.String("document", doc), slog.String("error", text))
	}
}
