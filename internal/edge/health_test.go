package edge

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

// TestAnOriginThatDoesNotAnswerPausesAdmissions: admitted visitors get its errors, waiting visitors keep their place
// and see the reason, and admissions resume once it answers again.
func TestAnOriginThatDoesNotAnswerPausesAdmissions(t *testing.T) {
	t.Parallel()
	st := open(t, nil)
	inside := st.door.visitor()
	if a := inside.get(saleURL); a.body != "the site" {
		t.Fatalf("%.60q", a.body)
	}
	st.origin.dead.Store(true)
	state := func(v *visitor) (state, by string) {
		ours := v.get(saleURL, "Accept", "application/json").json(t).Ours
		return ours["state"].(string), ours["pausedBy"].(string)
	}
	eventually(t, "admissions are paused", func() bool {
		if a := inside.get(saleURL); a.StatusCode != http.StatusBadGateway {
			t.Fatalf("inside: %d %.60q", a.StatusCode, a.body)
		}
		return st.server.Status().Rooms["sale"].Paused
	})
	waits := st.door.visitor()
	if state, by := state(waits); state != "paused" || by != "site" {
		t.Errorf("who comes now gets %s by %q", state, by)
	}
	first := waits.get(saleURL, "Accept", "application/json").json(t).Ours["joinedAt"]
	l := waits.listen(streamURL)
	l.until("the site is out of order", func(_ string, fields map[string]any) bool { return fields["pausedBy"] == "site" })
	if again := waits.get(saleURL, "Accept", "application/json").json(t).Ours["joinedAt"]; again != first {
		t.Errorf("the place was of %v, and is of %v", first, again)
	}
	st.hasAdmitted(1)

	st.origin.dead.Store(false)
	eventually(t, "people are let in", func() bool { return !st.server.Status().Rooms["sale"].Paused })
	waits.get(saleURL).enters(t, "when it answers again")
}

// TestHalfARequestSaysNothingAboutTheSite: visitors that repeatedly send less of a body than announced do not pause
// the room.
func TestHalfARequestSaysNothingAboutTheSite(t *testing.T) {
	t.Parallel()
	eachFront(t, func(t *testing.T, front string) {
		t.Parallel()
		st := open(t, reads(front))
		inside := st.door.visitor()
		if a := inside.get(saleURL); a.body != "the site" {
			t.Fatalf("%.60q", a.body)
		}
		site := testkit.Must(url.Parse(saleURL))(t)
		head := "POST / HTTP/1.1\r\nHost: " + site.Host + "\r\nContent-Length: 1000\r\n"
		for _, c := range inside.Jar.Cookies(site) {
			head += "Cookie: " + c.String() + "\r\n"
		}
		half := func() {
			c := testkit.Must(net.Dial("tcp", st.door.entrance()))(t)
			defer c.Close()
			testkit.Must(io.WriteString(c, head+"\r\nhalf"))(t)
			testkit.NoError(t, c.(*net.TCPConn).CloseWrite())
			testkit.Must(io.ReadAll(c))(t)
		}
		n := 0
		for begun := time.Now(); n < 10 || time.Since(begun) < 1500*time.Millisecond; n++ {
			half()
		}
		if failed := metric(t, st, "vestibule_edge_origin_errors_total"); failed != 0 ||
			st.server.Status().Rooms["sale"].Paused {
			t.Errorf("after %d halves of a request: %v errors of the site are counted; paused: %v", n, failed,
				st.server.Status().Rooms["sale"].Paused)
		}
	})
}
