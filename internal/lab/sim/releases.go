package sim

import (
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/room"
)

// releasing is a release as seen by the oracle.
type releasing struct {
	n, in int
	at    int64
	last  int64 // time of the last admission
}

// releases are all of them, by ID.
type releases map[uint64]*releasing

// releaseSome pauses the room and releases a few visitors, often while earlier ones are on their way. Sometimes the
// coordinator ends between claiming the release and allocating its passes.
func (o *operator) releaseSome(f *fault) {
	c := &o.control
	if p := c.Pause; p == nil || c.At(int64(o.fleetTime())) == nil {
		o.pauseRoom(f)
	}
	o.releaseNext(1 + int(f.x*f.x*float64(o.oracle.first.total)))
	if f.y < 0.3 && o.cfg.Faults.CrashGlobal {
		o.crashAt = o.oracle.releases.newest()
	}
}

// releaseNext stores a release of n visitors, and makes the coordinators read it. The room is paused.
func (o *operator) releaseNext(n int) {
	id := o.oracle.releases.newest() + 1
	o.tracef("release %d: the next %d", id, n)
	o.oracle.releases[id] = &releasing{n: n, at: o.now}
	pause := *o.control.Pause
	pause.Release = &room.Release{ID: id, N: n, At: int64(o.fleetTime())}
	o.control.Pause = &pause
	o.edition++
	for _, n := range o.globals.all {
		delay := time.Duration(o.chaos.Int64N(int64(500 * time.Millisecond))) // documents are read twice a second
		if o.cfg.Faults.any() && o.chaos.IntN(4) == 0 {
			delay *= 10
		}
		o.in(delay, func() { n.read(false) })
	}
}

// tendRelease does the work of a coordinator's shell: it claims a release in the store before the core may use it. The
// first writer wins.
func (o *operator) tendRelease(n *globalProc) {
	control := &o.control
	r := control.Untaken(int64(o.fleetTime()))
	if r == nil || n.edition != o.edition || n.writing == r.ID {
		return
	}
	n.writing = r.ID
	o.in(time.Duration(o.rng.Int64N(int64(20*time.Millisecond))+o.slowDisk()), func() {
		now := control.Untaken(int64(o.fleetTime()))
		if o.removed || now == nil || now.ID != r.ID || n.gone && o.chaos.IntN(2) == 0 {
			return // claimed by another, over, or the writer died before
		}
		all := &room.Controls{Version: 1, Rooms: map[string]*room.Control{"": control}}
		taken, _ := all.Take(room.Lender{Term: n.term, Nonce: n.nonce}, int64(o.fleetTime()))
		o.control = *taken.Rooms[""]
		o.tracef("release %d is taken by coordinator %d", r.ID, n.id+1)
		o.edition++
		if o.crashAt == r.ID && !o.calm {
			o.crashAt = 0
			o.globals.crashLeader(&fault{
				number: o.telling, who: int(n.id), after: time.Second, zombie: r.ID%2 == 0,
				last: time.Second,
			})
		}
		for _, g := range o.globals.all { // the writer knows it at once
			if g == n {
				g.read(false)
			} else {
				o.in(time.Duration(o.chaos.Int64N(int64(500*time.Millisecond))), func() { g.read(false) })
			}
		}
	})
}

func (rs releases) newest() (id uint64) {
	for k := range rs {
		id = max(id, k)
	}
	return id
}

// checkPause records an admission in a paused room.
func (j *oracle) checkPause(e *edgeNode) {
	if e.told.Shut == admission.QueuedAll {
		if r := j.releases[e.core.Ledger(e.clock.read(j.now), j.room).Passes.Release]; r != nil {
			r.in, r.last = r.in+1, j.now
			j.checkPasses()
			return
		}
	}
	j.fail("%s admits a visitor although it knows that the room is closed", e)
}

// checkPasses checks that the admissions of a release, the passes at edges and the coordinator's rest do not exceed its
// number.
func (j *oracle) checkPasses() {
	if len(j.releases) == 0 {
		return
	}
	may := map[uint64]uint64{}
	for _, e := range j.edges.all {
		if p := e.core.Ledger(e.clock.read(j.now), j.room).Passes; p.Release != 0 && !e.down {
			may[p.Release] += p.Granted - p.Returned - p.Spent
		}
	}
	if g := j.globals.newest(); !g.gone {
		p := g.core.Totals(j.room).Passes
		may[p.Release] += p.Free
	}
	for id, r := range j.releases {
		if r.in+int(may[id]) > r.n {
			j.fail("release %d is for %d visitors: %d were admitted and %d more may be", id, r.n, r.in, may[id])
		}
	}
}
