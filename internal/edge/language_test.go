package edge

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"vestibule/internal/edge/gate"
)

// TestAVisitorChoosesALanguage: the list of languages leads back to the previous page, on this host alone, and the
// choice has priority over Accept-Language.
func TestAVisitorChoosesALanguage(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	const list = "http://sale.example/.well-known/vestibule/language?room=sale"
	v := st.door.visitor()
	v.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	a := v.get(list, "Referer", "http://sale.example/seats?row=4&x=%22", "Sec-Fetch-Site", "same-origin")
	const choice = `<a lang="de-DE" href="?room=sale&amp;to=de-DE&amp;back=%2Fseats%3Frow%3D4%26x%3D%2522">Deutsch</a>`
	if a.StatusCode != 200 || !strings.Contains(a.body, choice) || strings.Count(a.body, "<li>") != 39 {
		t.Errorf("the list: %d %s", a.StatusCode, a.body)
	}
	if p := a.Header.Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none'; style-src 'sha256-") {
		t.Errorf("its policy: %s", p)
	}
	a = v.get(list+"&to=de-DE&back=%2Fseats%3Frow%3D4%26x%3D%2522", "Sec-Fetch-Site", "same-origin")
	if a.StatusCode != 303 || a.Header.Get("Location") != "/seats?row=4&x=%22" {
		t.Errorf("the choice: %d %v", a.StatusCode, a.Header)
	}
	if a := v.get(saleURL, "Accept", "text/html", "Accept-Language", "fr"); a.Header.Get("Content-Language") != "de-DE" ||
		!strings.Contains(a.body, "Personen vor") && !strings.Contains(a.body, `lang="de-DE"`) {
		t.Errorf("the page after the choice is in %s", a.Header.Get("Content-Language"))
	}
	if a := st.door.visitor().get(saleURL, "Accept", "text/html", "Accept-Language", "fr", "Cookie",
		"vestibule_language=klingon"); a.Header.Get("Content-Language") != "fr-FR" {
		t.Errorf("a language that there is not: %s", a.Header.Get("Content-Language"))
	}
	for _, elsewhere := range []string{
		"https%3A%2F%2Fevil.example", "%2F%2Fevil.example", "%2F%5Cevil.example",
		"%2Fa%0d%0aSet-Cookie%3Ax", "evil", "", "%2F.well-known%2Fvestibule%2Fleave%3Froom%3Dsale",
	} {
		if a := v.get(list + "&to=de-DE&back=" + elsewhere); a.StatusCode != 303 || a.Header.Get("Location") != "/" {
			t.Errorf("back=%s leads to %d %q", elsewhere, a.StatusCode, a.Header.Get("Location"))
		}
	}
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		v.get(list+"&to=fr-FR", header, value).has(t, 403, "%s: %s", header, value)
	}
	v.get("http://sale.example/.well-known/vestibule/language?room=nobody").has(t, 404, "a room that there is not")
}

// TestAQuestionThatIsNotHeld: a page with outdated content is answered soon, while others are held for an hour.
func TestAQuestionThatIsNotHeld(t *testing.T) {
	st := open(t, func(st *stage) { st.params.Hold, st.params.Knock = time.Hour, time.Hour })
	st.fill(sale, 1000)
	me := st.keys.seal("sale", inLine(7))
	a := st.door.visitor().get(saleURL, "Cookie", me, "Accept", "application/json", gate.PollHeader, gate.PollNow)
	if !strings.Contains(a.body, `"state":"`) || a.body == "the site" {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	if n := st.server.Status().Rooms["sale"].Held; n != 0 {
		t.Errorf("%d are held", n)
	}
}
