package ledger_test

import (
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

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
		"the end of an older lease epoch, reported late": `
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
		"permits are voided once": `
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
			Rooms: []wire.RoomReport{{Room: id, Permits: wire.Permits{
				Sessions: wire.Allocation{Granted: 10, Returned: returned},
				Rate:     wire.Allocation{Granted: 60},
			}}},
		})
	}
	say(1, 1, 0)
	say(2, 1, 0)
	before := a.Ledger(id)
	say(1, 2, 4)
	if got := a.Ledger(id); got.Free != before.Free || got.Centres[0].Held != 10 {
		t.Errorf("after a late report of the old aggregator %d are free and dublin holds %d, want %d and 10", got.Free,
			got.Centres[0].Held, before.Free)
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
		"a ledger that is lost with it": `
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
		"a ledger that was only reckoned": `
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
