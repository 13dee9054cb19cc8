package regional_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/control/api"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

var eventually = testkit.Eventually

// The whole path of a permit, with components started before their dependencies: the edge reports, the regional
// asks global, and the permit comes down.
func TestPermitsComeDownFromGlobal(t *testing.T) {
	s := newSite(t)
	e := s.edge()
	r := s.regional("one")
	eventually(t, "the regional leads", r.leads)
	if r.Ready().Ready || e.Ready().Ready {
		t.Error("ready without rooms")
	}
	var centre atomic.Pointer[api.DataCenter]
	var listens atomic.Pointer[[]string]
	unsubscribe := testkit.Must(s.connect("listener").Subscribe(wire.FleetSubject, func(_ string, data []byte) {
		var m struct {
			DataCenters []api.DataCenter `json:"data_centers"`
			Listens     []string         `json:"listens"`
		}
		if err := json.Unmarshal(data, &m); err == nil && len(m.DataCenters) == 1 {
			centre.Store(&m.DataCenters[0])
			listens.Store(&m.Listens)
		}
	}))(t)
	t.Cleanup(unsubscribe)
	s.global()
	eventually(t, "the edge has a lease", leased(e))
	eventually(t, "global tells of the releases and the leases of the regional and the edge", func() bool {
		d := centre.Load()
		if d == nil || len(d.Edges) != 1 || d.EdgesCount != 1 {
			return false
		}
		edge, build := d.Edges[0], node.ShortBuild()
		return d.Build == build && d.LeaseSeconds > 0 && edge.Name == "edge-1" && edge.Build == build &&
			edge.State == region.Alive && edge.LeaseSeconds > 0
	})
	if at := strings.TrimPrefix(e.URL(), "http://"); !slices.Contains(*listens.Load(), at) {
		t.Errorf("the visitors' listener %s is not told: %q", at, *listens.Load())
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	eventually(t, "a visitor is admitted", func() bool {
		req := testkit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, e.URL()+"/", nil))(t)
		req.Host = "a.example"
		resp := testkit.Must(client.Do(req))(t)
		resp.Body.Close()
		return e.Status().Rooms["a"].Sessions > 0
	})
	eventually(t, "the regional counts the session", func() bool { return r.Status().Rooms["a"].Active > 0 })
	if l := r.Status().Rooms["a"]; l.Granted <= l.Returned || l.Granted-l.Returned > 10 {
		t.Errorf("permits in dublin: %+v", l)
	}
	if !r.Ready().Ready || r.Ready().Isolated {
		t.Errorf("the regional is not ready: %+v", r.Ready())
	}
	problems, err := testutil.GatherAndLint(r.reg)
	if err != nil || len(problems) > 0 {
		t.Error(err, problems)
	}
}

func TestAStandbyTakesOver(t *testing.T) {
	s := newSite(t)
	_, stopGlobal := s.global()
	a := s.regional("one")
	eventually(t, "the first leads", a.leads)
	b, e := s.regional("two"), s.edge()
	eventually(t, "the edge has a lease", leased(e))
	eventually(t, "the standby is ready", func() bool { return b.Ready().Ready && !b.leads() })
	term := a.Status().Region.Term.N
	a.stop()
	took := eventually(t, "the standby leads", b.leads)
	t.Logf("the takeover took %v (goal 2 s)", took.Round(time.Millisecond))
	eventually(t, "it knows the edge and global", func() bool {
		st := b.Status().Region
		return st.Term.N > term && !st.Isolated && len(st.Edges) > 0
	})
	eventually(t, "the edge has a lease of the new leader",
		func() bool { return leased(e)() && e.Status().SyncAge < 500*time.Millisecond })
	if n := len(b.Status().Region.Edges); n != 1 {
		t.Errorf("%d instances of the edge in the ledger, want 1", n)
	}

	// Without global the data centre continues, and reports so.
	stopGlobal()
	eventually(t, "the edge keeps its lease", leased(e))
	if !b.Ready().Ready {
		t.Error("a regional without global is not ready")
	}
}

// Of three candidates the leader dies without a message, twice. Each time the edge switches to a higher term. The
// gap is printed; the goal is 2 s.
func TestAnEdgeGoesOverToWhoeverLeads(t *testing.T) {
	s := newSite(t)
	s.global()
	all := []*candidate{s.regional("one"), s.regional("two"), s.regional("three")}
	e := s.edge()
	eventually(t, "the edge has a lease", leased(e))
	for range 2 {
		term := e.Status().Follows
		for _, c := range all {
			if c.leads() {
				c.conn.Close()
			}
		}
		took := eventually(t, "the edge has a lease of another", func() bool {
			st := e.Status()
			return st.Follows.N > term.N && st.Joined && st.Leased
		})
		t.Logf("from the death of the leader to a lease of the next: %v (goal 2 s)", took.Round(time.Millisecond))
	}
}

// An invalid message is rejected and counted, and leadership continues. Two processes with one name are reported on
// both sides, and both served.
func TestTwoEdgesOfOneNameAreReported(t *testing.T) {
	s := newSite(t)
	s.global()
	r := s.regional("one")
	one, other := s.edge(), s.edge()
	eventually(t, "both have a lease", func() bool { return leased(one)() && leased(other)() })
	for name, ready := range map[string]func() node.Readiness{
		"the regional": r.Ready, "one edge": one.Ready,
		"the other": other.Ready,
	} {
		eventually(t, name+" has an alarm",
			func() bool { return strings.Contains(strings.Join(ready().Alarms, " "), "process") })
	}
}

// The leader handles an operator's declaration that an edge has ended; an edge that reports is not forgotten.
func TestOnlyWhoIsSilentIsForgotten(t *testing.T) {
	s := newSite(t)
	s.global()
	r := s.regional("one")
	e := s.edge()
	eventually(t, "the edge has a lease", leased(e))
	for question, want := range map[string]string{
		`{"edge": "edge-1"}`: "forget edge-1: it reports, so it has not ended",
		`{"edge": "edge-2"}`: "forget edge-2: no silent process has this name",
		`{"edge": ""}`:       `must be 1 to 64 characters of a-z, 0-9, - and _, got ""`,
		`{"edge": "*"}`:      `must be 1 to 64 characters of a-z, 0-9, - and _, got "*"`,
		`nonsense`:           "invalid character 'o' in literal null (expecting 'u')",
	} {
		data := testkit.Must(r.conn.Ask(t.Context(), wire.ForgetSubject("dublin"), []byte(question)))(t)
		var answer wire.ForgetAnswer
		testkit.NoError(t, json.Unmarshal(data, &answer))
		if answer.Done != "" || answer.Error != want {
			t.Errorf("%s: %q %q, want %q", question, answer.Done, answer.Error, want)
		}
	}
	if done := forget(t, r, `{"edge": "", "all": true}`); done != "every edge reports or has ended: nothing was declared" {
		t.Errorf("all that are silent, where nobody is: %q", done)
	}
	r.stop()
	if _, err := s.connect("operator").Ask(t.Context(), wire.ForgetSubject("dublin"),
		[]byte(`{"edge": "edge-1"}`)); !errors.Is(err, natsbus.ErrNobody) {
		t.Errorf("nobody leads: %v, want %v", err, natsbus.ErrNobody)
	}
}

// forget asks to forget edges, and returns the leader's answer.
func forget(t *testing.T, r *candidate, question string) string {
	t.Helper()
	var answer wire.ForgetAnswer
	eventually(t, "it accepts after a lease", func() bool {
		data := testkit.Must(r.conn.Ask(t.Context(), wire.ForgetSubject("dublin"), []byte(question)))(t)
		answer = wire.ForgetAnswer{}
		testkit.NoError(t, json.Unmarshal(data, &answer))
		return answer.Error == ""
	})
	return answer.Done
}

// A successor that misses an edge reports the wait, its end, and how to end it earlier; meanwhile it accepts the
// declaration that the edge has ended.
func TestARegionalSaysWhomItWaitsFor(t *testing.T) {
	s := newSite(t)
	s.global()
	one, two := s.regional("one"), s.regional("two")
	e := s.edge()
	eventually(t, "the edge has a lease", leased(e))
	was, next := one, two
	if two.leads() {
		was, next = two, one
	}
	s.edges[0].Close() // isolate it
	was.conn.Close()
	eventually(t, "the successor leads", next.leads)
	alarms := func() string { return strings.Join(next.Ready().Alarms, "\n") }
	waits := regexp.MustCompile(`no visitor is admitted in dublin until ....-..-.. ..:..:.. UTC at most, or until edge edge-1 .*vestibule fleet forget edge-1 --dc dublin`)
	eventually(t, "it says that it waits", func() bool { return waits.MatchString(alarms()) })
	if done := forget(t, next, `{"edge": "edge-1"}`); !strings.HasPrefix(done, "1 processes of edge-1 have ended") {
		t.Error(done)
	}
	eventually(t, "it knows that the edge has ended", func() bool {
		return strings.Contains(alarms(), "which has ended, have expired")
	})
}

// shutOnce is a store of promises that cannot be opened the first time.
type shutOnce struct {
	wire.PromiseStore
	opened bool
}

func (s *shutOnce) Open(ctx context.Context, t wire.Term) (wire.Durable, error) {
	if !s.opened {
		s.opened = true
		return wire.Durable{}, wire.ErrDown
	}
	return s.PromiseStore.Open(ctx, t)
}

// A new data centre is still new if its first leader could not open the promises.
func TestAFounderMayLoseItsFirstLease(t *testing.T) {
	s := newSite(t)
	s.promises = func(p wire.PromiseStore) wire.PromiseStore { return &shutOnce{PromiseStore: p} }
	s.global()
	r := s.regional("one")
	e := s.edge()
	eventually(t, "the edge has a lease", leased(e))
	eventually(t, "the data centre has joined", func() bool { return r.Status().Region.Joined })
	for _, e := range r.Status().Region.Edges {
		if e.Name == wire.UnknownPast {
			t.Error("nothing was ever stored, and the store is taken for one that is lost")
		}
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	s := newSite(t)
	r := s.regional("one")
	eventually(t, "it leads", r.leads)
	outsider := s.connect("stranger")
	eventually(t, "nonsense is counted", func() bool {
		for _, subject := range []string{wire.ReportSubject("dublin", "edge-9"), wire.GrantSubject(wire.Root, "dublin")} {
			if err := outsider.Publish(subject, []byte("nonsense")); err != nil {
				return false
			}
		}
		const refused = "vestibule_regional_messages_refused_total"
		return testkit.Metric(t, r.reg, refused, "message", "report") > 0 &&
			testkit.Metric(t, r.reg, refused, "message", "grant") > 0
	})
	if !r.leads() {
		t.Error("it no longer leads")
	}
}

// The leases are restored from before the promises, and the promises from before the edges: terms increase all the
// same, and both are reported.
func TestAStoreThatCameBackOlderIsReported(t *testing.T) {
	s := newSite(t)
	const ahead = 1 << 40
	conn := s.connect("before")
	testkit.Must(natsbus.NewPromises(conn, "dublin", 1).Open(t.Context(), wire.Term{N: ahead, Nonce: 1}))(t)
	r := s.regional("one")
	eventually(t, "it leads above the term of the promises", func() bool { return r.Status().Region.Term.N > ahead })
	if n := testkit.Metric(t, r.reg, "vestibule_regional_store_regressions_total"); n != 1 {
		t.Errorf("%v regressions logged, want 1", n)
	}
	// An edge that is in no roster, with a session.
	now := fleettime.TimeOf(time.Now())
	m := wire.Report{
		From: "edge-9", Instance: 9, LeaseEpoch: 1, Seq: 1, Parts: 1, AsOf: now, Join: true,
		Rooms: []wire.RoomReport{{
			Room: room.IDOf("a"), Permits: wire.Permits{Sessions: wire.Allocation{Granted: 1}}, Spent: 1, FirstMove: 1,
			Sessions: []wire.Expiry{{Until: uint32(now.Second()) + 60, Stamped: 1}},
		}},
	}
	eventually(t, "the unknown edge is logged", func() bool {
		m.Seen = r.Status().Region.Term
		m.Seq++
		data := wire.EncodeReport(&m)
		testkit.NoError(t, conn.Publish(wire.ReportSubject("dublin", "edge-9"), data))
		return testkit.Metric(t, r.reg, "vestibule_regional_unknown_edges_total") == 1
	})
}

// A data centre whose name is listed with another cluster ID reports so and is not ready; on an operator's command
// it leads anew as the listed one.
func TestACopiedDataCentreSaysSo(t *testing.T) {
	s := newSite(t)
	r := s.regional("one")
	eventually(t, "it leads, with a site of its own", func() bool { return r.Status().Region.ClusterID != 0 })
	own, term := r.Status().Region.ClusterID, r.Status().Region.Term.N
	operator := s.connect("operator")
	answer := func() (a wire.ForgetAnswer) {
		data, err := operator.Ask(t.Context(), wire.RejoinSubject("dublin"), nil)
		if err == nil {
			err = json.Unmarshal(data, &a)
		}
		testkit.NoError(t, err)
		return a
	}
	if a := answer(); !strings.Contains(a.Error, "no other data centre of this name") {
		t.Errorf("with nobody else: %+v", a)
	}
	m := node.NewMembers(time.Now(), []string{"dublin"})
	m.List[0].ClusterID = own + 1
	data := testkit.Must(node.EncodeMembers(m))(t)
	testkit.Must(natsbus.NewDocuments(operator, 1).Put(t.Context(), node.MembersDocument, data, 0))(t)
	eventually(t, "it says that it is a copy", func() bool {
		ready := r.Ready()
		return !ready.Ready && slices.ContainsFunc(ready.Reasons, func(why string) bool {
			return strings.HasPrefix(why, "another data centre is named dublin") &&
				strings.Contains(why, "vestibule fleet rejoin dublin")
		})
	})
	revision := uint64(0)
	publish := func(reporting bool) {
		data, err := json.Marshal(node.MembersStatus{
			At:   time.Now(),
			List: []node.CentreState{{Name: "dublin", ClusterID: own + 1, Reporting: reporting}},
		})
		if err == nil {
			revision, err = natsbus.NewDocuments(operator, 1).Put(t.Context(), node.MembersStatusDocument, data, revision)
		}
		testkit.NoError(t, err)
	}
	publish(true)
	if a := answer(); !strings.Contains(a.Error, "reports to global: it is not lost") {
		t.Fatalf("while the listed one lives: %+v", a)
	}
	publish(false)
	if a := answer(); a.Error != "" {
		t.Fatal(a.Error)
	}
	eventually(t, "it leads as the one of the list", func() bool {
		st := r.Status().Region
		return st.Term.N > term && st.ClusterID == own+1 && st.Copy == 0
	})
}

// A leader restores an emptied store of promises before a successor needs them.
func TestPromisesAreStoredAgain(t *testing.T) {
	s := newSite(t)
	s.global()
	r := s.regional("one")
	eventually(t, "the edge has a lease", leased(s.edge()))
	js := s.operator()
	stream := testkit.Must(js.Stream(t.Context(), "KV_vestibule_promises"))(t)
	testkit.NoError(t, stream.Purge(t.Context()))
	kv := testkit.Must(js.KeyValue(t.Context(), "vestibule_promises"))(t)
	eventually(t, "the roster is there again", func() bool {
		e, err := kv.Get(t.Context(), "dublin")
		return err == nil && strings.Contains(string(e.Value()), "edge-1")
	})
	if !r.leads() {
		t.Error("it no longer leads")
	}
}

// TestALostStoreIsKnownFromTheDataFolder: all regionals end, and the store loses the promises meanwhile. The leader of
// before knows them from its data folder, so nobody waits for an unknown past. The other one, which starts first, lets
// it lead.
func TestALostStoreIsKnownFromTheDataFolder(t *testing.T) {
	s := newSite(t)
	s.global()
	first, other := s.regional("one"), s.regional("two")
	eventually(t, "one of them leads", func() bool { return first.leads() || other.leads() })
	if other.leads() {
		first, other = other, first
	}
	e := s.edge()
	eventually(t, "the edge has a lease, and the other one the rooms",
		func() bool { return leased(e)() && other.Ready().Ready })
	other.stop()
	first.stop()
	stream := testkit.Must(s.operator().Stream(t.Context(), "KV_vestibule_promises"))(t)
	testkit.NoError(t, stream.Purge(t.Context()))
	other = s.regionalIn("other", other.dir)
	first = s.regionalIn("first", first.dir)
	took := eventually(t, "the leader of before leads, and waits for nobody", func() bool {
		awaited := func(e region.EdgeStatus) bool { return e.State != region.Alive && e.State != region.Left }
		edges := first.Status().Region.Edges
		return first.leads() && len(edges) > 0 && !slices.ContainsFunc(edges, awaited) && leased(e)()
	})
	t.Logf("it took %v", took.Round(time.Millisecond))
}
