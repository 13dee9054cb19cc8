package origin

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/fleettime"
)

// A site that is down is logged once a minute, with the number of other requests.
func TestASiteIsLoggedOnceAMinute(t *testing.T) {
	const second = fleettime.Mono(time.Second)
	var out bytes.Buffer
	now := fleettime.Mono(0)
	m := &Monitor{
		Now: func() fleettime.Mono { return now }, Changed: func() {},
		Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.NewTextHandler(&out, nil)),
	}
	a, b := New(&url.URL{Host: "a"}), New(&url.URL{Host: "b"})
	for range 1000 {
		m.Failed(a, "shop", io.EOF)
		m.Failed(b, "shop", io.EOF)
		m.BrokeOff(a, "shop", io.EOF)
		now += second / 10
	}
	want := map[string]int{"origin does not answer": 4, "breaks off": 2, "more_since_last_line=599": 3}
	for text, n := range want {
		if got := strings.Count(out.String(), text); got != n {
			t.Errorf("%q stands %d times, want %d:\n%s", text, got, n, &out)
		}
	}
}

func TestDownAndBack(t *testing.T) {
	const second = fleettime.Mono(time.Second)
	for _, c := range []struct {
		why  string
		play func(p *Origin) bool
		down bool
	}{
		{"nothing happened", func(*Origin) bool { return false }, false},
		{"two requests failed", func(p *Origin) bool { return p.unanswered(0) || p.unanswered(5*second) }, false},
		{"three failed in one moment, as in a restart", func(p *Origin) bool {
			return p.unanswered(0) || p.unanswered(1) ||
				p.unanswered(2)
		}, false},
		{"three failed in two seconds", func(p *Origin) bool {
			return !p.unanswered(0) && !p.unanswered(1) &&
				p.unanswered(2*second)
		}, true},
		{"and a fourth", func(p *Origin) bool {
			return !p.unanswered(0) && !p.unanswered(1) && p.unanswered(2*second) && !p.unanswered(3*second)
		}, true},
		{"two connections were refused", func(p *Origin) bool { return !p.refused(0) && p.refused(1) && !p.refused(2) }, true},
		{"one was refused after a request failed", func(p *Origin) bool { return !p.unanswered(0) && p.refused(1) }, true},
		{"one was refused before an answer, and one after it", func(p *Origin) bool {
			return p.refused(0) || p.answered() || p.refused(1)
		}, false},
		{"one of them was answered", func(p *Origin) bool {
			return p.unanswered(0) || p.unanswered(1) || p.answered() || p.unanswered(2*second)
		}, false},
		{"it answers again", func(p *Origin) bool {
			p.unanswered(0)
			p.unanswered(1)
			return !p.unanswered(2*second) || !p.answered() || p.answered()
		}, false},
	} {
		p := &Origin{}
		if news := c.play(p); news != c.down {
			t.Errorf("%s: told wrongly that it fell or came back", c.why)
		}
		if p.Down() != c.down {
			t.Errorf("%s: down %v", c.why, p.Down())
		}
	}
}

// A site that was in use is connected to once it is quiet, for ten minutes.
func TestQuiet(t *testing.T) {
	const second = fleettime.Mono(time.Second)
	o := New(&url.URL{Host: "a"})
	if o.quiet(100 * second) {
		t.Error("a site that never answered is watched")
	}
	o.hear(100 * second)
	for at, want := range map[fleettime.Mono]bool{100: false, 101: true, 699: true, 700: false} {
		if o.quiet(at*second) != want {
			t.Errorf("quiet after %v: %v", at-100, !want)
		}
	}
}

// A site whose machine refuses connections is down before anybody else asks for it.
func TestARefusedSiteIsDownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := make(chan bool, 1)
		o := New(&url.URL{Scheme: "http", Host: "shop.example"})
		var to string
		m := &Monitor{
			Now: func() fleettime.Mono { return fleettime.Mono(time.Now().UnixNano()) }, Changed: func() { down <- o.Down() },
			Origins: func() []*Origin { return []*Origin{o} }, Metrics: NewMetrics(prometheus.NewRegistry()),
			Log: slog.New(slog.DiscardHandler),
		}
		m.Watch(func(_ context.Context, _, addr string) (net.Conn, error) {
			to = addr
			return nil, syscall.ECONNREFUSED
		})
		ctx, end := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer end()
		go m.watch(ctx)
		began := time.Now()
		f := m.Failed(o, "shop", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
		if !<-down || time.Now() != began || !f.Refused || !f.Down || to != "shop.example:80" {
			t.Errorf("down after %v: %+v, %s", time.Since(began), f, to)
		}
	})
}
