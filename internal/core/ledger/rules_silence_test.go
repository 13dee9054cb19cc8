package ledger_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/ledger/region"
)

// Silence is never read as emptiness.
func TestRule5SilenceIsNotEmptiness(t *testing.T) {
	scenarios(t, map[string]string{
		"under serve an edge goes on": `
			fleet total=20 rate=120 session=20s edges=2
			advance 2s
			arrive d1 n=6
			advance 5s clicking=2s
			cut d1
			advance 2m
			arrive d2 n=20
			advance 5s`,
		"silence of all is the aggregator's own isolation": `
			fleet total=10 rate=60 session=10s edges=2 lost_after=30s
			advance 2s
			arrive d1 n=3
			arrive d2 n=3
			advance 3s clicking=2s
			cut d1
			cut d2
			advance 70s`,
		"silence of all is global's own isolation": `
			fleet total=10 rate=60 session=10s lost_after=65s
			advance 2s
			arrive d1 n=3
			advance 3s clicking=2s
			cut dublin
			advance 90s`,
		"edges of a predecessor": `
			fleet total=20 rate=120 edges=2 policy=cap
			advance 2s
			arrive d1 n=5
			arrive d2 n=3
			advance 5s clicking=10s
			catch d2 up
			start dublin
			advance 1s
			arrive d1 n=20
			advance 1s
			deliver d2 up
			advance 2s`,
		"an edge is lent no more than its stored ceiling": `
			fleet total=10 rate=3600 edges=2
			advance 2s
			arrive d1 n=10
			advance 10s clicking=5s
			disk dublin stops
			limits total=60 rate=3600
			arrive d1 n=50
			advance 3s
			cut d1
			crash dublin
			disk dublin
			start dublin
			advance 5s
			arrive d2 n=60
			advance 15s`,
		"a ceiling has the permits of R of an earlier lease": `
			fleet total=60 rate=60 session=10s edges=2
			advance 2s
			arrive d1 n=40
			advance 3s
			cut d1
			advance 8s
			mend d1
			advance 8s
			crash d1
			start dublin
			advance 5s
			arrive d2 n=60
			advance 20s`,
		"a ceiling has the sessions that the edge renews": `
			fleet total=100 rate=12000 session=1m edges=2
			advance 2s
			arrive d1 n=50
			arrive d2 n=50
			advance 30s clicking=10s
			cut d1
			start dublin
			advance 20s clicking=10s
			arrive d2 n=100
			advance 100s clicking=10s`,
		"a ceiling has the sessions of the process before it": `
			fleet total=200 rate=12000 session=1m edges=2
			advance 2s
			arrive d1 n=100
			arrive d2 n=100
			advance 5s clicking=20s
			crash d1
			advance 8s
			start d1
			advance 1s
			cut d1
			start dublin
			advance 100s
			arrive d2 n=200
			advance 60s`,
		"session_duration of before": `
			fleet total=10 rate=120 session=2m edges=2 policy=cap
			advance 2s
			arrive d1 n=6
			advance 1s
			crash d1
			session 10s
			start dublin # it never hears that it was two minutes
			advance 90s
			arrive d2 n=20
			advance 5s`,
		"a silent edge's report comes late": `
			fleet total=10 rate=120 session=60s edges=2 probation=10s
			advance 2s
			arrive d1 n=3
			advance 500ms clicking=200ms
			catch d1 up
			arrive d1 n=4
			advance 600ms
			cut d1
			advance 40s clicking=5s # from probation to full, and on, alone
			deliver d1 up # of the moment when they came
			advance 1s clicking=5s
			arrive d2 n=20
			advance 5s clicking=5s`,
		"session_duration of a silent edge": `
			fleet total=10 rate=120 session=2m edges=2
			advance 2s
			arrive d1 n=6
			advance 5s clicking=10s
			cut d1
			session 10s # which it never hears
			advance 5m clicking=10s
			crash d1
			mend d1
			start d1
			advance 60s
			arrive d2 n=20
			advance 5s`,
		"under serve an edge that is awaited in vain goes on": `
			fleet total=20 rate=120 session=20s edges=2
			advance 2s
			arrive d1 n=6
			advance 5s clicking=2s
			cut d1
			start dublin
			advance 2m clicking=2s
			arrive d2 n=20
			advance 5s
			mend d1
			advance 10s clicking=2s
			arrive d2 n=20
			advance 5s`,
		"a silent edge and its aggregator end, and come back together": `
			fleet total=10 rate=120 session=20s
			advance 2s
			arrive d1 n=6
			advance 5s clicking=2s
			cut d1
			advance 60s clicking=2s
			crash d1
			crash dublin
			mend d1
			cut dublin down
			start dublin
			start d1
			advance 2s # it is there before the time is
			mend dublin
			advance 2s
			arrive d1 n=20
			advance 5s`,
		"an edge begins anew and falls silent, with the sessions of before": `
			fleet total=10 rate=120 session=20s edges=2
			advance 2s
			arrive d1 n=6
			advance 5s clicking=2s
			crash d1
			start d1
			advance 500ms
			cut d1
			advance 40s clicking=5s
			arrive d2 n=20
			advance 5s`,
		"another process of a silent edge's name": `
			fleet total=10 rate=600 session=20s edges=2
			advance 2s
			arrive d1 n=6
			advance 5s clicking=2s
			twin d1 name=d1x
			advance 3s clicking=2s
			cut d1
			advance 40s clicking=2s
			arrive d1x n=20
			arrive d2 n=20
			advance 40s clicking=2s`,
		"another process in a copy of a silent edge's folder": `
			fleet total=10 rate=600 session=20s edges=2
			advance 2s
			arrive d1 n=6
			advance 5s clicking=2s
			cut d1
			advance 5s clicking=2s
			twin d1 name=d1x copy=d1
			advance 40s clicking=2s
			arrive d1x n=20
			arrive d2 n=20
			advance 5s clicking=2s`,
		"an edge that was said to have ended is heard and falls silent again": `
			fleet total=10 rate=600 session=20s edges=2
			advance 2s
			arrive d1 n=6
			advance 5s clicking=2s
			twin d1 name=d1x as=d1
			advance 5s clicking=2s
			cut d1
			advance 40s clicking=2s
			arrive d1x n=20
			arrive d2 n=20
			advance 5s clicking=2s`,
		"an edge that was declared ended may be served for a session": `
			fleet total=10 rate=600 session=20s edges=2
			advance 2s
			arrive d1 n=6
			advance 5s clicking=2s
			cut d1
			advance 4s clicking=2s
			crash d1 # its last tickets live on
			forget d1
			click v1 v2 v3 v4 v5 v6 at=d2
			arrive d2 n=20
			advance 5s`,
		"an edge is not forgotten while it has a lease": `
			fleet total=10 rate=600 session=20s edges=2
			advance 2s
			arrive d1 n=6
			advance 5s clicking=2s
			cut d1
			forget d1
			advance 40s clicking=2s
			arrive d2 n=20
			advance 5s`,
		"an edge that is awaited in vain": `
			fleet total=20 rate=120 edges=2 policy=cap
			advance 2s
			arrive d1 n=5
			arrive d2 n=6
			advance 5s clicking=10s
			crash d2
			start dublin
			advance 12s # it is lost, and whoever it let in is inside
			arrive d1 n=20
			advance 3s`,
		"edges that nobody knows any more": `
			fleet total=10 rate=120 session=30s edges=2 policy=cap
			advance 2s
			arrive d1 n=3
			arrive d2 n=3
			advance 2s clicking=5s
			crash d2
			start dublin blank
			advance 2s
			arrive d1 n=10
			advance 5s`,
		"a process that has ended": `
			fleet total=10 rate=60 session=30s edges=2
			advance 2s
			arrive d1 n=4
			advance 1s
			crash d1
			advance 5s
			start d1
			advance 2s
			arrive d2 n=10
			advance 5s`,
	})
}

// Under cap nobody goes on without a lease, and global reclaims only after the allocation of a silent data centre
// must have expired.
//
// An allocation that was given up, of a data centre that is alive, counts from the moment it is heard: nobody is
// admitted beside it.
func TestRule5WhatWasGivenUpCountsOnceItIsHeard(t *testing.T) {
	w := scenario(t, `
		fleet total=10 rate=600 session=20s edges=2 lost_after=1m
		advance 2s
		arrive d1 n=6
		advance 5s clicking=2s
		cut d1
		excuse # it is alive when it is given up
		advance 2m clicking=2s
		mend d1
		advance 1s clicking=2s
		arrive d2 n=10
		advance 1s clicking=2s`)
	r := w.rooms.all[0]
	if n := w.oracle.active(r, nil); n > 10 {
		t.Errorf("%d sessions are valid of 10: somebody was let in beside those who were there", n)
	}
	core := w.centres[0].newest().core
	if e := core.Edges(); e.Unknown != 1 || e.LastUnknown != "d1" {
		t.Errorf("%d unknown edges, the last by %q, want one by d1", e.Unknown, e.LastUnknown)
	}
	if l := core.Ledger(r.id); l.Active < int64(w.oracle.active(r, nil)) {
		t.Errorf("%d sessions are counted of %d", l.Active, w.oracle.active(r, nil))
	}
}

// overcommit returns the number of sessions beyond T in the first room, and how many may be as its data centre reports.
func (o *oracle) overcommit() (over, reported int64) {
	r := o.w.rooms.all[0]
	return int64(o.active(r, nil)) - int64(r.total), o.w.centres[0].newest().core.Ledger(r.id).Overcommit
}

// The possible overcommit by an edge that was declared lost is reported until an operator declares the edge ended and
// its tickets have expired.
func TestRule5WhatWasLostIsReported(t *testing.T) {
	const lost = `
		fleet total=10 rate=600 session=20s edges=2 lost_after=30s
		advance 2s
		arrive d1 n=6
		advance 5s clicking=2s
		cut d1
		excuse # it is alive when it is declared lost
		advance 60s clicking=2s
		arrive d2 n=20
		advance 5s clicking=2s
		`
	if over, reported := scenario(t, lost).oracle.overcommit(); over <= 0 || reported < over {
		t.Errorf("%d sessions beyond T, %d are reported", over, reported)
	}
	w := scenario(t, lost+`crash d1
		forget d1`)
	if _, reported := w.oracle.overcommit(); reported == 0 {
		t.Error("its last tickets may be valid, and nothing is reported")
	}
	w.run(26 * time.Second)
	if _, reported := w.oracle.overcommit(); reported != 0 {
		t.Errorf("its last tickets have expired, and %d are reported", reported)
	}
}

// A session that appeared elsewhere while its edge was silent may have returned there. Once that edge is declared
// ended, it ends there with its last ticket.
func TestRule5AMoveFromAnEndedEdgeCountsForATicketLife(t *testing.T) {
	w := scenario(t, `
		fleet total=4 rate=60 session=1m edges=2
		advance 2s
		arrive d1 ann
		advance 10s
		cut d1
		advance 10s
		click ann at=d2
		advance 5s
		crash d1
		forget d1`)
	for _, want := range []int64{1, 0} {
		w.run(35 * time.Second)
		if _, reported := w.oracle.overcommit(); reported != want {
			t.Errorf("%d are reported, want %d", reported, want)
		}
	}
}

// The refusal of a mistyped name has the names of the silent edges.
func TestForgetNamesTheSilentEdges(t *testing.T) {
	w := scenario(t, `
		fleet total=10 rate=600 session=20s edges=2
		advance 2s
		crash d1
		advance 5s`)
	n := w.centres[0].newest()
	if _, err := n.core.Forget(n.read(w.now), "d", 0, false); !errors.Is(err, region.ErrUnknown) ||
		!strings.HasSuffix(err.Error(), "; silent are: d1") {
		t.Errorf("%v", err)
	}
}

// An edge that was declared ended by mistake and reported since can be declared ended again.
func TestAnEdgeEndsAgainAfterAWrongWord(t *testing.T) {
	w := scenario(t, `
		fleet total=10 rate=600 session=20s edges=2
		advance 2s
		arrive d1 n=6
		advance 5s clicking=2s
		cut d1
		excuse # it is alive when it is declared ended
		advance 10s clicking=2s
		forget d1
		advance 5s
		mend d1
		advance 5s clicking=2s
		leave
		crash d1
		advance 5s
		forget d1
		advance 30s`)
	r := w.rooms.all[0]
	if l := w.centres[0].newest().core.Ledger(r.id); l.Active != 0 || l.Overcommit != 0 {
		t.Errorf("%d sessions count and %d may be valid beyond, want none", l.Active, l.Overcommit)
	}
}

// A silent edge follows its own clock for hours. The longest story is the last: `make mutants` stops at the first
// failure.
func TestRule5ASilentEdgeGoesByItsOwnClock(t *testing.T) {
	scenario(t, `
			fleet total=10 rate=120 session=20s drift=190
			advance 2s
			arrive d1 n=6
			advance 5s clicking=5s
			cut d1
			advance 5h clicking=8s
			crash dublin
			start dublin # it does not know how long this has been going on
			advance 60s clicking=5s
			mend d1
			crash d1
			start d1
			advance 24s
			arrive d1 n=20
			advance 5s`)
}

func TestRule6Cap(t *testing.T) {
	scenarios(t, map[string]string{
		"an isolated edge renews nothing": `
			fleet total=10 rate=60 session=10s edges=2 policy=cap
			advance 2s
			arrive d1 n=4
			advance 2s clicking=1s
			cut d1
			advance 30s`,
		"a data centre stops when its lease ends": `
			fleet total=6 rate=60 session=10s centres=dublin,nairobi policy=cap
			advance 2s
			arrive d1 n=6
			advance 2s clicking=2s
			cut dublin
			advance 160s
			arrive n1 n=6
			advance 3s`,
		"what an edge was lent before the permits were voided": `
			fleet total=20 rate=120 session=1m centres=dublin,nairobi policy=cap
			advance 2s
			catch d1 down
			advance 5s # a new lease epoch begins with a permit, of which it does not hear
			cut dublin
			advance 160s
			arrive n1 n=20 # what was dublin's is nairobi's now
			advance 3s clicking=10s
			mend dublin
			advance 3s
			deliver d1 down newest
			arrive d1 ann
			advance 2s`,
		"global waits for what is still valid": `
			fleet total=6 rate=60 session=2m centres=dublin,nairobi policy=cap
			advance 2s
			arrive d1 n=6
			advance 2s clicking=5s
			cut dublin
			advance 70s
			arrive n1 n=6
			advance 3s`,
	})
}
