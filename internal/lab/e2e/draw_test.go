package e2e

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"vestibule/internal/allinone"
	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/visitor"
	"vestibule/internal/node"
)

var drawn = flag.Int("drawn", 0, "people who come to TestADraw; 0: it is skipped")

// The event of TestADraw. Its first visitors enter at once; then permits become free as sessions end.
const (
	drawTotal, drawRate = 300, 1500
	drawSession         = 10 * time.Second
	drawLead            = 90 * time.Second // from the start of the first process to that of the event

	// drawLag is the oracle's tolerance: edges learn the admission cutoff up to a second apart, and a next visitor is
	// answered once and asks a second later.
	drawLag = 2 * time.Second

	// drawTie is the time within which two visitors enter together: four edges admit a burst of permits at once.
	drawTie = time.Second
)

// TestADraw runs a fleet of processes, two data centres with two edges each, and visitors with separate cookies and
// connections that gather for an event with a draw, and a twentieth as many late ones. They poll at their retry
// times. The site's journal has the order of entering; the receipts, which are checked with the public record, have
// the drawn order. An admission is out of order if it is before the call: drawLag later no grant to an edge had a
// cutoff at its place. A late entry is no fault: called visitors ask every 15 to 25 s. The run also reports how
// many entered drawTie before a visitor with an earlier place that had been next for drawLag: permits become free
// at one edge, and the next visitor may wait at another.
func TestADraw(t *testing.T) {
	if *drawn == 0 {
		t.Skip("it takes three minutes; `make draw` runs it")
	}
	if most, err := node.MaxFiles(); err != nil || most < 2**drawn+1000 {
		t.Fatalf("this process may have %d files open (%v), and %d people come", most, err, *drawn)
	}
	bin, dir := build(t), t.TempDir()
	origin, journal := journaled(t, bin, dir, drawSession)
	begins := time.Now().Add(drawLead).UTC().Truncate(time.Second)
	event := fmt.Sprintf(", events: [{name: launch, prequeue_start_time: %q, event_start_time: %q, event_end_time: %q, "+
		"shuffle_at_event_start: true}]",
		begins.Add(-time.Hour).Format(time.RFC3339), begins.Format(time.RFC3339), begins.Add(time.Hour).Format(time.RFC3339))
	bus, nodes := fleet(t, bin, dir, sale(drawTotal, drawRate, drawSession.String(), origin.at["url"], event), "nairobi",
		"dublin")
	started, at := startEdges(t, bin, dir, bus, 2, "held: {per_prefix: 65536}\n", "nairobi", "dublin")
	areReady(t, started...)
	nodes, edges := append(nodes, started...), slices.Concat(at...)
	until(t, "the commit is public", func() bool {
		a, err := newEntrant(0, edges).ask(t.Context(), -1)
		return err == nil && a.Shown.Draw.Commit != ""
	})

	calls := watch(t, bus)
	ctx, cancel := context.WithTimeout(t.Context(), drawLead+5*time.Minute)
	defer cancel()
	people := gather(ctx, t, edges, begins)
	var record *draw.Record
	until(t, "the record is public", func() bool { record = recordOf(t, edges[0], "sale"); return record != nil })
	for _, p := range slices.Backward(append([]*command{origin}, nodes...)) {
		p.stop(t)
	}
	visits := read(t, journal)
	limits := judgeVisits(visits, drawSession, drawRate)
	j := judgeDraw(t, record, people, calls, visits, drawTotal)
	t.Logf("%d people were drawn, %d came later; let in before the call %d of %d", j.drawn, len(people)-j.drawn, j.early,
		j.entered)
	t.Logf("let in %v before somebody with an earlier place that had been next for %v: %d", drawTie, drawLag, j.over)
	t.Logf("of the first %d inside, with a place beyond %d: %d", drawTotal, drawTotal, j.beyond)
	t.Logf("places between the order drawn and the order of entering p50 / p99: %.0f / %.0f", j.off[len(j.off)/2],
		j.off[len(j.off)*99/100])
	figures.CheckTime(t, "draw: first admission after the start", "", j.first.Sub(begins))
	figures.Check(t, "draw: let in before the call", "", 100*float64(j.early)/float64(j.entered))
	figures.Check(t, "draw: lost places", "", float64(len(j.lost)))
	figures.Check(t, "draw: peak of sessions / T", "", float64(limits.peak)/drawTotal)
	figures.Check(t, "draw: admissions in 60 s / R", "", float64(limits.rate)/drawRate)
	if j.first.Before(begins) {
		t.Error("somebody entered before the start")
	}
	for i, fault := range j.lost {
		if i < 10 {
			t.Error(fault)
		}
	}
}

// gather lets visitors join until entries close, and a few later, and returns them when all have entered.
func gather(ctx context.Context, t *testing.T, edges []string, begins time.Time) []*entrant {
	t.Helper()
	closes, rng := begins.Add(-draw.Lead), rand.New(rand.NewPCG(seed, seed))
	span := int64(time.Until(closes) - time.Second)
	if span < int64(10*time.Second) {
		t.Fatalf("the fleet was ready %v before entries close: too late for so many", time.Until(closes))
	}
	people := make([]*entrant, *drawn+*drawn/20)
	var all sync.WaitGroup
	for i := range people {
		p := newEntrant(i, edges)
		at := time.Now().Add(time.Duration(rng.Int64N(span)))
		if i >= *drawn {
			at = closes.Add(time.Second + time.Duration(rng.Int64N(int64(draw.Lead))))
		}
		people[i] = p
		all.Go(func() {
			defer p.Client.CloseIdleConnections()
			pause(ctx, time.Until(at))
			p.fault = p.come(ctx)
		})
	}
	all.Wait()
	return people
}

// entrant is a visitor that asks for JSON, like an app.
type entrant struct {
	visitor.Visitor
	n     int
	edges []string
	rng   *rand.Rand

	joined  time.Time
	receipt *draw.Receipt
	place   time.Time // as last shown
	next    time.Time // when the visitor was shown to be next, zero for never
	fault   error
}

func newEntrant(n int, edges []string) *entrant {
	tr := &http.Transport{MaxIdleConns: 1, DisableCompression: true}
	return &entrant{
		Visitor: visitor.Visitor{Client: &http.Client{Timeout: 45 * time.Second, Transport: tr}, Site: "X-Demo-Origin"},
		n:       n, edges: edges, rng: rand.New(rand.NewPCG(seed, uint64(n))),
	}
}

// ask sends one request as a visitor of the site.
func (p *entrant) ask(ctx context.Context, n int) (visitor.Answer, error) {
	req, err := p.Request(ctx, p.edges[p.rng.IntN(len(p.edges))]+"/")
	if err != nil {
		return visitor.Answer{}, err
	}
	req.Header.Set(visitorHeader, strconv.Itoa(n))
	req.Header.Set(allinone.SentHeader, strconv.FormatInt(time.Now().UnixNano(), 10))
	req.Header.Set("Accept", "application/json")
	return p.Do(req)
}

// come waits until the visitor is inside. It returns an error if the place was lost.
func (p *entrant) come(ctx context.Context) error {
	for {
		answer, err := p.ask(ctx, p.n)
		a := &answer.Shown
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("visitor %d did not come in", p.n)
		case err != nil:
			return fmt.Errorf("visitor %d: %w", p.n, err)
		case answer.Inside:
			return nil
		case a.State == "moment":
		case p.joined.IsZero():
			p.joined, p.place = a.JoinedAt, a.JoinedAt
		case !a.JoinedAt.Equal(p.joined) || a.Lost != "":
			return fmt.Errorf("visitor %d had joined at %v, and gets %v, lost %q", p.n, p.joined, a.JoinedAt, a.Lost)
		case p.receipt != nil && !a.Place.Equal(p.receipt.Place):
			return fmt.Errorf("visitor %d has a receipt for %v, and stands at %v", p.n, p.receipt.Place, a.Place)
		case a.Draw.Receipt != nil:
			p.receipt, p.place = a.Draw.Receipt, a.Place
		}
		if a.State == "next" && p.next.IsZero() {
			p.next = time.Now()
		}
		pause(ctx, a.Retry())
	}
}

// cutoffs are the admission cutoffs that regionals sent to edges.
type cutoffs struct {
	mu   sync.Mutex
	sent []call
}

// call is a cutoff at the time of its grant.
type call struct {
	at     time.Time
	cutoff fleettime.Time
}

// watch records the cutoffs of all grants until the test ends.
func watch(t *testing.T, b *bus) *cutoffs {
	t.Helper()
	calls := &cutoffs{}
	nc := testkit.Must(nats.Connect(b.url["global"]))(t)
	t.Cleanup(nc.Close)
	_, err := nc.Subscribe(wire.GrantSubject("*", "*"), func(m *nats.Msg) {
		g, err := wire.DecodeGrant(m.Data)
		if err != nil {
			t.Errorf("a grant on %s: %v", m.Subject, err)
			return
		}
		calls.mu.Lock()
		defer calls.mu.Unlock()
		for i := range g.Rooms {
			if v := g.Rooms[i].View; v != nil {
				calls.sent = append(calls.sent, call{time.Now(), v.Cutoff})
			}
		}
	})
	testkit.NoError(t, errors.Join(err, nc.Flush()))
	return calls
}

// until returns the latest place called by then.
func (h *cutoffs) until(at time.Time) (called fleettime.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.sent {
		if !c.at.After(at) {
			called = max(called, c.cutoff)
		}
	}
	return called
}

// recordOf requests the public record of the draw from an edge, nil for none.
func recordOf(t *testing.T, edge, room string) *draw.Record {
	t.Helper()
	f, err := page(client, edge+"/.well-known/vestibule/draw?room="+room)
	if err != nil || f.StatusCode != http.StatusOK {
		return nil
	}
	r, err := draw.DecodeRecord([]byte(f.body))
	testkit.NoError(t, errors.Join(append(r.Check(nil), err)...))
	return r
}

// drawTurn is what one visitor of a drawn crowd got.
type drawTurn struct {
	receipt *draw.Receipt // nil for none
	rank    int           // as shown; 0 for never
	asked   bool          // within drawAsked before the event
	late    bool          // joined after entries closed
	entered time.Duration
}

// drawAsked is the time before the event within which an entrant must have asked, so that its rank counts at the start.
const drawAsked = 10 * time.Second

// drawOrder is a drawn crowd of which everybody entered.
type drawOrder []drawTurn

// drawnOrder is the judgement of a drawOrder.
type drawnOrder struct {
	first   int     // visitors that entered first
	beyond  int     // of them, with a rank behind as many entrants that asked
	late    int     // of them, latecomers
	off     float64 // largest difference between the shown and the true rank, as a part of the entrants
	unshown int     // entrants that entered later and were never shown their rank
	forged  int     // entrants without a receipt that the record confirms
}

// judge compares the order of entering and the shown ranks with the record.
func (o drawOrder) judge(record *draw.Record, first int) (j drawnOrder) {
	j.first = first
	o = slices.SortedFunc(slices.Values(o), func(a, b drawTurn) int { return cmp.Compare(a.entered, b.entered) })
	var places, asked []time.Time
	for _, p := range o {
		switch {
		case p.late:
		case p.receipt == nil || record == nil || record.Draw().Check(p.receipt) != nil:
			j.forged++
		default:
			if places = append(places, p.receipt.Place); p.asked {
				asked = append(asked, p.receipt.Place)
			}
		}
	}
	slices.SortFunc(places, time.Time.Compare)
	slices.SortFunc(asked, time.Time.Compare)
	for i, p := range o {
		switch {
		case p.late && i < first:
			j.late++
		case p.late || p.receipt == nil:
		case i < first && len(asked) >= first && p.receipt.Place.After(asked[first-1]):
			j.beyond++
		case i >= first && p.rank == 0:
			j.unshown++
		case p.rank != 0:
			rank, _ := slices.BinarySearchFunc(places, p.receipt.Place, time.Time.Compare)
			j.off = max(j.off, math.Abs(float64(p.rank-rank-1))/float64(len(places)))
		}
	}
	return j
}

// check judges the draw by its goals. Entrants of the last drawAsked before the event do not count.
func (j drawnOrder) check(t *testing.T) {
	t.Helper()
	figures.Check(t, "draw: ranks behind the first among the first inside", "", float64(j.beyond))
	figures.Check(t, "draw: latecomers among the first inside", "", float64(j.late))
	figures.Check(t, "draw: shown rank off by", "", 100*j.off)
	figures.Check(t, "draw: entrants without a rank", "", float64(j.unshown))
	figures.Check(t, "draw: receipts that the record does not confirm", "", float64(j.forged))
}

// drawJudgement is the result of a draw.
type drawJudgement struct {
	drawn, entered int
	early, over    int // admissions before the call; before a visitor with an earlier place that was next
	beyond         int // admissions among the first ones of a place beyond these
	first          time.Time
	off            []float64 // differences in place between the two orders, sorted
	lost           []error
}

// judgeDraw compares the order of entering with the drawn order. The first visitors inside are those of a full room.
func judgeDraw(t *testing.T, record *draw.Record, people []*entrant, calls *cutoffs, visits []allinone.Visit,
	first int,
) *drawJudgement {
	t.Helper()
	j, d, entered := &drawJudgement{}, record.Draw(), map[int]time.Time{}
	for _, v := range visits {
		n, err := strconv.Atoi(v.Guest)
		if _, ok := entered[n]; err == nil && !ok {
			entered[n] = v.At
		}
	}
	var in []*entrant
	for _, p := range people {
		err := p.fault
		_, ok := entered[p.n]
		switch {
		case err != nil:
		case !ok:
			err = fmt.Errorf("visitor %d is not in the site's journal", p.n)
		case p.joined.Before(record.Closes) && p.receipt == nil:
			err = fmt.Errorf("visitor %d joined before entries closed, and got no place", p.n)
		case p.receipt != nil:
			j.drawn++
			err = d.Check(p.receipt)
		}
		if err != nil {
			j.lost = append(j.lost, err)
		}
		if ok {
			in = append(in, p)
		}
	}
	slices.SortFunc(in, func(a, b *entrant) int { return cmp.Or(a.place.Compare(b.place), cmp.Compare(a.n, b.n)) })
	order := slices.SortedFunc(slices.Values(in), func(a, b *entrant) int { return entered[a.n].Compare(entered[b.n]) })
	rank := map[*entrant]int{}
	for i, p := range order {
		rank[p] = i
	}
	if j.entered = len(in); j.entered == 0 {
		t.Fatal("nobody entered")
	}
	j.first = entered[order[0].n]
	for i, p := range in {
		at := entered[p.n]
		if fleettime.TimeOf(p.place) > calls.until(at.Add(drawLag)) {
			j.early++
		}
		passed := func(o *entrant) bool {
			return !o.next.IsZero() && o.next.Add(drawLag).Before(at) && at.Add(drawTie).Before(entered[o.n])
		}
		if slices.ContainsFunc(in[:i], passed) {
			j.over++
		}
		if i >= first && rank[p] < first {
			j.beyond++
		}
		j.off = append(j.off, math.Abs(float64(rank[p]-i)))
	}
	slices.Sort(j.off)
	return j
}

// handMade returns the record of a draw for tests of the oracles.
func handMade() *draw.Record {
	closes, secret := time.UnixMilli(1_800_000_000_000).UTC(), draw.Secret{1}
	return &draw.Record{
		Algorithm: draw.Algorithm, Room: "r", Event: "e", Commit: secret.Commit(),
		Committed: closes.Add(-time.Hour), Closes: closes, Secret: draw.Hash(secret),
	}
}

// TestJudgeOfADraw tests the oracle with a hand-made journal.
func TestJudgeOfADraw(t *testing.T) {
	record := handMade()
	closes := record.Closes
	at := func(s float64) time.Time { return closes.Add(draw.Lead + time.Duration(s*float64(time.Second))) }
	// Late visitors are in the order of joining.
	one := func(n int) *entrant {
		joined := closes.Add(time.Duration(n) * time.Second)
		return &entrant{n: n, joined: joined, place: joined}
	}
	first, second, third, fourth := one(1), one(2), one(3), one(4)
	first.next = at(1)
	drawn, forged, lost, gone := one(0), one(0), one(0), one(5)
	for i, p := range []*entrant{drawn, forged} {
		p.n, p.joined = 10+i, closes.Add(-time.Second)
		p.place = time.UnixMilli(int64(record.Draw().Place(uint64(p.n), 0, 0)) + int64(i)).UTC()
		p.receipt = &draw.Receipt{Ticket: draw.Ticket(p.n), Joined: p.joined, Place: p.place}
	}
	lost.n, lost.joined = 12, closes.Add(-time.Second) // had no place
	people := []*entrant{first, second, third, fourth, drawn, forged, lost, gone}
	calls := &cutoffs{sent: []call{{at(0), fleettime.TimeOf(third.place)}, {at(20), fleettime.TimeOf(fourth.place)}}}
	var visits []allinone.Visit
	for _, v := range []struct {
		n int
		s float64
	}{{10, .1}, {11, .2}, {12, .3}, {2, 2}, {3, 4}, {1, 5.5}, {4, 17}} {
		visits = append(visits, allinone.Visit{At: at(v.s), Guest: strconv.Itoa(v.n)})
	}
	j := judgeDraw(t, record, people, calls, visits, 4)
	// 4 entered before the call; 3 while 1 had been next for three seconds, 2 for one. Of the first four inside, 2
	// has the fifth place. 11 has another place, 12 none, 5 never entered.
	if j.early != 1 || j.beyond != 1 || j.over != 1 || len(j.lost) != 3 || j.drawn != 2 || j.entered != 7 ||
		!j.first.Equal(at(.1)) {
		t.Errorf("judged %+v", j)
	}
}

// TestJudgeOfAnOrder tests the oracle of drawn crowds with five entrants and a latecomer, of whom two enter at once.
func TestJudgeOfAnOrder(t *testing.T) {
	record := handMade()
	closes := record.Closes
	var drawn drawOrder
	for n := range 5 {
		joined := closes.Add(-time.Second)
		place := time.UnixMilli(int64(record.Draw().Place(uint64(n), fleettime.TimeOf(joined), 0))).UTC()
		drawn = append(drawn, drawTurn{receipt: &draw.Receipt{Ticket: draw.Ticket(n), Joined: joined, Place: place}})
	}
	slices.SortFunc(drawn, func(a, b drawTurn) int { return a.receipt.Place.Compare(b.receipt.Place) })
	for i := range drawn {
		drawn[i].rank, drawn[i].asked, drawn[i].entered = i+1, true, time.Duration(i)*time.Second
	}
	late := drawTurn{late: true, entered: time.Minute}
	for name, c := range map[string]struct {
		change func(drawOrder)
		want   drawnOrder
	}{
		"in order":             {func(drawOrder) {}, drawnOrder{}},
		"the third passes":     {func(o drawOrder) { o[2].entered = -1 }, drawnOrder{beyond: 1}},
		"the second is silent": {func(o drawOrder) { o[1].asked, o[1].entered, o[2].entered = false, 9*time.Second, 0 }, drawnOrder{}},
		"a latecomer passes":   {func(o drawOrder) { o[5].entered = -1 }, drawnOrder{late: 1}},
		"a wrong rank":         {func(o drawOrder) { o[3].rank = 2 }, drawnOrder{off: .4}},
		"no rank":              {func(o drawOrder) { o[0].rank, o[3].rank = 0, 0 }, drawnOrder{unshown: 1}},
		"no receipt":           {func(o drawOrder) { o[4].receipt = nil }, drawnOrder{forged: 1}},
	} {
		o := append(slices.Clone(drawn), late)
		c.change(o)
		c.want.first = 2
		if got := o.judge(record, 2); got != c.want {
			t.Errorf("%s: judged %+v, want %+v", name, got, c.want)
		}
	}
}
