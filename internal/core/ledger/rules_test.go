package ledger_test

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/history"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// The rules of the hard limit (docs/GUARANTEES.md), as stories in the language of the scripts. The messages between
// nodes are not written down: a story passes if the judge finds no broken promise. Each fails without its rule; `make
// mutants` removes the rules one by one to check that.

// scenario plays one. After every step the judge has to be content.
func scenario(t *testing.T, text string) *world {
	t.Helper()
	s := &script{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		cmd, args, err := datadriven.ParseLine(line)
		if err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		s.do(t, &datadriven.TestData{Cmd: cmd, CmdArgs: args})
		if s.w.broken != "" {
			t.Fatalf("line %d (%s): broken: %s", n, line, s.w.broken)
		}
	}
	return s.w
}

// scenarios plays stories that have nothing to do with each other.
func scenarios(t *testing.T, all map[string]string) {
	for name, text := range all {
		t.Run(name, func(t *testing.T) { scenario(t, text) })
	}
}

// An edge admits only with a permit in hand, under a valid lease, charging it in the same step.
func TestRule1ARightInHandUnderALeaseInOneStep(t *testing.T) {
	scenarios(t, map[string]string{
		"more visitors than slots": `
			fleet total=10 rate=60 edges=2
			advance 2s
			arrive d1 n=12
			arrive d2 n=12
			advance 5s`,
		"more visitors than R": `
			fleet total=50 rate=6 edges=2
			advance 2s
			arrive d1 n=12
			arrive d2 n=12
			advance 5s`,
		"R in every window": `
			fleet total=50 rate=6 session=20s edges=2
			advance 2s
			arrive d1 n=12
			advance 70s
			advance 70s`,
		"a lease that has ended": `
			fleet total=10 rate=60 edges=2 policy=cap
			advance 2s
			arrive d1 bob
			advance 2s
			cut d1
			advance 4s # the permits of d1 are counted as spent, and those of R come back in time
			arrive d1 ann
			advance 70s`,
		"an answer that was long under way": `
			fleet total=10 rate=60 edges=2 policy=cap
			advance 2s
			arrive d1 bob
			advance 2s
			catch d1 down
			advance 1100ms
			cut d1 up
			advance 900ms
			deliver d1 down
			advance 2800ms # by the report that was answered, the lease has ended long ago
			arrive d1 ann
			advance 70s`,
	})
}

// The renewals that an edge has not reported are limited in advance.
func TestRule2UnreportedRenewalsAreBounded(t *testing.T) {
	scenario(t, `
		fleet total=40 rate=600 session=10s edges=2 policy=cap
		advance 2s
		arrive d1 n=20
		advance 3s clicking=3s
		cut d1 up
		advance 2500ms clicking=300ms # everybody inside asks to be renewed
		advance 20s`)
}

// After an edge's lease lapses its possible admissions count until they would have expired, or until its final report
// replaces the guess.
func TestRule3ReservedSpent(t *testing.T) {
	scenarios(t, map[string]string{
		"a slot given away without a word": `
			fleet total=20 rate=120 edges=2 policy=cap
			advance 2s
			arrive d1 n=6
			advance 2s clicking=10s
			cut d1 up
			arrive d1 ann
			advance 4s
			arrive d2 n=20
			advance 5s`,
		"permits of R": `
			fleet total=60 rate=60 edges=2 policy=cap
			advance 2s
			arrive d1 n=4
			advance 2s
			crash d1
			advance 4s
			arrive d2 n=80
			advance 5s`,
		"what was reserved outlives the aggregator": `
			fleet total=10 rate=60 session=30s edges=2 policy=cap
			advance 2s
			arrive d1 n=4
			advance 1s
			cut d1 up
			arrive d1 ann
			crash d1
			advance 5s
			start dublin
			advance 2s
			arrive d2 n=10
			advance 5s`,
		"a final word that comes late": `
			fleet total=10 rate=60 session=5s edges=2
			advance 2s
			arrive d1 n=4
			advance 3s clicking=1s
			cut d1 down
			catch d1 up
			advance 5s # its lease has ended, and it says so
			deliver d1 up later=10s
			cut d1 up
			advance 30s`,
	})
}

// A second is freed only after every live edge has reported a time at which its own clock refuses tickets of it.
func TestRule4NothingIsFreedByAClockAlone(t *testing.T) {
	scenarios(t, map[string]string{
		"renewed at the last moment, and not reported": `
			fleet total=4 rate=60 session=10s policy=cap
			advance 2s
			arrive d1 ann # until the 13th second
			advance 9s
			catch d1 up
			advance 1s
			click ann
			advance 2s`,
		"more renewed away than stamped": `
			fleet total=20 rate=120 edges=2
			advance 2s
			arrive d1 n=6
			arrive d2 n=2
			advance 20s clicking=5s
			cut d1
			advance 2m
			arrive d2 n=20
			advance 3s
			mend d1
			advance 1s
			crash d1
			advance 10s
			start d1
			advance 82s`,
	})
}

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
		"what a silent edge told comes late": `
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
	r := w.rooms[0]
	if n := w.active(r, nil); n > 10 {
		t.Errorf("%d sessions are valid of 10: somebody was let in beside those who were there", n)
	}
	core := w.centres[0].newest().core
	if e := core.Edges(); e.Unknown != 1 || e.LastUnknown != "d1" {
		t.Errorf("%d unknown edges, the last by %q, want one by d1", e.Unknown, e.LastUnknown)
	}
	if l := core.Ledger(r.id); l.Active < int64(w.active(r, nil)) {
		t.Errorf("%d sessions are counted of %d", l.Active, w.active(r, nil))
	}
}

// The possible overcommit by an edge that was declared ended is reported.
func TestRule5WhatWasForgottenIsTold(t *testing.T) {
	w := scenario(t, `
		fleet total=10 rate=600 session=20s edges=2
		advance 2s
		arrive d1 n=6
		advance 5s clicking=2s
		cut d1
		excuse # it is alive when it is declared ended
		advance 10s clicking=2s
		forget d1
		advance 40s clicking=2s
		arrive d2 n=20
		advance 5s clicking=2s`)
	r := w.rooms[0]
	l := w.centres[0].newest().core.Ledger(r.id)
	if over := int64(w.active(r, nil)) - 10; over <= 0 || l.Overcommit < over {
		t.Errorf("%d sessions beyond T, %d are told", over, l.Overcommit)
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
		"what an edge was lent before the books were voided": `
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

// A ticket from another data centre is served without renewal.
func TestRule7AwayFromHomeNothingIsRenewed(t *testing.T) {
	scenario(t, `
		fleet total=4 rate=60 session=10s centres=dublin,nairobi policy=cap
		advance 2s
		arrive d1 ann # until the 13th second
		advance 9s
		click ann at=n1
		advance 5s
		arrive d1 n=4
		arrive n1 n=4
		advance 3s`)
}

// A session that moves takes a permit of its new home. A session permit is free only when no edge renews or accepts
// its session.
func TestRule7MovesAndGoodbyes(t *testing.T) {
	scenarios(t, map[string]string{
		"who moves takes a permit": `
			fleet total=2 rate=60 session=1m centres=dublin,nairobi policy=cap
			advance 2s
			arrive d1 ann bob
			advance 10s
			click ann at=n1
			advance 1s
			click ann`,
		"the old home forgets when its edges know": `
			fleet total=4 rate=60 session=1m edges=2 centres=dublin,nairobi policy=cap
			advance 2s
			arrive d1 ann
			advance 10s
			click ann at=n1
			advance 1s
			click ann
			advance 2500ms
			catch d2 down # it does not hear of it, and is leased for a moment yet
			advance 1500ms
			copy ann at=d1
			advance 10ms
			click ann at=d2
			advance 1s`,
		"who left is accepted nowhere": `
			fleet total=2 rate=60 session=1m centres=dublin,nairobi policy=cap
			advance 2s
			arrive d1 ann
			advance 5s
			cut n1 down
			quit ann
			advance 8s`,
		"who moved and left has an older ticket": `
			fleet total=2 rate=60 session=1m edges=2 centres=dublin,nairobi policy=cap
			advance 2s
			arrive d1 ann
			advance 10s
			click ann at=n1
			advance 1s
			click ann
			advance 6s
			arrive d1 bob
			advance 2s
			quit ann
			advance 8s
			arrive d1 cid
			advance 3s`,
	})
}

// A node never acts on a message of a lower term or lease epoch than it has promised, and promises are stored before
// they are relied on.
func TestRule8Fencing(t *testing.T) {
	scenarios(t, map[string]string{
		"an old join is not the edge": `
			fleet total=10 rate=60 policy=cap
			catch d1 up
			advance 100ms
			deliver d1 up keep # it hears of the aggregator, and promises
			advance 50ms
			deliver d1 up keep # it joins
			advance 50ms
			deliver d1 up later=4s # all this arrives again
			advance 2s
			arrive d1 n=3
			advance 1s
			cut d1 up
			start dublin
			advance 3s`,
		"an old join is not the data centre": `
			fleet total=10 rate=60 policy=cap
			catch dublin up
			advance 100ms
			deliver dublin up keep
			advance 50ms
			deliver dublin up keep
			advance 50ms
			deliver dublin up later=6s
			advance 3s
			arrive d1 n=3
			advance 1s
			cut dublin up
			start root
			advance 4s`,
		"an edge follows upward only": `
			fleet total=20 rate=120 edges=2 policy=cap
			advance 20s # its grants are numbered higher than the successor's first
			catch d1 down
			arrive d1 n=6
			advance 300ms
			cut d1 up # it does not tell what it is granted here
			leave
			deliver d1 down later=2s
			advance 50ms
			start dublin
			mend d1 up
			advance 3s`,
		"a data centre follows upward only": `
			fleet total=20 rate=120 centres=dublin,nairobi policy=cap
			advance 3s
			catch dublin down
			arrive d1 n=12
			advance 600ms
			leave
			deliver dublin down keep later=2s
			deliver dublin down later=2100ms
			start root
			advance 1s
			cut dublin
			advance 4s`,
		"the store takes no word of who was replaced": `
			fleet total=20 rate=120 policy=cap
			advance 2s
			crash d1
			advance 90s # nothing of it counts any more
			disk dublin stops
			start d1
			advance 300ms
			cut d1 up
			start dublin beside
			disk dublin goes # the older one learns that it is not the owner
			advance 400ms
			arrive d1 bob
			mend d1
			advance 1s`,
		"a lease epoch that an edge hears of when it is over": `
			fleet total=20 rate=120 edges=2 policy=cap
			advance 2s
			arrive d1 ann
			advance 1s
			catch d1 down
			advance 5s # its lease epoch is over, it says so, and a new one begins with a permit
			deliver d1 down newest later=6s
			cut d1 up
			advance 4s # that one is over too
			arrive d2 n=40
			advance 500ms
			mend d1 up
			catch d1 up
			advance 1200ms
			deliver d1 up later=305ms # the end of the first, when it has just heard of the second
			cut d1 up
			advance 1s`,
		"the end of an older lease epoch, told late": `
			fleet total=20 rate=120 edges=2 policy=cap
			advance 2s
			arrive d1 bob
			advance 1s
			catch d1 down
			advance 5s # its lease epoch is over, it says so, and a new one begins
			catch d1 up
			advance 1100ms # it says so once more
			deliver d1 up later=8s
			cut d1 up
			deliver d1 down newest
			arrive d1 ann # under the new one
			advance 12s`,
		"a roster is stored before anybody relies on it": `
			fleet total=10 rate=60 policy=cap
			advance 2s
			arrive d1 n=3
			advance 1s
			cut d1
			advance 5s
			disk dublin stops
			mend d1
			advance 1s
			disk dublin goes
			start dublin
			advance 2s`,
		"books are voided once": `
			fleet total=6 rate=60 session=10s centres=dublin,nairobi policy=cap
			advance 2s
			arrive d1 n=4
			advance 2s
			cut dublin
			leave
			advance 3m
			mend dublin
			advance 2s
			arrive d1 n=3
			advance 2s
			arrive n1 n=6
			advance 3s
			arrive d1 n=3
			advance 20s`,
	})
}

// After a replacement of an aggregator global hears only the new one: the ledger of the new one holds the permits
// that the old one gave back last.
func TestRule8GlobalHearsTheNewestAggregator(t *testing.T) {
	now, id := fleettime.Mono(time.Hour), room.IDOf("sale")
	term := wire.Term{N: 1, Nonce: 1}
	a := root.New(now, root.Config{Term: term, Centres: []string{"dublin"}, Params: wire.DefaultParams()})
	a.SetLease(fleettime.Never)
	a.SetRooms(now, []ledger.RoomConfig{{ID: id, Total: 10, Rate: 60, Session: time.Minute, Cap: true}})
	say := func(instance, seq, returned uint64) {
		now = now.Add(100 * time.Millisecond)
		a.Observe(now, wire.Report{
			From: "dublin", Instance: instance, Seq: seq, Parts: 1, Seen: term, Join: seq == 1,
			Rooms: []wire.RoomReport{{Room: id, Permits: wire.Permits{Sessions: wire.Allocation{Granted: 10, Returned: returned}, Rate: wire.Allocation{Granted: 60}}}},
		})
	}
	say(1, 1, 0)
	say(2, 1, 0)
	before := a.Ledger(id)
	say(1, 2, 4)
	if got := a.Ledger(id); got.Free != before.Free || got.Centres[0].Held != 10 {
		t.Errorf("after a late word of the old aggregator %d are free and dublin holds %d, want %d and 10", got.Free, got.Centres[0].Held, before.Free)
	}
}

// A new coordinator may have lost everything: it lends only returned permits until it knows all ledgers.
func TestRule9ACoordinatorWithoutMemory(t *testing.T) {
	scenarios(t, map[string]string{
		"while one data centre is not heard": `
			fleet total=20 rate=120 session=20s centres=dublin,nairobi policy=cap
			advance 2s
			arrive d1 n=4
			arrive n1 n=6
			advance 2s clicking=5s
			cut nairobi
			start root
			advance 3s
			arrive d1 n=20
			advance 40s
			mend nairobi
			advance 3s`,
		"books that are lost with it": `
			fleet total=6 rate=120 centres=dublin,nairobi edges=2 policy=cap
			advance 2s
			arrive d1 n=4
			advance 2s clicking=10s
			start root
			catch d1 up
			start dublin
			advance 1s
			arrive n1 n=6
			advance 1s`,
		"books that were only reckoned": `
			fleet total=4 rate=120 session=1m centres=dublin,nairobi edges=2 policy=cap
			advance 2s
			arrive n1 n=3
			arrive d1 n=1
			advance 2s clicking=10s
			crash d1
			advance 4s
			cut nairobi
			start root
			start dublin
			arrive d2 n=4
			advance 90s # the guess at what d1 did has expired, and was never lent`,
		"a limit that was lowered before": `
			fleet total=20 rate=600 session=30s centres=dublin,nairobi
			advance 2s
			arrive d1 n=10
			advance 2s
			leave inside
			arrive n1 n=10
			advance 2s clicking=9s # those of nairobi stay
			cut nairobi
			limits total=10 rate=600
			advance 2s
			start root
			advance 45s # the sessions of dublin end, and pay the debt
			arrive d1 n=8
			advance 3s`,
		"a limit that was lowered before, and the ledger of a data centre": `
			fleet total=20 rate=600 session=30s centres=dublin,nairobi
			advance 2s
			arrive d1 n=10
			advance 2s
			leave inside
			arrive n1 n=10
			advance 2s clicking=9s
			cut nairobi
			limits total=10 rate=600
			advance 2s
			start root
			start dublin
			advance 45s
			arrive d1 n=8
			advance 3s`,
		"a rate that was lowered before": `
			fleet total=200 rate=40 session=30s centres=dublin,nairobi
			advance 2s
			arrive d1 n=15
			arrive n1 n=15
			advance 4s
			cut nairobi
			limits total=200 rate=20
			advance 2s
			start root
			advance 58s
			arrive d1 n=30
			arrive n1 n=30
			advance 6s`,
		"a limit that was lowered before the data centres are cut off": `
			fleet total=20 rate=600 session=30s centres=dublin,nairobi
			advance 2s
			arrive d1 n=10
			arrive n1 n=10
			advance 4s clicking=9s
			limits total=10 rate=600
			advance 12s clicking=9s # more than the limit stay
			cut dublin
			cut nairobi
			leave inside
			advance 45s # each data centre holds ten permits
			arrive d1 n=12
			arrive n1 n=12
			advance 4s`,
		"a rate that was lowered before the data centres are cut off": `
			fleet total=200 rate=40 session=30s centres=dublin,nairobi
			advance 2s
			arrive d1 n=20
			arrive n1 n=20
			advance 2s
			limits total=200 rate=20
			advance 12s
			cut dublin
			cut nairobi
			advance 60s
			arrive d1 n=30
			arrive n1 n=30
			advance 4s`,
		"permits below a stored floor": `
			fleet total=20 rate=600 session=30s centres=dublin,nairobi
			advance 8s
			disk dublin stops
			arrive n1 n=18 # they would need the permits of dublin, whose lower floor cannot be stored
			advance 3s
			crash dublin
			cut nairobi
			disk dublin goes
			start root
			start dublin
			advance 4s
			arrive d1 n=12
			advance 4s`,
		"a stored floor that no longer binds": `
			fleet total=20 rate=600 session=30s centres=dublin,nairobi policy=cap
			advance 8s
			disk dublin stops
			cut dublin
			advance 130s # the permits of dublin are lent to nairobi
			arrive n1 n=20
			advance 4s
			crash dublin
			cut nairobi
			mend dublin
			disk dublin goes
			start root
			start dublin
			advance 4s
			arrive d1 n=12
			advance 4s`,
	})
}

// The history has the admissions of all edges: a coordinator and an aggregator continue the sums of those before, and what
// edges tell nobody, or only one that is not heard any more, is told to the next.
func TestHistoryHasWhatHappenedBetweenLeaders(t *testing.T) {
	for name, x := range map[string]struct {
		change func(w *world, s *dataCentre, sell func(time.Duration))
		off    int // for each change: what an aggregator or an edge had not heard
	}{
		"coordinators crash": {func(w *world, _ *dataCentre, sell func(time.Duration)) {
			w.root().gone = true
			sell(2 * time.Second)
			w.startRoot(false)
		}, 0},
		"aggregators crash": {func(w *world, s *dataCentre, sell func(time.Duration)) {
			s.newest().gone = true
			sell(2500 * time.Millisecond)
			w.startAgg(s, false)
		}, 2},
		"aggregators are replaced": {func(w *world, s *dataCentre, sell func(time.Duration)) {
			s.up.caught = true // its last reports arrive when its successor is heard
			w.startAgg(s, false)
			sell(time.Second)
			pile := s.up.pile
			s.up = link{}
			sell(time.Second)
			for _, take := range pile {
				w.send(&s.up, take)
			}
		}, 2},
		"a data centre is cut off": {func(w *world, s *dataCentre, sell func(time.Duration)) {
			s.up.cut, s.down.cut = true, true
			sell(4 * time.Second)
			s.up.cut, s.down.cut = false, false
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			params := wire.DefaultParams()
			params.SyncFast, params.SyncIdle = 100*time.Millisecond, 100*time.Millisecond
			w := newWorld(params, []string{"dublin", "nairobi"}, 2)
			r := w.addRoom("sale", 5000, 6000, 10*time.Minute)
			w.begin(true)
			recorders := map[*rootProc]*history.Recorder{}
			var log []history.State
			w.history = func(n *rootProc, m wire.Report) {
				if recorders[n] == nil {
					recorders[n] = history.NewRecorder(log)
				}
				for i := range m.Rooms {
					c := &m.Rooms[i]
					recorders[n].Observe(m.From, uint64(c.Room), history.Report{Term: m.Instance, Joined: c.Joined, Admitted: c.Admitted, Entered: c.Entered, Counts: c.Counts})
				}
				recorders[n].Heard(m.From)
			}
			record := func() (admitted int) {
				if past := recorders[w.root()]; past != nil {
					s, _ := past.Record(w.now/1e9, uint64(r.id), &history.Gauges{})
					log = []history.State{s}
				}
				return int(log[0].Point.Values[history.Admitted])
			}
			crowd := 0
			sell := func(d time.Duration) {
				for end := w.now + int64(d); w.now < end; w.run(100 * time.Millisecond) {
					w.arrive(fmt.Sprint("guest", crowd), r, w.edges[crowd%len(w.edges)])
					crowd++
				}
			}
			w.run(3 * time.Second)
			for i := range 10 {
				sell(4*time.Second + time.Duration(i)*70*time.Millisecond)
				record()
				was := len(r.admitted)
				x.change(w, w.centres[i%2], sell)
				sell(3 * time.Second)
				w.run(3 * time.Second)
				if off := record() - len(r.admitted); off > x.off*(i+1) || -off > x.off*(i+1) {
					t.Fatalf("change %d: the history differs by %d of %d admissions, %d before the change", i, off, len(r.admitted), was)
				}
			}
			if w.broken != "" {
				t.Fatal(w.broken)
			}
			t.Logf("%d admissions, %d in the history", len(r.admitted), record())
		})
	}
}
