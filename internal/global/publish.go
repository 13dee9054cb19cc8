package global

import (
	"context"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/node"
)

// fileEvery is how often the rooms file is checked.
const fileEvery = 250 * time.Millisecond

// run follows the file until ctx ends.
func (p *publisher) run(ctx context.Context, now func() fleettime.Time) {
	tick := time.NewTicker(fileEvery)
	defer tick.Stop()
	defer p.s.metrics.trouble.end()
	type checks struct{ keys, rooms, members, controls time.Time }
	var next checks
	var initAt, repaired time.Time
	for {
		wall := time.Now()
		p.takeCopy(ctx)
		if p.copies.takeNews() {
			next = checks{}
		}
		if wall.Sub(repaired) > repairEvery && len(p.s.fleet.Alarms()) > 0 {
			next, repaired = checks{}, wall
		}
		c := p.census()
		p.requestCopies(wall, &c)
		if wall.After(next.members) || c.changes() {
			err := p.tendMembers(ctx, wall, &c)
			if err == nil && !c.Unfounded {
				next.members = wall.Add(storeEvery)
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
		if wall.After(next.keys) {
			err := p.ensureKeys(ctx, now(), &c)
			if err == nil {
				next.keys = wall.Add(storeEvery)
			}
			p.recordResult(node.KeysDocument, err)
		}
		if wall.After(next.controls) {
			err := p.ensureControls(ctx)
			if err == nil {
				next.controls = wall.Add(storeEvery)
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
		p.recordResult(node.ControlsDocument+" (audit log)", p.sayLetIn(ctx, now()))
		if wall.After(next.rooms) {
			p.again = true // the store may have lost a published document
			next.rooms = wall.Add(storeEvery)
		}
		p.own.look(ctx, p.s, wall)
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

// repairEvery is the minimum interval between repairs while this node refuses the contents of the store: the node must
// see the result of one attempt before the next.
const repairEvery = 2 * time.Second
