package edge

import (
	"net/http"
	"testing"
	"time"

	"vestibule/internal/fleet"
)

// TestAnOriginThatDoesNotAnswerPausesAdmissions: people inside get its errors, who
// waits keeps the place and is told why, and everything goes on by itself when it
// answers again.
func TestAnOriginThatDoesNotAnswerPausesAdmissions(t *testing.T) {
	t.Parallel()
	st := open(t, nil)
	inside := st.visitor()
	if a := inside.get(saleURL); a.body != "the site" {
		t.Fatalf("%.60q", a.body)
	}
	st.origin.dead.Store(true)
	state := func(v *visitor) (state, by string) {
		ours := v.get(saleURL, "Accept", "application/json").told(t).Ours
		return ours["state"].(string), ours["pausedBy"].(string)
	}
	eventually(t, "admissions are paused", func() bool {
		if a := inside.get(saleURL); a.StatusCode != http.StatusBadGateway {
			t.Fatalf("inside: %d %.60q", a.StatusCode, a.body)
		}
		return st.server.Status().Rooms["sale"].Paused
	})
	waits := st.visitor()
	if state, by := state(waits); state != "paused" || by != "site" {
		t.Errorf("who comes now is told %s by %q", state, by)
	}
	first := waits.get(saleURL, "Accept", "application/json").told(t).Ours["joinedAt"]
	l := waits.listen(streamURL)
	l.until("the site is out of order", func(_ string, told map[string]any) bool { return told["pausedBy"] == "site" })
	if again := waits.get(saleURL, "Accept", "application/json").told(t).Ours["joinedAt"]; again != first {
		t.Errorf("the place was of %v, and is of %v", first, again)
	}
	if n := st.server.Status().Rooms["sale"].Admitted; n != 1 {
		t.Errorf("%d let in, want the one from before", n)
	}

	st.origin.dead.Store(false)
	eventually(t, "people are let in", func() bool { return !st.server.Status().Rooms["sale"].Paused })
	if a := waits.get(saleURL); a.body != "the site" {
		t.Errorf("when it answers again: %.60q", a.body)
	}
}

func TestPulse(t *testing.T) {
	const second = fleet.Mono(time.Second)
	for _, c := range []struct {
		why  string
		play func(p *pulse) bool
		down bool
	}{
		{"nothing happened", func(*pulse) bool { return false }, false},
		{"two requests failed", func(p *pulse) bool { return p.fails(0) || p.fails(5*second) }, false},
		{"three failed in one moment, as in a restart", func(p *pulse) bool { return p.fails(0) || p.fails(1) || p.fails(2) }, false},
		{"three failed in two seconds", func(p *pulse) bool { return !p.fails(0) && !p.fails(1) && p.fails(2*second) }, true},
		{"and a fourth", func(p *pulse) bool { return !p.fails(0) && !p.fails(1) && p.fails(2*second) && !p.fails(3*second) }, true},
		{"one of them was answered", func(p *pulse) bool { return p.fails(0) || p.fails(1) || p.answers() || p.fails(2*second) }, false},
		{"it answers again", func(p *pulse) bool {
			p.fails(0)
			p.fails(1)
			return !p.fails(2*second) || !p.answers() || p.answers()
		}, false},
	} {
		p := &pulse{}
		if news := c.play(p); news != c.down {
			t.Errorf("%s: told wrongly that it fell or came back", c.why)
		}
		if p.isDown() != c.down {
			t.Errorf("%s: down %v", c.why, p.isDown())
		}
	}
}
