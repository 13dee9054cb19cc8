package e2e

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/lab/sim"
	"vestibule/internal/lab/visitor"
	waitingpage "vestibule/internal/page"
)

// comer is a visitor of a crowd with a browser, or an app.
type comer struct {
	visitor.Visitor

	r     *crowdRoom
	h     *hall
	rng   *rand.Rand
	drawn fleettime.Time
	begin time.Time // start of the crowd
	page  bool      // a browser with the event stream, like page.js; otherwise an app that polls
	edge  int
	heard sim.Hearing
	place fleettime.Time // in the line, as last shown
	from  time.Duration  // start of the answers by which the forecasts are judged

	// In a draw.
	asked   time.Time // the newest request before its event
	receipt *draw.Receipt
	rank    int // as last shown; 0 for never
}

func (r *crowdRoom) comer(h *hall, rng *rand.Rand, begin time.Time, page bool) *comer {
	return &comer{
		Visitor: visitor.Visitor{
			Client: &http.Client{
				Transport: &http.Transport{MaxIdleConnsPerHost: 2, DisableCompression: true},
				Timeout:   40 * time.Second,
			},
			Host: r.name + ".example", Site: "X-Demo-Origin",
		},
		r: r, h: h, rng: rng, begin: begin, page: page, edge: rng.IntN(len(h.Edges)),
	}
}

func (p *comer) since() time.Duration { return time.Since(p.begin) }

// ask sends one request; inside reports that the site answered.
func (p *comer) ask(ctx context.Context, poll string) (n visitor.Shown, inside bool, err error) {
	if p.rng.IntN(5) == 0 { // a load balancer sends the next request elsewhere
		p.edge = p.rng.IntN(len(p.h.Edges))
	}
	if now := time.Now(); now.Before(p.r.begins) {
		p.asked = now
	}
	a, err := p.AskJSON(ctx, p.h.Edges[p.edge].URL+"/", poll)
	return a.Shown, a.Inside, err
}

// discard drops forecasts from before the newest change of the limits.
func (p *comer) discard() {
	if from := time.Duration(p.r.heard.Load()); from != p.from {
		p.from = from
		p.heard.Anew(from)
	}
}

// record records a shown state.
func (p *comer) record(n *visitor.Shown, answer bool) {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	p.discard()
	p.place = n.Standing()
	if d := &n.Draw; d.Receipt != nil {
		p.receipt, p.rank = d.Receipt, d.Place
	}
	t := sim.Telling{
		At: p.since(), Answer: answer, Known: n.WaitTimeKnown, Wait: seconds(n.WaitTimeSeconds),
		Low: seconds(n.WaitTimeLowSeconds), High: seconds(n.WaitTimeHighSeconds),
		Ahead: uint64(max(0, n.PeopleAhead)), Counting: n.Counting || n.PeopleAhead < 0, Next: n.State == "next",
		Longer: n.WaitTimeLonger,
	}
	for k, s := range n.WaitTimePercentileSeconds {
		t.Quartiles[k] = seconds(s)
	}
	p.heard.Hear(t)
}

// waitInside waits until the person is inside.
func (p *comer) waitInside(ctx context.Context) (joined, entered time.Duration, ok bool) {
	joined, p.place = p.since(), fleettime.TimeOf(time.Now())
	n, inside, err := p.ask(ctx, "")
	for err != nil && ctx.Err() == nil {
		pause(ctx, time.Second)
		n, inside, err = p.ask(ctx, "")
	}
	if err == nil && !inside {
		p.record(&n, true)
		if p.page {
			inside = p.watch(ctx, n)
		} else {
			inside = p.poll(ctx, n)
		}
	}
	p.discard()
	return joined, p.since(), inside && ctx.Err() == nil
}

// poll asks at the retry times, like an app.
func (p *comer) poll(ctx context.Context, n visitor.Shown) bool {
	for ctx.Err() == nil {
		pause(ctx, n.Retry())
		next, inside, err := p.ask(ctx, "")
		if inside {
			return true
		}
		if err == nil {
			n = next
			p.record(&n, true)
		}
	}
	return false
}

// watch follows page.js: it reads the event stream, computes its own position, and asks to keep the place and when
// the turn is near.
func (p *comer) watch(ctx context.Context, n visitor.Shown) bool {
	ctx, stop := context.WithCancel(ctx)
	casts := make(chan *waitingpage.Broadcast, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Stream(ctx, p.h.Edges[p.edge].URL, p.r.name, func(b *waitingpage.Broadcast) { // without it, the person polls
			select {
			case casts <- b:
			case <-ctx.Done():
			}
		})
	}()
	defer func() { stop(); <-done }()

	near, said, fresh := false, time.Time{}, "now"
	var due time.Time
	later := func(s float64) {
		if !near && n.State != "before" && time.Since(said) < 12*time.Second {
			s = max(s, 15+p.rng.Float64()*10)
		}
		due = time.Now().Add(time.Duration(s * float64(time.Second)))
	}
	if later(n.RetryAfterSeconds); n.Counting {
		later(1)
	}
	for {
		timer := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case b := <-casts:
			timer.Stop()
			said = time.Now()
			if s, ok := placed(b, &n); ok {
				n = s
				p.record(&n, false)
			}
			if b.Drawn > n.Standing() && b.Drawn != p.drawn { // the response has the drawn place
				p.drawn = b.Drawn
				if soon := time.Now().Add(time.Duration(p.rng.Float64() * float64(10*time.Second))); soon.Before(due) {
					due = soon
				}
			}
			was := near
			if near = isNear(b, &n); near && !was {
				later(.05 + p.rng.Float64()*.45)
			}
		case <-timer.C:
			sent := time.Now()
			next, inside, err := p.ask(ctx, fresh)
			switch {
			case err != nil:
				later(2)
				continue
			case inside || next.State == "entering" || next.State == "reload":
				for !inside && ctx.Err() == nil {
					if _, inside, err = p.ask(ctx, ""); err != nil {
						pause(ctx, time.Second)
					}
				}
				return inside
			}
			if !n.Counting && !next.WaitTimeLonger && !n.IsRandom() && n.PeopleAhead >= 0 {
				next.PeopleAhead = min(next.PeopleAhead, n.PeopleAhead)
				if n.WaitTimeKnown && next.WaitTimeKnown {
					next.WaitTimeSeconds = min(next.WaitTimeSeconds, n.WaitTimeSeconds)
					next.WaitTimeLowSeconds = min(next.WaitTimeLowSeconds, n.WaitTimeLowSeconds)
					next.WaitTimeHighSeconds = min(next.WaitTimeHighSeconds, n.WaitTimeHighSeconds)
				}
			}
			n = next
			p.record(&n, true)
			if fresh = "1"; n.Counting {
				fresh = "now"
			}
			if n.IsRandom() {
				near = n.RetryAfterSeconds < 4
			}
			if near && time.Since(sent) > 5*time.Second {
				later(.1)
			} else {
				later(n.RetryAfterSeconds)
			}
		}
	}
}

// placed returns the state that page.js shows after a message.
func placed(b *waitingpage.Broadcast, now *visitor.Shown) (visitor.Shown, bool) {
	v, joined := b.View, now.Standing()
	if v == nil || now.Counting || now.IsRandom() || now.PeopleAhead < 0 || now.State != "queued" && now.State != "next" ||
		b.Now < joined.Add(2*time.Second) { // visitors in front may be missing
		return *now, false
	}
	s := *now
	place := v.Place(joined, true)
	wait, ok := v.Wait(place)
	w, f := wait.Seconds(), 1.0
	if now.WaitTimeKnown {
		if f = min(1, w/now.WaitTimeSeconds); math.IsNaN(f) {
			f = 0
		}
	}
	s.State = "queued"
	if v.Next(joined, place) {
		s.State = "next"
	}
	s.PeopleAhead, s.WaitTimeKnown = min(now.PeopleAhead, int64(math.Round(max(0, place)))), ok
	if now.WaitTimeKnown {
		s.WaitTimeSeconds, s.WaitTimeLowSeconds, s.WaitTimeHighSeconds = f*now.WaitTimeSeconds, f*now.WaitTimeLowSeconds,
			f*now.WaitTimeHighSeconds
	} else {
		s.WaitTimeSeconds, s.WaitTimeLowSeconds, s.WaitTimeHighSeconds = w, w, w
	}
	return s, true
}

// isNear reports whether the turn is near.
func isNear(b *waitingpage.Broadcast, now *visitor.Shown) bool {
	if now.IsRandom() {
		return now.RetryAfterSeconds < 4
	}
	return b.View != nil && b.PausedBy == "" && now.Standing() <= max(b.View.Cutoff, b.View.Park)
}

// browse looks at a few pages.
func (p *comer) browse(ctx context.Context) {
	for p.rng.Float64() > 1/p.r.Pages {
		pause(ctx, time.Duration(p.rng.ExpFloat64()*float64(p.r.Think)))
		if _, inside, err := p.ask(ctx, ""); ctx.Err() != nil || err == nil && !inside {
			return // the session has expired: the person leaves
		}
	}
}
