package allinone

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
)

// BenchmarkFreedSlot measures how long a free permit waits until the next visitor is inside: a tree of two data
// centres with two edges each, 50 permits and 300 waiting visitors, with the page's script or without scripts.
// Permits are freed by visitors that leave, each a few seconds after entering, or by expiry.
//
// The n-th admission of a waiting visitor is compared with the n-th freed permit. A permit is free once the
// departure was answered, or the ticket has expired.
func BenchmarkFreedSlot(b *testing.B) {
	for _, way := range []struct {
		name   string
		script bool
		leave  bool
	}{
		{"stream/leaving", true, true},
		{"stream/expiry", true, false},
		{"polling/leaving", false, true},
		{"polling/expiry", false, false},
	} {
		b.Run(way.name, func(b *testing.B) {
			s := &sale{script: way.script, leave: way.leave}
			for b.Loop() {
				s.run(b)
			}
			slices.Sort(s.took)
			at := func(q float64) float64 { return s.took[int(q*float64(len(s.took)-1))].Seconds() }
			b.ReportMetric(float64(len(s.took)), "slots")
			b.ReportMetric(at(.5), "s-p50")
			b.ReportMetric(at(.99), "s-p99")
			b.ReportMetric(at(1), "s-worst")
			if !s.script {
				b.ReportMetric(at(.99)/wire.DefaultParams().Refresh.Seconds(), "refreshes-p99")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

const (
	slots = 50
	queue = 300
)

// sale is a full room with a queue.
type sale struct {
	script, leave bool
	urls          []string
	client        http.Client // without cookies

	mu       sync.Mutex
	free, in []time.Time
	took     []time.Duration
}

func (s *sale) run(b *testing.B) {
	o := Options{
		DataCenters: []string{"nairobi", "dublin"}, Edges: 2, Listen: "127.0.0.1:0", DataDir: b.TempDir(),
		Params:           wire.DefaultParams(),
		TotalActiveUsers: slots, NewUsersPerMinute: 100_000, SessionDuration: 10 * time.Minute,
		Log: slog.New(slog.DiscardHandler),
	}
	if !s.leave {
		o.SessionDuration = 5 * time.Second
	}
	tree := testkit.Must(Start(o))(b)
	defer func() {
		if err := tree.Stop(); err != nil {
			b.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	testkit.NoError(b, tree.WaitReady(ctx))
	s.urls, s.free, s.in = nil, nil, nil
	for _, e := range tree.Info.Edges {
		s.urls = append(s.urls, e.URL)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: slots + queue}
	defer transport.CloseIdleConnections()
	s.client.Transport = transport

	var people sync.WaitGroup
	defer people.Wait() // after all were told to end
	defer cancel()
	failed := make(chan error, slots+queue)
	come := func(i int, play func(p *person) error) {
		people.Go(func() {
			p, err := s.person(ctx, i)
			if err == nil {
				err = play(p)
			}
			if err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	full := make(chan struct{}) // there is a queue
	var inside sync.WaitGroup
	inside.Add(slots)
	for i := range slots {
		come(i, func(p *person) error {
			if err := p.enter(); err != nil {
				return err
			}
			inside.Done()
			return p.stay(full)
		})
	}
	inside.Wait()
	var done sync.WaitGroup
	done.Add(queue)
	for i := range queue {
		come(i, func(p *person) error {
			if err := p.enter(); err != nil {
				return err
			}
			s.mu.Lock()
			s.in = append(s.in, time.Now())
			s.mu.Unlock()
			done.Done()
			return p.stay(nil)
		})
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	counted := func() bool {
		for _, l := range tree.ledgers() {
			if l.View == nil || l.View.Line.Total() < .98*queue {
				return false
			}
		}
		return true
	}
	for !counted() {
		select {
		case <-tick.C:
		case err := <-failed:
			b.Fatal(err)
		case <-ctx.Done():
			b.Fatal("there is no line")
		}
	}
	close(full)
	all := make(chan struct{})
	go func() { done.Wait(); close(all) }()
	select {
	case <-all:
	case err := <-failed:
		b.Fatal(err)
	case <-ctx.Done():
		b.Fatalf("%d of %d came in", len(s.in), queue)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.free, time.Time.Compare)
	slices.SortFunc(s.in, time.Time.Compare)
	for i, in := range s.in {
		s.took = append(s.took, in.Sub(s.free[i]))
	}
}

// person is one visitor with a browser.
type person struct {
	*sale
	http.Client
	ctx    context.Context
	url    string
	rng    *rand.Rand
	joined time.Time
	until  time.Time // expiry of the ticket
}

func (s *sale) person(ctx context.Context, i int) (*person, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	return &person{
		sale: s, Client: http.Client{Transport: s.client.Transport, Jar: jar}, ctx: ctx, url: s.urls[i%len(s.urls)],
		rng: rand.New(rand.NewPCG(uint64(i), 7)),
	}, nil
}

// news is the state of a waiting visitor.
type news struct {
	State  string    `json:"state"`
	Retry  int       `json:"retryAfterSeconds"`
	Joined time.Time `json:"joinedAt"`
}

// ask requests the page, or, as a poll, the state.
func (p *person) ask(poll bool) (n news, inside bool, err error) {
	r, err := http.NewRequestWithContext(p.ctx, http.MethodGet, p.url+"/", http.NoBody)
	if err != nil {
		return n, false, err
	}
	r.Header.Set("Accept", "application/json")
	if poll {
		r.Header.Set("Vestibule-Poll", "1")
	}
	resp, err := p.Do(r)
	if err != nil {
		return n, false, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return n, false, err
	}
	for _, c := range resp.Cookies() {
		if c.Name != ticket.CookieName("demo", false) {
			continue // of the site
		}
		p.until = time.Unix(time.Now().Unix()+int64(c.MaxAge), 0)
	}
	if resp.Header.Get("X-Demo-Origin") != "" {
		return n, true, nil
	}
	said := struct {
		Vestibule *news `json:"vestibule"`
	}{&n}
	if err := json.Unmarshal(data, &said); err != nil {
		return n, false, fmt.Errorf("%s: %w", data, err)
	}
	return n, n.State == "entering", nil
}

// enter joins, and waits until it is in.
func (p *person) enter() error {
	n, inside, err := p.ask(false)
	if err != nil || inside {
		return err
	}
	p.joined = n.Joined
	if p.script {
		return p.listen(n)
	}
	for !inside {
		sleep(p.ctx, time.Duration(n.Retry)*time.Second)
		if n, inside, err = p.ask(false); err != nil {
			return err
		}
	}
	return nil
}

// listen waits like the page's script: see page.js.
func (p *person) listen(n news) error {
	type result struct {
		n      news
		inside bool
		err    error
	}
	heard, answers := make(chan bool), make(chan result, 1)
	over, hush := context.WithCancel(p.ctx)
	defer hush()
	go p.stream(over, heard)
	var said, sent time.Time
	near, asking := false, false
	wait := func(d time.Duration) time.Duration {
		if !near && time.Since(said) < 12*time.Second {
			d = max(d, 15*time.Second+time.Duration(p.rng.Int64N(int64(10*time.Second))))
		}
		return d
	}
	timer := time.NewTimer(wait(time.Duration(n.Retry) * time.Second))
	defer timer.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return p.ctx.Err()
		case turn := <-heard:
			if said = time.Now(); turn && !near {
				timer.Reset(50*time.Millisecond + time.Duration(p.rng.Int64N(int64(450*time.Millisecond))))
			}
			near = turn
		case <-timer.C:
			if !asking {
				asking, sent = true, time.Now()
				go func() {
					n, inside, err := p.ask(true)
					answers <- result{n, inside, err}
				}()
			}
		case a := <-answers:
			asking = false
			switch {
			case a.err != nil:
				return a.err
			case a.inside: // and the page requests the site
				_, inside, err := p.ask(false)
				if err == nil && !inside {
					err = fmt.Errorf("told to enter, and not let in: %+v", a.n)
				}
				return err
			case near && time.Since(sent) > 5*time.Second:
				timer.Reset(100 * time.Millisecond)
			default:
				timer.Reset(wait(time.Duration(a.n.Retry) * time.Second))
			}
		}
	}
}

// stream reports with every message of the event stream whether the turn is near.
func (p *person) stream(ctx context.Context, heard chan<- bool) {
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/.well-known/vestibule/events?room=demo",
			http.NoBody)
		if err != nil {
			return
		}
		resp, err := p.Do(r)
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: {")
			if !ok {
				continue
			}
			var n struct{ Cutoff, Park int64 }
			if json.Unmarshal([]byte("{"+data), &n) != nil {
				continue
			}
			select {
			case heard <- p.joined.UnixMilli() <= max(n.Cutoff, n.Park):
			case <-ctx.Done():
			}
		}
		resp.Body.Close()
		sleep(ctx, 6*time.Second)
	}
}

// stay keeps the session until full is closed, and ends it some time later.
func (p *person) stay(full <-chan struct{}) error {
	spread := 4 * time.Second
	if full != nil {
		for waiting := true; waiting; {
			select {
			case <-full:
				waiting = false
			case <-p.ctx.Done():
				return nil
			// not in step with others
			case <-time.After(time.Second/4 + time.Duration(p.rng.Int64N(int64(time.Second)))):
				if n, inside, err := p.ask(false); err != nil || !inside {
					return fmt.Errorf("out again: %+v %w", n, err)
				}
			}
		}
		if !p.leave { // spread over time
			for until := time.Now().Add(time.Duration(p.rng.Int64N(int64(5 * time.Second)))); time.Now().Before(until); {
				sleep(p.ctx, time.Second/4+time.Duration(p.rng.Int64N(int64(time.Second))))
				if n, inside, err := p.ask(false); err != nil || !inside {
					return fmt.Errorf("out again: %+v %w", n, err)
				}
			}
		}
	}
	free := p.until
	if p.leave {
		sleep(p.ctx, 2*time.Second+time.Duration(p.rng.Int64N(int64(spread))))
		r, err := http.NewRequestWithContext(p.ctx, http.MethodPost, p.url+"/.well-known/vestibule/leave?room=demo",
			http.NoBody)
		if err != nil {
			return err
		}
		resp, err := p.Do(r)
		if err != nil {
			return err
		}
		free = time.Now()
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusNoContent {
			return fmt.Errorf("leaving: %s %w", strconv.Itoa(resp.StatusCode), err)
		}
	}
	p.mu.Lock()
	p.free = append(p.free, free)
	p.mu.Unlock()
	return nil
}

// BenchmarkAgeOnTheScreen measures how long after a visitor entered at an edge the console counts it: a tree of two
// data centres with two edges each, and a visitor every tenth of a second. The goal is 2.5 s for 99 %.
func BenchmarkAgeOnTheScreen(b *testing.B) {
	const visitors = 100
	tree := testkit.Must(Start(Options{
		DataCenters: []string{"nairobi", "dublin"}, Edges: 2, Listen: "127.0.0.1:0", DataDir: b.TempDir(),
		Params:           wire.DefaultParams(),
		TotalActiveUsers: 10_000, NewUsersPerMinute: 100_000, SessionDuration: 10 * time.Minute,
		Log: slog.New(slog.DiscardHandler),
	}))(b)
	defer func() {
		if err := tree.Stop(); err != nil {
			b.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
	defer cancel()
	testkit.NoError(b, errors.Join(tree.WaitReady(ctx), tree.TakeToken(ctx)))
	jar := testkit.Must(cookiejar.New(nil))(b)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	operator, visitor := http.Client{Transport: transport, Jar: jar}, http.Client{Transport: transport}
	ask := func(c *http.Client, method, url string) *http.Response {
		r := testkit.Must(http.NewRequestWithContext(ctx, method, url, http.NoBody))(b)
		r.Header.Set("Accept", "text/html")
		res, err := c.Do(r)
		if err != nil || res.StatusCode != http.StatusOK {
			b.Fatal(res, err)
		}
		return res
	}
	list := ask(&operator, http.MethodPost, tree.Info.Control.Console)
	page, err := io.ReadAll(list.Body)
	testkit.NoError(b, errors.Join(err, list.Body.Close()))
	room := regexp.MustCompile(`/console/rooms/[0-9a-f]+`).FindString(string(page))
	stream := ask(&operator, http.MethodGet, list.Request.URL.Scheme+"://"+list.Request.URL.Host+room+"/stream")
	defer stream.Body.Close()
	seen := make(chan []time.Time, 1) // when n visitors were counted
	go func() {
		var at []time.Time
		for lines := bufio.NewScanner(stream.Body); len(at) < visitors && lines.Scan(); {
			var values struct{ Inside string }
			data, _ := strings.CutPrefix(lines.Text(), "data: ")
			if json.Unmarshal([]byte(data), &values) != nil {
				continue
			}
			for n, _ := strconv.Atoi(values.Inside); len(at) < n; {
				at = append(at, time.Now())
			}
		}
		seen <- at
	}()
	tick := time.NewTicker(97 * time.Millisecond) // at no fixed time within a second
	defer tick.Stop()
	var entered []time.Time
	for i := 0; len(entered) < visitors; i++ {
		<-tick.C
		res := ask(&visitor, http.MethodGet, tree.Info.Edges[i%len(tree.Info.Edges)].URL+"/")
		if res.Header.Get("X-Demo-Origin") != "" {
			entered = append(entered, time.Now())
		}
		testkit.NoError(b, res.Body.Close())
	}
	at := <-seen
	if len(at) < visitors {
		b.Fatalf("%d of %d visitors on the screen", len(at), visitors)
	}
	var ages []float64
	for i := range entered {
		ages = append(ages, at[i].Sub(entered[i]).Seconds())
	}
	slices.Sort(ages)
	b.ReportMetric(ages[visitors/2], "s-p50")
	b.ReportMetric(ages[visitors-2], "s-p99")
	b.ReportMetric(0, "ns/op")
}
