package allinone

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"strconv"
	"sync"
	"time"

	"vestibule/internal/edge"
	"vestibule/internal/edge/gate"
)

// Visitors are simulated people with separate browsers for a demo: they come, wait as the page asks, look at a few
// pages, leave, and come back later as new visitors.
type Visitors struct {
	URLs   []string // of the edges, or of a path there
	N      int
	Think  time.Duration // mean time between two pages
	Pause  time.Duration // mean time between two visits
	AtOnce bool          // no pause before the first visit
	Rand   *rand.Rand
	Log    *slog.Logger
}

// busyVisitors fill the busy room, with a queue of about 20.
const busyVisitors = 30

// Crowd runs n simulated visitors, and those of the busy room, until ctx ends.
func (t *Tree) Crowd(ctx context.Context, n int, chance *rand.Rand) {
	main := Visitors{
		N: n, Think: 5 * time.Second, Pause: 20 * time.Second, Rand: rand.New(rand.NewPCG(chance.Uint64(), chance.Uint64())),
		Log: t.log,
	}
	busy := Visitors{
		N: busyVisitors, Think: 3 * time.Second, Pause: 4 * time.Second, AtOnce: true, Rand: chance, Log: t.log,
	}
	for _, e := range t.Info.Edges {
		main.URLs, busy.URLs = append(main.URLs, e.URL), append(busy.URLs, e.URL+BusyPath)
	}
	var all sync.WaitGroup
	if t.Info.Busy != "" {
		all.Go(func() { busy.Run(ctx) })
	}
	main.Run(ctx)
	all.Wait()
}

// WaitBusy returns when every edge has counted the queue in the busy room, or when ctx ends: later visitors see a
// number at once.
func (t *Tree) WaitBusy(ctx context.Context) {
	counted := func(e *edge.Node) bool {
		v := e.Status().Rooms["busy"].View
		return v != nil && v.Line.Total() >= busyVisitors/3
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, e := range t.edges {
		for !counted(e) {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// Run runs the visitors until ctx ends.
func (v *Visitors) Run(ctx context.Context) {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	defer transport.CloseIdleConnections()
	var all sync.WaitGroup
	for range v.N {
		rng := rand.New(rand.NewPCG(v.Rand.Uint64(), v.Rand.Uint64()))
		all.Go(func() {
			if !v.AtOnce {
				sleep(ctx, jitter(rng, v.Pause))
			}
			for ctx.Err() == nil {
				v.visit(ctx, transport, rng)
				sleep(ctx, jitter(rng, v.Pause))
			}
		})
	}
	all.Wait()
}

// visit is one person's visit, from arrival to departure.
func (v *Visitors) visit(ctx context.Context, transport http.RoundTripper, rng *rand.Rand) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		v.Log.Error("cookie jar", slog.Any("error", err))
		return
	}
	client := &http.Client{Transport: transport, Jar: jar, Timeout: time.Minute}
	url := v.URLs[rng.IntN(len(v.URLs))]
	for pages := 1 + rng.IntN(5); pages > 0 && ctx.Err() == nil; {
		wait, inside, err := request(ctx, client, url)
		switch {
		case err != nil:
			v.Log.Debug("visitor", slog.Any("error", err))
			wait = time.Second
		case inside:
			pages--
			wait = jitter(rng, v.Think)
		}
		sleep(ctx, wait)
	}
}

// request requests a page once; wait is the retry time of the waiting page.
func request(ctx context.Context, client *http.Client, url string) (wait time.Duration, inside bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, false, err
	}
	req.Header.Set(SentHeader, strconv.FormatInt(time.Now().UnixNano(), 10))
	resp, err := client.Do(req)
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, false, err
	}
	if resp.Header.Get(gate.DecisionHeader) == "" { // a response of the site
		return 0, true, nil
	}
	n, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil {
		n = 1
	}
	return time.Duration(n) * time.Second, false, nil
}

func jitter(rng *rand.Rand, mean time.Duration) time.Duration {
	return mean/2 + time.Duration(rng.Int64N(int64(mean)+1))
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
