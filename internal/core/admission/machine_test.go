package admission

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// machine is an edge between visitors that copy, replay and lose their tickets and a regional whose grants arrive
// late, twice, out of order or not at all, next to a twin that keeps lists and compares.
type machine struct {
	e    *Engine
	cap  bool
	now  fleettime.Mono
	here bool // the room is in the room set

	cookies []ticket.Ticket
	held    []*Visit

	// The regional's ledger.
	term       wire.Term
	seq        uint64
	report     wire.Report
	joined     bool
	leaseEpoch uint64
	granted    wire.RoomGrant
	sent       []wire.Grant // in flight, and kept for duplicates

	// The twin. Its counts restart with a new instance.
	instance uint64
	newest   map[uint64]uint32 // by ticket: newest stamped second
	counts   map[uint32]wire.Expiry
	folded   int64 // seconds up to here may be reported together
	spent    uint64
	renewed  uint64
	admitted []admission
	mark     fleettime.Time // highest watermark sent
	lapsed   map[[2]uint64]bool
	was      wire.RoomReport // last report under instance
}

type admission struct {
	at         fleettime.Mono
	instance   uint64
	leaseEpoch uint64
}

func newMachine(t *rapid.T) *machine {
	m := &machine{
		cap: rapid.Bool().Draw(t, "cap"), now: at(0), here: true,
		term: wire.Term{N: 1, Nonce: 7}, leaseEpoch: 1,
		granted: wire.RoomGrant{
			Room:    sale,
			Life:    wire.Life(rapid.SampledFrom([]time.Duration{5, 20, 60}).Draw(t, "session") * time.Second),
			Permits: wire.Permits{Sessions: wire.Allocation{Keep: 5}, Rate: wire.Allocation{Keep: 5}},
		},
		newest: map[uint64]uint32{}, lapsed: map[[2]uint64]bool{},
	}
	m.e = New(Config{
		Edge: "edge-1", DC: "nairobi", Params: wire.DefaultParams(), Limits: Limits{Held: 3, Recent: 1 << 20},
		Rand: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2)),
	})
	m.e.SetRooms(m.now, []Room{{ID: sale, Cap: m.cap}})
	m.begin()
	return m
}

// begin resets the twin's counts for a new instance.
func (m *machine) begin() {
	m.instance = m.e.Status(m.now).Instance
	m.counts, m.spent, m.renewed, m.was = map[uint32]wire.Expiry{}, 0, 0, wire.RoomReport{}
}

func (m *machine) count(until uint32, stamped, consumed uint64) {
	c := m.counts[until]
	c.Until, c.Stamped, c.Consumed = until, c.Stamped+stamped, c.Consumed+consumed
	m.counts[until] = c
}

// took compares the decision for a ticket with the counters before and after it.
func (m *machine) took(t *rapid.T, brought ticket.Ticket, d Decision, before Ledger, status Status) {
	after := m.e.Ledger(m.now, sale)
	switch after.Spent - before.Spent {
	case 0:
		if d.Verdict == Admit {
			t.Fatal("admitted without charging")
		}
	case 1:
		if d.Verdict != Admit || !status.Leased || !status.Sure || before.Credit() == 0 || before.RateIdle == 0 || !m.here {
			t.Fatalf("%v with %+v under %+v, room there: %v", d.Verdict, before, status, m.here)
		}
		m.spent++
		m.count(d.Ticket.Until, 1, 0)
		m.admitted = append(m.admitted, admission{m.now, status.Instance, status.LeaseEpoch})
	default:
		t.Fatalf("charged %d for one request", after.Spent-before.Spent)
	}
	switch after.Renewed - before.Renewed {
	case 0:
	case 1:
		if d.Verdict != Serve || !status.Sure && (m.cap || status.Leased) {
			t.Fatalf("renewed by %v, sure %v", d.Verdict, status.Sure)
		}
		if status.Leased && before.Renewed >= before.RenewCeil || !status.Leased && m.cap {
			t.Fatalf("renewed above the promise: %+v, leased %v", before, status.Leased)
		}
		m.renewed++
		from := m.newest[d.Ticket.ID]
		if brought.ID == d.Ticket.ID { // otherwise it was presented in another network, with a session there
			from = max(from, brought.Until)
		}
		m.count(from, 0, 1)
		m.count(d.Ticket.Until, 1, 0)
	default:
		t.Fatalf("renewed %d times for one request", after.Renewed-before.Renewed)
	}
	if !d.Enters() {
		return
	}
	if ticket.Elsewhere(d.Ticket.ID, d.Ticket.Net, brought.Network) {
		t.Fatalf("%v in network %d with %+v", d.Verdict, brought.Network, d.Ticket)
	}
	if brought.IsAdmitted() && brought.ID == d.Ticket.ID && brought.Net != d.Ticket.Net {
		t.Fatalf("bound to %#x, was %#x", d.Ticket.Net, brought.Net)
	}
	if d.Ticket.ID == brought.ID && d.Ticket.Until < brought.Until {
		t.Fatalf("the session was shortened from %d to %d", brought.Until, d.Ticket.Until)
	}
	if d.Ticket.ID != brought.ID || d.Ticket.Until > brought.Until {
		m.newest[d.Ticket.ID] = max(m.newest[d.Ticket.ID], d.Ticket.Until)
	}
	duration := time.Duration(m.granted.Life) * time.Second * 10 / 11
	may := status.Leased && status.Sure && before.Life != 0 && before.Renewed < before.RenewCeil
	if left := fleettime.Time(int64(d.Ticket.Until) * 1000).Sub(status.Time); (may || d.Verdict == Admit) &&
		left < duration {
		t.Fatalf("%v leaves a session of %v, want %v", d.Verdict, left, duration)
	}
}

func (m *machine) arrive(t *rapid.T) {
	var brought ticket.Ticket
	if n := len(m.cookies); n > 0 && rapid.IntRange(0, 3).Draw(t, "cookie") > 0 {
		brought = m.cookies[rapid.IntRange(0, n-1).Draw(t, "which")]
	}
	brought.Network = ticket.Network(rapid.SampledFrom([]uint64{0, 2, 2, 2, 4, 3}).Draw(t, "network"))
	before, status := m.e.Ledger(m.now, sale), m.e.Status(m.now)
	d := m.e.Arrive(m.now, sale, brought)
	m.took(t, brought, d, before, status)
	if d.Enters() && brought.ID != 0 && d.Ticket.ID == brought.ID {
		// The response is lost and the same ticket comes again: charged once.
		before := m.e.Ledger(m.now, sale)
		again := m.e.Arrive(m.now, sale, brought)
		if again.Fresh == Copied && d.Reason == Repeated {
			return // one more violation
		}
		after := m.e.Ledger(m.now, sale)
		after.Copied = before.Copied // it may be one too many
		if again.Verdict != Serve || again.Ticket.Until != d.Ticket.Until || after != before {
			t.Fatalf("again: %v until %d, was %v until %d", again.Verdict, again.Ticket.Until, d.Verdict, d.Ticket.Until)
		}
	}
	if d.Verdict == Hold {
		v := &Visit{Room: sale, Ticket: d.Ticket}
		m.e.Rooms.Hold(m.now, v)
		m.held = append(m.held, v)
		if len(m.held) > 3 {
			t.Fatalf("%d are held", len(m.held))
		}
	}
	if d.Reseal && d.Ticket.ID != 0 {
		m.cookies = append(m.cookies, d.Ticket)
		if len(m.cookies) > 30 {
			m.cookies = m.cookies[1:]
		}
	}
}

// release makes Release decide, one visit at a time, and checks the order.
func (m *machine) release(t *rapid.T) {
	before, status := m.e.Ledger(m.now, sale), m.e.Status(m.now)
	out := m.e.Rooms.Release(m.now, nil)
	after := m.e.Ledger(m.now, sale)
	admits := uint64(0)
	for i, v := range out {
		if i > 0 && byJoining(out[i-1], v) > 0 {
			t.Fatal("released out of order")
		}
		for j, h := range m.held {
			if h == v {
				m.held = append(m.held[:j:j], m.held[j+1:]...)
				break
			}
		}
		d := v.Decision
		if d.Fresh == Elsewhere && d.Verdict == Queue && d.Ticket.ID != v.Ticket.ID {
			continue // another request was admitted, in another network
		}
		if d.Fresh == Underway || d.Fresh == Copied {
			continue // another request was admitted, with another version of the place
		}
		if !d.Enters() || !status.Leased || !status.Sure {
			t.Fatalf("released %v under %+v", d.Verdict, status)
		}
		if d.Verdict == Admit {
			admits++
			m.spent++
			m.count(d.Ticket.Until, 1, 0)
			m.admitted = append(m.admitted, admission{m.now, status.Instance, status.LeaseEpoch})
		} else if stamp := m.newest[d.Ticket.ID]; d.Ticket.Until > stamp { // it was renewed in flight
			m.renewed++
			m.count(stamp, 0, 1)
			m.count(d.Ticket.Until, 1, 0)
		}
		m.newest[d.Ticket.ID] = d.Ticket.Until
		m.cookies = append(m.cookies, d.Ticket)
	}
	if after.Spent-before.Spent != admits || admits > before.Credit() || admits > before.RateIdle ||
		(admits > 0 && !m.here) {
		t.Fatalf("%d admitted from %+v, charged %d", admits, before, after.Spent-before.Spent)
	}
	if after.Held != len(m.held) {
		t.Fatalf("%d held, want %d", after.Held, len(m.held))
	}
}

func (m *machine) giveUp(t *rapid.T) {
	if len(m.held) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.held)-1).Draw(t, "who")
	v := m.held[i]
	m.held = append(m.held[:i:i], m.held[i+1:]...)
	if !m.e.Rooms.GiveUp(m.now, v) || v.Decision.Verdict != Queue || v.Decision.Ticket.Joined != v.Ticket.Joined {
		t.Fatalf("%+v", v.Decision)
	}
}

// hear receives a report and compares it with the twin.
func (m *machine) hear(t *rapid.T) {
	rep := m.e.Report(m.now)[0]
	if rep.Instance != m.instance {
		t.Fatal("another instance reports")
	}
	if m.report.Instance == rep.Instance && rep.Seq <= m.report.Seq {
		t.Fatalf("report %d after %d", rep.Seq, m.report.Seq)
	}
	if rep.AsOf < m.report.AsOf {
		t.Fatalf("fleet time went back from %v to %v", m.report.AsOf, rep.AsOf)
	}
	m.report = rep
	if !m.e.Status(m.now).Leased { // old seconds are reported as one
		m.folded = max(m.folded, rep.AsOf.Second()-keptAlone)
	}
	for _, r := range rep.Rooms {
		if r.Spent != m.spent || r.Renewed != m.renewed {
			t.Fatalf("%d spent and %d renewed, want %d and %d", r.Spent, r.Renewed, m.spent, m.renewed)
		}
		if r.Spent < m.was.Spent || r.Permits.Sessions.Returned < m.was.Permits.Sessions.Returned ||
			r.Renewed < m.was.Renewed || r.Permits.Sessions.Granted < m.was.Permits.Sessions.Granted ||
			r.Joined < m.was.Joined || r.Admitted < m.was.Admitted || r.FirstMove < m.was.FirstMove {
			t.Fatalf("a counter fell from %+v to %+v", m.was, r)
		}
		m.was = r
		if rep.Final && (r.Permits.Sessions.Granted != r.Spent+r.Permits.Sessions.Returned || r.RateIdle != 0) {
			t.Fatalf("final, and yet in hand: %+v", r)
		}
		reported := map[uint32]bool{}
		for _, c := range r.Sessions {
			reported[c.Until] = true
			if m.counts[c.Until] != c && int64(c.Until) > m.folded {
				t.Fatalf("second %d: %+v, want %+v", c.Until, c, m.counts[c.Until])
			}
		}
		for until, c := range m.counts {
			if !reported[until] && int64(until) > m.folded && fleettime.Time(int64(until)*1000).Add(fleettime.Guard) > m.mark {
				t.Fatalf("second %d is not reported: %+v", until, c)
			}
		}
		owed := uint64(0)
		for _, a := range m.admitted {
			if (a.instance != rep.Instance || a.leaseEpoch != rep.LeaseEpoch) && m.now.Sub(a.at) < wire.RateWindow {
				owed++
			}
		}
		if r.RateOwed < owed {
			t.Fatalf("%d permits of R are owed from earlier lease epochs, want at least %d", r.RateOwed, owed)
		}
	}
	if rep.Seen == m.term && rep.Join {
		m.joined = true
	}
}

// answer writes a grant for the last report.
func (m *machine) answer(t *rapid.T) {
	if m.report.Instance != m.instance {
		return
	}
	m.seq++
	g := wire.Grant{
		To: "edge-1", Instance: m.instance, From: m.term, Seq: m.seq, Parts: 1, Acked: m.report.Seq, Echo: m.report.Sent,
		Dwell: m.now.Sub(m.report.Sent), At: day + fleettime.Time(m.now/1e6), LeaseEpoch: m.leaseEpoch,
	}
	if !m.joined {
		g.Handshake = wire.Promise
		m.sent = append(m.sent, g)
		return
	}
	switch rapid.IntRange(0, 60).Draw(t, "verdict") {
	case 0:
		g.Handshake = wire.Dead
	case 1:
		g.Handshake = wire.Fenced
	default:
		if m.report.Final && m.report.LeaseEpoch == m.leaseEpoch {
			m.leaseEpoch++
			m.granted.Permits.Rate.Granted = 0
			g.LeaseEpoch = m.leaseEpoch
		}
		m.granted.Permits.Sessions.Granted += rapid.Uint64Range(0, 3).Draw(t, "permits of T")
		m.granted.Permits.Rate.Granted += rapid.Uint64Range(0, 3).Draw(t, "permits of R")
		m.granted.RenewCeil = max(m.granted.RenewCeil, m.report0().Renewed+rapid.Uint64Range(0, 4).Draw(t, "renewals"))
		m.granted.Permits.Sessions.Keep = rapid.Uint64Range(0, 5).Draw(t, "keep")
		if rapid.IntRange(0, 3).Draw(t, "view") == 0 {
			g.Watermark = max(m.mark, m.report.AsOf)
			m.mark = max(m.mark, g.Watermark)
		}
		g.Lease = 3 * time.Second
		g.Rooms = []wire.RoomGrant{m.granted}
		if rapid.IntRange(0, 3).Draw(t, "view") == 0 {
			now := m.e.Clock.Time(m.now)
			g.Rooms[0].View = view(10, now-fleettime.Time(rapid.Int64Range(-1000, 10_000).Draw(t, "cutoff")), now)
		}
	}
	m.sent = append(m.sent, g)
}

func (m *machine) report0() wire.RoomReport {
	if len(m.report.Rooms) > 0 {
		return m.report.Rooms[0]
	}
	return m.was
}

// deliver delivers any earlier grant again.
func (m *machine) deliver(t *rapid.T) {
	if len(m.sent) == 0 {
		return
	}
	i := len(m.sent) - 1
	if rapid.IntRange(0, 5).Draw(t, "late") == 1 {
		i = rapid.IntRange(0, i).Draw(t, "which")
	}
	g := m.sent[i]
	before := m.e.Status(m.now)
	m.e.Apply(m.now, g)
	after := m.e.Status(m.now)
	if after.Follows.N < before.Follows.N {
		t.Fatal("went back to a lower term")
	}
	if after.Instance != before.Instance {
		if g.Handshake != wire.Dead || g.Instance != before.Instance || g.From != after.Follows {
			t.Fatalf("began a new instance after %+v", g)
		}
		m.begin()
		m.joined, m.leaseEpoch = false, 1
		m.granted.Permits.Sessions.Granted, m.granted.Permits.Rate.Granted, m.granted.RenewCeil = 0, 0, 0
	}
	// A duplicate has no effect.
	ledger := m.e.Ledger(m.now, sale)
	m.e.Apply(m.now, g)
	if got := m.e.Ledger(m.now, sale); got != ledger || m.e.Status(m.now) != after {
		t.Fatalf("a double of %+v changed %+v to %+v", g, ledger, got)
	}
}

func (m *machine) promote(t *rapid.T) {
	m.term = wire.Term{N: m.term.N + 1, Nonce: rapid.Uint64().Draw(t, "nonce")}
	m.seq, m.joined = 0, false
}

func (m *machine) check(t *rapid.T) {
	l, st := m.e.Ledger(m.now, sale), m.e.Status(m.now)
	if l.Returned+l.Spent > l.Granted || l.Granted > m.granted.Permits.Sessions.Granted {
		t.Fatalf("%d returned and %d spent of %d, lent %d", l.Returned, l.Spent, l.Granted,
			m.granted.Permits.Sessions.Granted)
	}
	if m.cap && l.Renewed > l.RenewCeil || l.RenewCeil > m.granted.RenewCeil {
		t.Fatalf("%d renewed, may %d, granted %d", l.Renewed, l.RenewCeil, m.granted.RenewCeil)
	}
	used := uint64(0)
	for _, a := range m.admitted {
		if a.instance == st.Instance && a.leaseEpoch == st.LeaseEpoch && m.now.Sub(a.at) < wire.RateWindow {
			used++
		}
	}
	if used+l.RateReturned+l.RateIdle > l.RateGranted {
		t.Fatalf("%d permits of R used in a minute, %d idle, %d returned, of %d", used, l.RateIdle, l.RateReturned,
			l.RateGranted)
	}
	key := [2]uint64{st.Instance, st.LeaseEpoch}
	if st.Leased && (m.lapsed[key] || m.now >= st.LeaseEnd) {
		t.Fatalf("leased until %v at %v, lapsed before: %v", st.LeaseEnd, m.now, m.lapsed[key])
	}
	if st.LeaseEnd != 0 && !st.Leased {
		m.lapsed[key] = true
	}
	if len(stateOf(m.e).account.moves.list) > int(m.spent+m.renewed) {
		t.Fatalf("%d moves of %d", len(stateOf(m.e).account.moves.list), m.spent+m.renewed)
	}
}

func TestAnEdgeKeepsItsPromisesWhateverComes(t *testing.T) {
	var admitted, renewed, leaseEpochs int
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		for range 3 {
			m.hear(t)
			m.answer(t)
			m.deliver(t)
		}
		for range rapid.IntRange(20, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 24).Draw(t, "do") {
			case 0, 1, 2, 3, 4, 5, 6, 7, 8:
				m.arrive(t)
			case 9, 10, 11, 12, 13, 14, 15: // an exchange, the most frequent step
				m.hear(t)
				m.answer(t)
				m.deliver(t)
				m.release(t)
			case 16:
				m.hear(t)
			case 17:
				m.answer(t)
			case 18:
				m.deliver(t)
			case 19:
				m.release(t)
			case 20:
				m.giveUp(t)
			case 21:
				if rapid.IntRange(0, 3).Draw(t, "which") == 0 {
					m.promote(t)
				}
			case 22:
				if rapid.IntRange(0, 3).Draw(t, "which") == 0 {
					m.e.Lapse(m.now)
				}
			case 23:
				if m.here && rapid.IntRange(0, 2).Draw(t, "which") > 0 {
					break
				}
				m.here = !m.here
				var rooms []Room
				if m.here {
					rooms = []Room{{ID: sale, Cap: m.cap}}
				}
				m.e.SetRooms(m.now, rooms)
			case 24:
				m.now = m.now.Add(time.Duration(rapid.SampledFrom([]int64{4, 30, 61}).Draw(t, "long")) * time.Second)
			}
			m.check(t)
			m.now = m.now.Add(time.Duration(rapid.Int64Range(0, 1000).Draw(t, "ms")) * time.Millisecond)
			m.check(t)
		}
		admitted += len(m.admitted)
		renewed += int(m.renewed)
		leaseEpochs += len(m.lapsed)
	})
	// The test must not pass with an idle edge.
	if admitted < 100 || renewed < 10 || leaseEpochs < 50 {
		t.Errorf("only %d admitted, %d renewed, %d leases lapsed", admitted, renewed, leaseEpochs)
	}
	t.Logf("%d admitted, %d renewed, %d leases lapsed", admitted, renewed, leaseEpochs)
}
