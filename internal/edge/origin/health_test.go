package origin

import (
	"bytes"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"
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
