package origin

import (
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
)

func TestDownAndBack(t *testing.T) {
	const second = fleettime.Mono(time.Second)
	for _, c := range []struct {
		why  string
		play func(p *Origin) bool
		down bool
	}{
		{"nothing happened", func(*Origin) bool { return false }, false},
		{"two requests failed", func(p *Origin) bool { return p.unanswered(0) || p.unanswered(5*second) }, false},
		{"three failed in one moment, as in a restart", func(p *Origin) bool { return p.unanswered(0) || p.unanswered(1) || p.unanswered(2) }, false},
		{"three failed in two seconds", func(p *Origin) bool { return !p.unanswered(0) && !p.unanswered(1) && p.unanswered(2*second) }, true},
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
