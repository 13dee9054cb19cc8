package global

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// publisher keeps the rooms in the store equal to the rooms file, if there is one, and makes the first keys. Only a
// leader runs one.
type publisher struct {
	refill // with the rooms and documents that this node has

	name    string      // of this candidate
	lender  room.Lender // its term
	docs    wire.Documents
	metrics *metrics

	census   func() census // of the data centres
	founders []string      // the first list of them
	status   []byte        // last published state of them
	statusAt time.Time

	recalled      bool                                  // the state that a predecessor published was read
	recallSilence func(dc string, silent time.Duration) // tells the allocator

	churn   *churnKeeper
	churnAt time.Time // when it was last stored

	begin func(ctx context.Context, dc string) error // orders a data centre to begin
	begun func()                                     // tells the allocator

	draws   *drawer
	drawsAt time.Time // when to check them again

	joined uint64 // version of the newest ring logged as merged

	ensurePushes func(ctx context.Context) error // makes the streams of notifications; nil for none

	rotate time.Duration // age of the newest key at which the next is made, 0 for never

	file      roomsFile
	again     bool   // the file as read may be unpublished
	rejected  bool   // it cannot be stored, or the store is the authority and differs
	published uint64 // version of the rooms last published, or found in the store
}

// fileEvery is how often the rooms file is checked.
const fileEvery = 250 * time.Millisecond

// run follows the file until ctx ends.
func (p *publisher) run(ctx context.Context, now func() fleettime.Time) {
	tick := time.NewTicker(fileEvery)
	defer tick.Stop()
	defer p.metrics.trouble.end()
	repaired := time.Time{}
	for keysAt, roomsAt, membersAt, controlsAt, initAt := (time.Time{}), (time.Time{}), (time.Time{}), (time.Time{}), (time.Time{}); ; {
		wall := time.Now()
		p.takeCopy(ctx)
		if p.copies.takeNews() {
			keysAt, roomsAt, membersAt, controlsAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		}
		if wall.Sub(repaired) > repairEvery && len(p.fleet.Alarms()) > 0 {
			keysAt, roomsAt, membersAt, controlsAt, repaired = time.Time{}, time.Time{}, time.Time{}, time.Time{}, wall
		}
		c := p.census()
		p.requestCopies(wall, &c)
		if wall.After(membersAt) || c.changes() {
			err := p.tendMembers(ctx, wall, &c)
			if err == nil && !c.Unfounded {
				membersAt = wall.Add(storeEvery)
			}
			p.recordResult(node.MembersDocument, err)
		}
		if wall.After(initAt) && p.new(&c) {
			initAt = wall.Add(initEvery)
			p.recordResult(node.InitDocument, p.initialize(ctx, wall, &c))
		}
		if wall.Sub(p.statusAt) >= statusEvery {
			p.statusAt = wall
			p.recordResult(node.MembersStatusDocument, p.publishStatus(ctx, wall))
		}
		if wall.Sub(p.churnAt) >= storeEvery {
			p.churnAt = wall
			p.recordResult(churnDocument, p.churn.keep(ctx))
		}
		if wall.After(keysAt) {
			err := p.ensureKeys(ctx, now(), &c)
			if err == nil {
				keysAt = wall.Add(storeEvery)
			}
			p.recordResult(node.KeysDocument, err)
		}
		if wall.After(controlsAt) {
			err := p.ensureControls(ctx)
			if err == nil {
				controlsAt = wall.Add(storeEvery)
			}
			p.recordResult(node.ControlsDocument, err)
			p.recordResult(node.DrawsDocument, p.draws.ensure(ctx))
		}
		if wall.After(p.drawsAt) {
			err := p.draws.runDue(ctx)
			if err != nil {
				p.drawsAt = wall.Add(drawAgain)
			}
			p.recordResult(drawsDue, err)
		}
		p.recordResult(node.ControlsDocument+" (releases)", p.takeReleases(ctx, now()))
		if wall.After(roomsAt) {
			p.again = true // the store may have lost a published document
			roomsAt = wall.Add(storeEvery)
		}
		if p.searched(ctx, wall) {
			p.checkFile(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// drawAgain is the retry delay of a failed draw. drawsDue is the name that its errors are reported under.
const (
	drawAgain = time.Second
	drawsDue  = node.DrawsDocument + " (what is due)"
)

// storeEvery is how often the contents of the store are checked.
const storeEvery = 10 * time.Second

// repairEvery is the minimum interval between repairs while this node refuses the contents of the store: the node must
// see the result of one attempt before the next.
const repairEvery = 2 * time.Second

// recordResult records whether a document is published, and logs each new failure once.
func (p *publisher) recordResult(doc string, err error) {
	if errors.Is(err, context.Canceled) { // the term ends
		return
	}
	if text, news := p.metrics.trouble.note(doc, err); news {
		p.log.Warn("not published yet", slog.String("document", doc), slog.String("error", text))
	}
}
