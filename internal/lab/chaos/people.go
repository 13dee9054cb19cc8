//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/visitor"
)

// crowdOfPeople are all visitors.
type crowdOfPeople struct {
	d    *deployment
	life time.Duration // of a ticket

	waits atomic.Int64 // waiting answers

	scripts, scriptless atomic.Int64 // asked for by pages, and not answered

	unopened atomic.Int64 // tickets that no node's keys open

	mu     sync.Mutex
	stays  []*stay
	newest map[string][]time.Duration // admission times, by data centre
	keys   ticket.Keyring             // all that edges have had
}

// invite starts the visitors of a run, each within 10 s. They keep visiting until come ends: with ctx, or by home,
// which returns once all have left.
func (d *deployment) invite(ctx context.Context) (people *crowdOfPeople, come context.Context, home func()) {
	people = &crowdOfPeople{d: d, life: d.o.session*11/10 + 2*time.Second, newest: map[string][]time.Duration{}}
	come, stop := context.WithCancel(ctx)
	var crowd sync.WaitGroup
	for i := range d.o.visitors {
		p := people.person(d.o.seed, i)
		crowd.Go(func() {
			p.pause(come, 0, 10*time.Second)
			p.live(come)
		})
	}
	return people, come, func() { stop(); crowd.Wait() }
}

// entered returns the number of admissions in a data centre since a time.
func (c *crowdOfPeople) entered(dc string, since time.Duration) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, at := range c.newest[dc] {
		if at > since {
			n++
		}
	}
	return n
}

// drought returns the longest time without admissions in a data centre.
func (c *crowdOfPeople) drought(dc string, from, to time.Duration) (longest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := from
	for _, at := range append(slices.Clone(c.newest[dc]), to) {
		if at >= from && at <= to {
			longest = max(longest, at-last)
			last = at
		}
	}
	return longest
}

func (c *crowdOfPeople) enters(dc string, at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest[dc] = append(c.newest[dc], at)
}

// newStay begins a stay; only its visitor touches it until the run is over.
func (c *crowdOfPeople) newStay() (int, *stay) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &stay{}
	c.stays = append(c.stays, s)
	return len(c.stays) - 1, s
}

// end returns the end of the session by the ticket that an edge has set, 0 for none. The cookie may outlive the ticket:
// its Max-Age does not tell.
func (c *crowdOfPeople) end(e *node, set *http.Cookie) time.Duration {
	if set == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var t ticket.Ticket
	for _, n := range append([]*node{nil, e}, c.d.of("edge", "")...) {
		if n != nil {
			keys, err := n.keys()
			if err != nil {
				continue // the folder of a killed edge may be gone
			}
			for _, k := range keys {
				if !slices.ContainsFunc(c.keys.Keys, func(o ticket.Key) bool { return o.ID == k.ID }) {
					c.keys.Keys = append(c.keys.Keys, k)
				}
			}
		}
		codec, err := ticket.NewCodec(c.keys, room.IDOf(shop), set.Name)
		if err == nil && codec.Open(&t, set.Value, &ticket.Scratch{}) == nil {
			if !t.IsAdmitted() {
				return 0
			}
			return time.Unix(int64(t.Until), 0).Sub(c.d.zero)
		}
	}
	c.unopened.Add(1)
	return 0
}

// person is a visitor with a browser that keeps cookies and connections.
type person struct {
	visitor.Visitor

	c    *crowdOfPeople
	rng  *rand.Rand
	home string
	edge *node

	id   int
	stay *stay
}

func (c *crowdOfPeople) person(seed uint64, n int) *person {
	t := &http.Transport{
		MaxIdleConnsPerHost: 2, IdleConnTimeout: 45 * time.Second,
		DialContext: (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
	}
	return &person{
		Visitor: visitor.Visitor{
			Client: &http.Client{Transport: t, Timeout: 40 * time.Second}, Host: host,
			Site: siteHeader,
		},
		c: c, rng: rand.New(rand.NewPCG(seed, uint64(n))),
	}
}

// live visits, waits, browses, leaves and returns, until ctx ends.
func (p *person) live(ctx context.Context) {
	defer p.Client.CloseIdleConnections()
	for ctx.Err() == nil {
		p.Forget()
		p.home = p.somewhere()
		p.edge = nil
		p.visit(ctx)
		p.pause(ctx, time.Second, 15*time.Second)
	}
}

// visit is a whole visit, from the first request until the visitor leaves.
func (p *person) visit(ctx context.Context) {
	p.id, p.stay = p.c.newStay()
	var sure time.Duration // certain end of the session
	left := 2 + p.rng.IntN(5)
	for ctx.Err() == nil {
		if !p.choose(sure > 0) {
			p.pause(ctx, 50*time.Millisecond, 300*time.Millisecond)
			continue
		}
		r, retry := p.ask(ctx, p.impatient(sure > 0))
		now := p.c.d.since()
		switch r.outcome {
		case page:
			if sure == 0 {
				p.c.enters(p.edge.place, now)
			}
			if r.until > 0 {
				sure = r.until
			}
			if left--; left <= 0 {
				if p.rng.IntN(4) == 0 {
					p.comeBack(ctx)
					sure, left = 0, 2+p.rng.IntN(5)
					continue
				}
				return
			}
			if p.rng.IntN(10) == 0 {
				p.burst(ctx)
			}
			p.pause(ctx, 300*time.Millisecond, 3*time.Second)
		case waiting:
			p.c.waits.Add(1)
			if sure > 0 { // the session has ended: another stay begins
				p.id, p.stay = p.c.newStay()
				sure = 0
			}
			if p.rng.IntN(20) == 0 {
				return // abandons
			}
			p.pause(ctx, retry, retry+time.Second)
		case failed:
			p.edge = nil
			p.pause(ctx, 50*time.Millisecond, 300*time.Millisecond)
		}
		// No request is sent with a ticket of uncertain validity: the visitor leaves, and returns when it has certainly
		// expired.
		if sure > 0 && now > sure-3*time.Second {
			p.comeBack(ctx)
			sure, left = 0, 2+p.rng.IntN(5)
		}
	}
}

// comeBack returns with the old cookies, once they have expired.
func (p *person) comeBack(ctx context.Context) {
	p.pause(ctx, p.c.life+3*time.Second, p.c.life+6*time.Second)
	p.id, p.stay = p.c.newStay()
}

// choose keeps the edge, mostly. It reports false if there is no edge, as while all pods are replaced.
func (p *person) choose(in bool) bool {
	if other := p.rng.IntN(100); other < 3 || other < 6 && !in {
		p.home = p.somewhere()
		p.edge = nil
	} else if other < 12 {
		p.edge = nil
	}
	if p.edge != nil && p.edge.up.Load() {
		return true
	}
	var near, far []*node
	edges := p.c.d.of("edge", "")
	for _, e := range edges {
		switch {
		case !e.up.Load():
		case e.place == p.home:
			near = append(near, e)
		default:
			far = append(far, e)
		}
	}
	if len(near) == 0 {
		near = far
	}
	if len(near) == 0 {
		near = edges
	}
	if len(near) == 0 {
		return false
	}
	p.edge = near[p.rng.IntN(len(near))]
	return true
}

// somewhere returns a data centre.
func (p *person) somewhere() string {
	dcs := p.c.d.serving()
	return dcs[p.rng.IntN(len(dcs))]
}

// impatient returns the timeout of the visitor, 0 for the default of browsers.
func (p *person) impatient(in bool) time.Duration {
	if !in && p.rng.IntN(20) == 0 {
		return time.Second + time.Duration(p.rng.Int64N(int64(5*time.Second)))
	}
	return 0
}

// ask requests a page and records the result. It returns the retry time of a waiting page too.
func (p *person) ask(ctx context.Context, patience time.Duration) (r request, retry time.Duration) {
	own, cancel := ctx, context.CancelFunc(func() {})
	if patience > 0 {
		own, cancel = context.WithTimeout(ctx, patience)
	}
	defer cancel()
	r, retry = p.send(p.next(own, len(p.stay.requests), p.edge))
	p.stay.requests = append(p.stay.requests, r)
	return r, retry
}

// burst requests the subresources of a page: several parallel requests with the same cookies, at all edges of the data
// centre.
func (p *person) burst(ctx context.Context) {
	var all sync.WaitGroup
	var asked []pending
	for _, e := range p.c.d.of("edge", "") {
		if e.place == p.edge.place && e.up.Load() {
			for range 2 {
				asked = append(asked, p.next(ctx, len(p.stay.requests)+len(asked), e))
			}
		}
	}
	results := make([]request, len(asked))
	for i := range asked {
		all.Go(func() { results[i], _ = p.send(asked[i]) })
	}
	all.Wait()
	p.stay.requests = append(p.stay.requests, results...)
}

// pending is a request that is not sent yet.
type pending struct {
	edge *node
	req  *http.Request
	err  error
}

// next returns the n-th request of the stay, with the present cookies.
func (p *person) next(ctx context.Context, n int, e *node) pending {
	req, err := p.Request(ctx, text(&e.url)+"/")
	if err != nil {
		return pending{e, nil, err}
	}
	req.Header.Set(requestHeader, requestID(p.id, n))
	if p.HasTicket() && p.id%4 != 0 { // like the waiting page's script; every fourth browser has no script
		req.Header.Set("Accept", "application/json")
	}
	return pending{e, req, nil}
}

// send sends a request. It returns its record, and the retry time of a waiting page.
func (p *person) send(q pending) (r request, retry time.Duration) {
	r = request{edge: q.edge.number, sent: p.c.d.since()}
	var a visitor.Answer
	err := q.err
	if err == nil {
		a, err = p.Do(q.req)
	}
	r.received = p.c.d.since()
	switch {
	case a.Inside:
		r.outcome, r.until = page, p.c.end(q.edge, a.Cookie)
	case a.Waiting():
		r.outcome, r.joined = waiting, a.Shown.JoinedAt
	case a.Status != 0:
		r.detail = fmt.Sprintf("status %d", a.Status)
	default:
		r.detail = plain(err)
	}
	if strings.HasPrefix(a.Script, "/") {
		p.script(q.req.Context(), a.Script)
	}
	r.gaveUp = r.outcome == failed && q.req != nil && q.req.Context().Err() != nil
	return r, a.Retry
}

// script asks for the script of a page at any edge of the data centre, as a browser behind a load balancer does.
func (p *person) script(ctx context.Context, path string) {
	edges := slices.DeleteFunc(p.c.d.of("edge", ""), func(e *node) bool { return e.place != p.edge.place || !e.up.Load() })
	if len(edges) == 0 {
		return
	}
	e := edges[rand.IntN(len(edges))]
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, text(&e.url)+path, http.NoBody)
	if err != nil {
		return
	}
	req.Host = p.Host
	res, err := p.Client.Do(req)
	if err != nil {
		return // the edge ends just now, and a browser asks another
	}
	_, err = io.Copy(io.Discard, res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return
	}
	p.c.scripts.Add(1)
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/javascript") {
		p.c.scriptless.Add(1)
	}
}

// requestID identifies a request of a stay.
func requestID(stay, request int) string { return fmt.Sprintf("%d.%d", stay, request) }

// plain returns an error's text without addresses, so that equal ones can be counted.
func plain(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		words := strings.Split(op.Err.Error(), ": ")
		return op.Op + ": " + words[len(words)-1]
	}
	words := strings.Split(err.Error(), ": ")
	return words[len(words)-1]
}

func (p *person) pause(ctx context.Context, from, to time.Duration) {
	sleep(ctx, from+time.Duration(p.rng.Int64N(int64(to-from))))
}
