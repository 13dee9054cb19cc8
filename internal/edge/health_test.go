package edge

import (
	"net/http"
	"testing"
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
