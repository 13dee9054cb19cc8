package region

import (
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// TestAnAggregatorKnowsWhatItsEdgesAndGlobalRead: the newest message of each names it, and every message of the
// aggregator what it reads.
func TestAnAggregatorKnowsWhatItsEdgesAndGlobalRead(t *testing.T) {
	now, term := fleettime.Mono(time.Hour), wire.Term{N: 2, Nonce: 1}
	a := New(now, Config{
		DC: "dublin", Term: term, Bootstrap: true, ClusterID: 1, Strict: true, Params: wire.DefaultParams(),
	}, wire.Durable{})
	a.SetLease(fleettime.Never)
	for name, reads := range map[string]wire.Forms{"new": wire.Extended, "old": 0} {
		a.Observe(now, wire.Report{From: name, Instance: 7, LeaseEpoch: 1, Seq: 1, Parts: 1, Seen: term, Join: true, Reads: reads})
		e := a.roster.find(name, 7)
		if got := e.reads.Reads(now, wire.Extended); got != (reads != 0) {
			t.Errorf("%s reads the form: %v", name, got)
		}
	}
	d, _ := a.Unsaved()
	a.Saved(now, d.Version)
	grants := a.Grants(now)
	if len(grants) != 2 || grants[0].Reads != wire.Read || grants[1].Reads != wire.Read {
		t.Errorf("granted %+v", grants)
	}
	for _, m := range a.Report(now) {
		if m.Reads != wire.Read {
			t.Errorf("global is told %b", m.Reads)
		}
	}
	global := wire.Grant{To: "dublin", Instance: 2, From: wire.Term{N: 9, Nonce: 9}, Seq: 1, Parts: 1, ClusterID: 1}
	for _, reads := range []wire.Forms{wire.Extended, 0} {
		for range 2 { // the first one is promised
			global.Reads, global.Handshake = reads, wire.Promise
			a.Apply(now, global)
			d, _ := a.Unsaved()
			a.Saved(now, d.Version)
			global.Seq++
		}
		if got := a.up.parent.Reads(now, wire.Extended); got != (reads != 0) {
			t.Errorf("global reads the form: %v after it said %b", got, reads)
		}
	}
}
