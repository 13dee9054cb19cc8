package global

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/control/api"
	"vestibule/internal/lab/testkit"
)

// Reports of data centres about their edges are shown with their age, and never more of them than fit a message.
func TestWhatADataCentreTellsOfItsEdgesIsShown(t *testing.T) {
	l := &leadership{reports: map[string]*centreReport{}}
	l.storeCentreReport(10, &wire.Report{
		From: "dublin", Build: "v2", TellsEdges: true, EdgesN: 300,
		Edges: []wire.EdgeStatus{
			{Name: "a", State: "lost", Heard: time.Minute}, {
				Name: "b", Build: "v1", State: "alive", Heard: time.Second,
				Lease: 2 * time.Second,
			},
		},
	})
	l.storeCentreReport(20, &wire.Report{From: "dublin", Build: "v3"})
	shown := func(now fleettime.Mono, most int) (d api.DataCenter) {
		l.reports["dublin"].show(now, most, &d)
		return d
	}
	d := shown(fleettime.Mono(10).Add(time.Second), 2)
	if d.Build != "v3" || d.EdgesCount != 300 || len(d.Edges) != 2 ||
		d.Edges[0] != (api.Edge{Name: "a", State: "lost", HeardSeconds: 60}) ||
		d.Edges[1] != (api.Edge{Name: "b", Build: "v1", State: "alive", HeardSeconds: 1, LeaseSeconds: 2}) {
		t.Errorf("as of the report: %+v", d)
	}
	if d := shown(fleettime.Mono(10).Add(20*time.Second), 2); d.Edges[1] != (api.Edge{
		Name: "b", Build: "v1",
		State: "unknown", HeardSeconds: 21,
	}) {
		t.Errorf("long after the report: %+v", d)
	}
	if d := shown(fleettime.Mono(10).Add(time.Hour), 1); len(d.Edges) != 1 || d.EdgesCount != 300 {
		t.Errorf("%+v", d)
	}
	l.storeCentreReport(30, &wire.Report{From: "dublin", TellsEdges: true})
	if d := shown(40, 2); d.Edges == nil || len(d.Edges) != 0 || d.EdgesCount != 0 {
		t.Errorf("all are gone: %+v", d)
	}
	var unheard *centreReport
	if unheard.show(40, 2, &d); d.Edges == nil {
		t.Error("a data centre that was not heard has no list of edges")
	}
	for i := range 2 * maxCentres {
		l.storeCentreReport(50, &wire.Report{From: fmt.Sprint(i), Build: "v1"})
	}
	if len(l.reports) > maxCentres {
		t.Errorf("%d data centres are remembered", len(l.reports))
	}
}

// The first certificate that ends within a month is an alarm, which names its process and says how many there are.
func TestCertificatesThatEndSoonAreAnAlarm(t *testing.T) {
	now := time.Date(2027, 1, 10, 0, 0, 0, 0, time.UTC)
	in := func(days int) *time.Time {
		end := now.AddDate(0, 0, days)
		return &end
	}
	edges := func(ends ...*time.Time) (all []api.DataCenter) {
		all = []api.DataCenter{{Name: "dublin", CertificateEnd: in(365)}}
		for i, end := range ends {
			all[0].Edges = append(all[0].Edges, api.Edge{Name: fmt.Sprint("edge-", i), CertificateEnd: end})
		}
		return all
	}
	for want, state := range map[string]candidateState{
		"": {Candidate: api.Candidate{Name: "g1", CertificateEnd: in(31)}, DataCenters: edges(nil, in(90))},
		"a certificate of g1 ends on 2027-01-11: replace the certificate files in time": {
			Candidate: api.Candidate{Name: "g1", CertificateEnd: in(1)},
		},
		"a certificate of the regional of oslo ends on 2027-01-08: replace the certificate files in time": {
			DataCenters: []api.DataCenter{{Name: "oslo", CertificateEnd: in(-2)}},
		},
		"a certificate of edge-2 of dublin ends on 2027-01-20: replace the certificate files in time; " +
			"2 processes have one that ends within 30 days": {
			DataCenters: edges(in(20), nil, in(10), in(40)),
		},
	} {
		if got := state.certificateAlarm(now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestCandidatesThatWereHeardAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c candidates
		tell := func(name, term string, leading bool, centres ...string) {
			t.Helper()
			state := candidateState{Candidate: api.Candidate{Name: name, Term: term, Leading: leading}}
			for _, dc := range centres {
				state.DataCenters = append(state.DataCenters, api.DataCenter{Name: dc})
			}
			data, err := json.Marshal(state)
			if err == nil {
				err = c.receive(data, time.Now())
			}
			testkit.NoError(t, err)
		}
		want := func(leader string, candidates, centres int) api.Fleet {
			t.Helper()
			v := c.view()
			if v.Leader != leader || len(v.Candidates) != candidates || v.DataCenters == nil || len(v.DataCenters) != centres {
				t.Errorf("%+v, want %s, %d candidates, %d data centres", v, leader, candidates, centres)
			}
			return v
		}
		want("", 0, 0)
		tell("global-2", "", false)
		tell("global-1", "9", true, "nairobi", "dublin")
		if v := want("global-1", 2, 2); v.Candidates[0].Name != "global-1" || v.Candidates[0].Alarms == nil {
			t.Errorf("%+v", v)
		}
		tell("global-3", "10", true, "nairobi") // two of them for a short time: one was killed
		for _, c := range want("global-3", 3, 1).Candidates {
			if c.Leading != (c.Name == "global-3") {
				t.Errorf("%s leads: %v", c.Name, c.Leading)
			}
		}
		tell("global-3", "", false)
		want("global-1", 3, 2)
		time.Sleep(leaderGone + time.Millisecond)
		if v := want("", 3, 0); v.Candidates[0].Leading {
			t.Error("who has not been heard for seconds is shown to lead")
		}
		time.Sleep(candidateGone)
		want("", 0, 0)
		for i := range 3 * maxCandidates {
			tell(fmt.Sprint("global-", i), "", false)
		}
		want("", maxCandidates, 0)
		for i := range 3 * maxCandidates {
			testkit.NoError(t, c.hearNotifier(fmt.Appendf(nil, `{"name":"n%d","sent":%d,"rooms":{"7":40}}`, i, i),
				time.Now()))
		}
		if n := c.view().Notifiers; len(n) != maxCandidates || n[1].Name != "n1" || n[1].Sent != 1 {
			t.Errorf("%d notifiers: %+v", len(n), n[:2])
		}
		if at, n := c.notified(7); !at.Equal(time.Now()) || n != 40 {
			t.Errorf("%v: %d", at, n)
		}
		time.Sleep(candidateGone + 1)
		if n := c.view().Notifiers; n == nil || len(n) != 0 {
			t.Errorf("silent notifiers are shown: %+v", n)
		}
		for _, bad := range []string{"", "x", `{"name":"a b"}`, `{"name":7}`} {
			if err := c.receive([]byte(bad), time.Now()); err == nil {
				t.Errorf("%q was taken", bad)
			}
			if err := c.hearNotifier([]byte(bad), time.Now()); err == nil {
				t.Errorf("%q was taken from a notifier", bad)
			}
		}
	})
}
