package regional_test

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/members"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// Only the first leader of a data centre accepts bootstrap. If there was a leader before and nothing is stored, the
// store was lost: the regional waits for possible sessions in spite of bootstrap.
func TestBootstrapIsBelievedOnce(t *testing.T) {
	s := newSite(t)
	waits := func(r *candidate) bool {
		return slices.ContainsFunc(r.Status().Region.Edges,
			func(e region.EdgeStatus) bool { return e.Name == wire.UnknownPast })
	}
	first := s.regional("one")
	eventually(t, "the first leads", first.leads)
	if waits(first) {
		t.Error("a new data centre waits for what there may have been")
	}
	first.stop()
	js := s.operator()
	kv := testkit.Must(js.KeyValue(t.Context(), "vestibule_promises"))(t)
	testkit.NoError(t, kv.Purge(t.Context(), "dublin"))
	second := s.regional("two")
	eventually(t, "the second leads", second.leads)
	if !waits(second) {
		t.Error("the second believes that the data centre is new")
	}
}

// A fleet that never admitted anybody says so at every node, and how it begins: vestibule init. It is not ready, also
// after its regional was replaced. Then it admits visitors, and refuses to be initialized again.
func TestANewFleetIsInitializedOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain = true
	g, _ := s.global()
	first := s.regional("one")
	e := s.edge()
	says := func(r node.Readiness) bool {
		has := func(all []string) bool {
			return slices.ContainsFunc(all, func(text string) bool {
				return strings.Contains(text, "this fleet has never admitted anybody") &&
					strings.HasSuffix(text, ": vestibule init")
			})
		}
		return !r.Ready && has(r.Reasons) && slices.ContainsFunc(r.Stops, func(v stop.View) bool {
			return v.Reason == "uninitialized" && v.Command == "vestibule init"
		}) && !slices.ContainsFunc(append(r.Alarms, r.Reasons...),
			func(text string) bool { return strings.Contains(text, "vestibule fleet") })
	}
	eventually(t, "the regional says so", func() bool { return says(first.Ready()) })
	first.stop()
	r := s.regional("two")
	eventually(t, "its successor says so", func() bool { return says(r.Ready()) })
	eventually(t, "the edge says so", func() bool { return says(e.Ready()) })
	eventually(t, "global says so", func() bool { return says(g.Ready()) && len(g.Ready().Alarms) > 0 })
	list := &members.List{Docs: natsbus.NewDocuments(s.connect("operator"), 0)}
	if done, err := list.Init(t.Context()); err != nil || !strings.Contains(done, "dublin") {
		t.Fatalf("%s, %v", done, err)
	}
	begun := time.Now()
	eventually(t, "all are ready", func() bool { return leased(e)() && r.Ready().Ready && g.Ready().Ready })
	eventually(t, "permits come",
		func() bool { return r.Status().Rooms["a"].Settled && r.Status().Rooms["a"].Granted > 0 })
	t.Logf("ready %v after the command", time.Since(begun).Round(time.Millisecond))
	if w := r.Status().Waits; len(w) > 0 {
		t.Errorf("it waits: %+v", w)
	}
	eventually(t, "the list of data centres is founded", func() bool {
		_, err := list.Init(t.Context())
		return errors.Is(err, members.ErrInitialized)
	})
}

// A fleet is initialized once all of its data centres report, and says which one does not.
func TestAFleetIsInitializedAsAWhole(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain, s.absent = true, []string{"lima"}
	s.global()
	r := s.regional("one")
	list := &members.List{Docs: natsbus.NewDocuments(s.connect("operator"), 1)}
	if done, err := list.Init(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "data centre lima of data_centers has not reported") {
		t.Errorf("done %q, %v", done, err)
	}
	if r.Ready().Ready || r.Status().Rooms["a"].Granted > 0 {
		t.Error("the data centre has begun")
	}
}

// An operator may be wrong: a node that has ticket keys, and a store that has some, stop the initialization.
func TestAFleetWithKeysIsNotInitialized(t *testing.T) {
	t.Parallel()
	ring := testkit.Must(ticket.Keyring{}.Rotate(fleettime.TimeOf(time.Now()), time.Hour, rand.Reader))(t)
	data := testkit.Must(ticket.EncodeKeyring(ring))(t)
	for name, plant := range map[string]func(t *testing.T, s *site){
		"at a node": func(t *testing.T, s *site) {
			dir := t.TempDir()
			testkit.NoError(t, os.WriteFile(filepath.Join(dir, "keys.json"), data, 0o600))
			conn := s.connect("old")
			f, err := node.NewFleet(dir, natsbus.NewDocuments(conn, 0), quiet, prometheus.NewRegistry(), func() {})
			testkit.NoError(t, err)
			unsubscribe, err := f.Hand(conn, node.Holder{DC: "dublin", Name: "old", Edge: true}, node.KeysDocument)
			testkit.NoError(t, err)
			t.Cleanup(unsubscribe)
		},
		"in the store": func(t *testing.T, s *site) {
			eventually(t, "the store is there", func() bool {
				_, err := natsbus.NewDocuments(s.connect("writer"), 1).Put(t.Context(), node.KeysDocument, data, 0)
				return err == nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.plain = true
			r := s.regional("one")
			eventually(t, "the regional leads", r.leads)
			plant(t, s)
			s.global()
			list := &members.List{Docs: natsbus.NewDocuments(s.connect("operator"), 1)}
			if done, err := list.Init(t.Context()); err == nil ||
				!strings.Contains(err.Error(), "ticket keys: visitors may have been admitted") {
				t.Errorf("done %q, %v", done, err)
			}
			if len(r.Status().Waits) == 0 && r.Ready().Ready {
				t.Error("the data centre has begun")
			}
		})
	}
}
