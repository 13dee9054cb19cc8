package region_test

import (
	"errors"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/wire"
)

// leadLima returns the aggregator of a new data centre with cluster ID 5, in term 1.
func leadLima(now fleettime.Mono) *region.Aggregator {
	cfg := region.Config{DC: "lima", Term: wire.Term{N: 1, Nonce: 1}, Bootstrap: true, ClusterID: 5}
	return lead(now, cfg, wire.Durable{})
}

// A cluster ID that is reported before it is stored would be another one after a restart. With an empty store the edges
// are asked first.
func TestRule9TheClusterIDIsStoredBeforeItIsReported(t *testing.T) {
	begin := func(bootstrap bool, stored wire.Durable) (*region.Aggregator, fleettime.Mono) {
		now := fleettime.Mono(time.Hour)
		return lead(now, region.Config{
			DC: "lima", Term: wire.Term{N: 1, Nonce: 1}, Bootstrap: bootstrap, ClusterID: 5,
		}, stored), now
	}
	tells := func(a *region.Aggregator, now fleettime.Mono) (clusterID uint64, any bool) {
		out := a.Report(now)
		if len(out) == 0 {
			return 0, false
		}
		return out[0].ClusterID, true
	}
	for what, c := range map[string]struct {
		bootstrap bool
		stored    wire.Durable
		edge      uint64 // reports this cluster ID
		want      uint64
		after     time.Duration
	}{
		"a new data centre":                            {bootstrap: true, want: 5},
		"one whose predecessor waited for its edges":   {stored: wire.Durable{Version: 9}, want: 5, after: 10 * time.Second},
		"one that has a cluster ID":                    {stored: wire.Durable{Version: 9, ClusterID: 7}, want: 7},
		"a store that lost all but the cluster ID":     {stored: wire.Durable{ClusterID: 7}, want: 7},
		"a store that was lost, with an edge":          {edge: 7, want: 7},
		"a store that was lost, without edges":         {want: 5, after: 10 * time.Second},
		"an edge of another cluster ID changes none":   {stored: wire.Durable{Version: 9, ClusterID: 5}, edge: 7, want: 5},
		"an edge that never heard a cluster ID is one": {edge: 0, want: 5, after: 10 * time.Second},
	} {
		a, now := begin(c.bootstrap, c.stored)
		if _, any := tells(a, now); any != (c.stored.ClusterID != 0) {
			t.Errorf("%s: says something: %v", what, any)
		}
		m := joining("edge1", 1, 1, wire.Term{})
		m.Sent, m.ClusterID = 1, c.edge
		a.Observe(now, m)
		save(a, now)
		if c.after > 0 {
			if _, any := tells(a, now); any {
				t.Errorf("%s: says something before it waited for its edges", what)
			}
			now = now.Add(c.after)
			if _, any := tells(a, now); any {
				t.Errorf("%s: tells a cluster ID that is not stored", what)
			}
		}
		d := save(a, now)
		if clusterID, _ := tells(a, now); clusterID != c.want || (d.ClusterID != 0 && d.ClusterID != c.want) ||
			a.Status(now).ClusterID != c.want {
			t.Errorf("%s: tells cluster ID %d, stores %d, want %d", what, clusterID, d.ClusterID, c.want)
		}
	}
}

// A start script may declare a data centre new although only its store was lost: an edge that knows its cluster ID is
// believed, and the data centre leads anew with that cluster ID, unless the list holds the new one.
func TestRule9AnEdgeKnowsBetterThanBootstrap(t *testing.T) {
	for _, listed := range []uint64{0, 5, 7} {
		now := fleettime.Mono(time.Hour)
		a := leadLima(now)
		if listed != 0 {
			a.SetMembers(now, ledger.Members{Version: 2, List: []ledger.Member{{Name: "lima", ClusterID: listed}}})
		}
		save(a, now)
		m := joining("edge1", 1, 1, wire.Term{})
		m.Sent, m.ClusterID = 1, 7
		a.Observe(now, m)
		d := a.Durable()
		if changes := listed != 5; a.Rejoins() != changes || (d.ClusterID == 7) != changes || (d.ClusterID == 5) == changes {
			t.Errorf("the list holds %d: leads anew %v, with cluster ID %d", listed, a.Rejoins(), d.ClusterID)
		}
	}
}

// A copy learns from the list that it is one: it admits nobody, and counts no session of its home as its own. An
// operator's command makes it the listed one.
func TestRule9ACopyRejoinsByWord(t *testing.T) {
	now := fleettime.Mono(time.Hour)
	a := leadLima(now)
	save(a, now)
	edge := func() wire.Grant {
		m := joining("edge1", 1, uint64(now), wire.Term{N: 1, Nonce: 1})
		m.Sent = now
		a.Observe(now, m)
		save(a, now)
		now = now.Add(time.Second)
		for _, g := range a.Grants(now) {
			return g
		}
		t.Fatal("no answer to the edge")
		return wire.Grant{}
	}
	if g := edge(); g.Standing != wire.Unlisted || g.ClusterID != 5 {
		t.Errorf("before anybody said who it is: %+v", g)
	}
	if err := a.Rejoin(); !errors.Is(err, region.ErrNoCopy) {
		t.Errorf("rejoins without another: %v", err)
	}
	list := ledger.Members{Version: 2, List: []ledger.Member{{Name: "lima", ClusterID: 5}}}
	a.SetMembers(now, list)
	if g := edge(); g.Standing != wire.Listed {
		t.Errorf("as the one of the list: %+v", g)
	}
	list = ledger.Members{Version: 3, List: []ledger.Member{{Name: "lima", ClusterID: 7}}}
	a.SetMembers(now, list)
	if g := edge(); g.Standing != wire.Unlisted || a.Status(now).Copy != 7 {
		t.Errorf("as a copy: %+v, %+v", g, a.Status(now))
	}
	for clusterID, heard := range map[uint64]bool{0: false, 7: false, 5: true} {
		term := wire.Term{N: 3 + clusterID, Nonce: 1}
		a.Apply(now, wire.Grant{
			To: "lima", Instance: 1, From: term, Seq: 1, Parts: 1, Handshake: wire.Promise, Members: 3, ClusterID: clusterID,
		})
		if got := a.Status(now).Follows == term; got != heard {
			t.Errorf("a copy follows who means cluster ID %d: %v", clusterID, got)
		}
	}
	if err := a.Rejoin(); err != nil || !a.Rejoins() {
		t.Fatalf("%v, rejoins %v", err, a.Rejoins())
	}
	if out := a.Report(now); len(out) != 0 {
		t.Errorf("it goes on: %+v", out)
	}
	if d := save(a, now); d.ClusterID != 7 {
		t.Errorf("stores cluster ID %d", d.ClusterID)
	}
}

// The known version of the list is reported once it is stored, and outlives its aggregator.
func TestTheVersionOfTheListOutlivesTheAggregator(t *testing.T) {
	now := fleettime.Mono(time.Hour)
	a := leadLima(now)
	a.SetMembers(now, ledger.Members{Version: 5, List: []ledger.Member{{Name: "lima"}}})
	d, _ := a.Unsaved()
	if a.Status(now).Members != 0 {
		t.Error("it tells what is not stored")
	}
	a.Saved(now, d.Version)
	if a.Status(now).Members != 5 {
		t.Error("it does not tell what is stored")
	}
	a = lead(now, region.Config{DC: "lima", Term: wire.Term{N: 2, Nonce: 2}, ClusterID: 5}, d)
	if a.Status(now).Members != 5 {
		t.Errorf("the successor tells version %d", a.Status(now).Members)
	}
}
