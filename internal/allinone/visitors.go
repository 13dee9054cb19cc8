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
)

// Visitors are simulated people with browsers of their own who play with a
// demo: they come, wait as the page tells them, look at a few pages, leave and
// come back some time later as somebody new.
type Visitors struct {
	URLs  []string // of the edges
	N     int
	Think time.Duration // mean time between two pages of somebody inside
	Pause time.Duration // mean time before somebody who left comes again
	Rand  *rand.Rand
	Log   *slog.Logger
}

// Run lets them play until ctx ends.
func (v *Visitors) Run(ctx context.Context) {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	defer transport.CloseIdleConnections()
	var all sync.WaitGroup
	for range v.N {
		rng := rand.New(rand.NewPCG(v.Rand.Uint64(), v.Rand.Uint64()))
		all.Go(func() {
			sleep(ctx, jitter(rng, v.Pause))
			for ctx.Err() == nil {
				v.visit(ctx, transport, rng)
				sleep(ctx, jitter(rng, v.Pause))
			}
		})
	}
	all.Wait()
}

// visit is one person's visit, from coming to leaving.
func (v *Visitors) visit(ctx context.Context, transport http.RoundTripper, rng *rand.Rand) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		v.Log.Error("cookie jar", slog.Any("error", err))
		return
	}
	client := &http.Client{Transport: transport, Jar: jar, Timeout: time.Minute}
	url := v.URLs[rng.IntN(len(v.URLs))]
	for pages := 1 + rng.IntN(5); pages > 0 && ctx.Err() == nil; {
		wait, inside, err := request(ctx, client, url+"/")
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

// request asks for a page once; wait is what the waiting page asked for.
func request(ctx context.Context, client *http.Client, url string) (wait time.Duration, inside bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, false, err
	}
	if resp.Header.Get("X-Demo-Origin") != "" {
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
