package edge

import (
	"maps"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"vestibule/internal/edge/gate"
	"vestibule/internal/lab/testkit"
)

// TestCookiesOfVisitorsAreInPrivacy: the table of PRIVACY has each cookie of a visitor, and its life.
func TestCookiesOfVisitorsAreInPrivacy(t *testing.T) {
	st := notifying(t, &pushStore{})
	space := open(t, func(*stage) {})
	space.covered(100, sale)
	v := st.door.visitor()
	set := map[string]string{} // Max-Age by name
	for _, a := range []answer{
		v.get("http://sale.example/"),
		space.door.visitor().get("http://sale.example/"),
		v.get("http://sale.example" + gate.LanguagePath + "?room=sale&to=de-DE&back=/"),
		v.ask(http.MethodPost, pushURL, "", gate.PushHeader, pushHeader(t, endpoint)),
	} {
		for _, line := range a.Header["Set-Cookie"] {
			c := testkit.Must(http.ParseSetCookie(line))(t)
			name := regexp.MustCompile(`^vestibule-(sale|vip)`).ReplaceAllString(c.Name, "vestibule-ROOM")
			set[name] = regexp.MustCompile(`Max-Age=(\d+)`).FindString(line)
			if !c.HttpOnly {
				t.Errorf("%s is not HttpOnly", c.Name)
			}
		}
	}
	lives := map[string]string{"24 hours": "Max-Age=86400", "a year": "Max-Age=31536000"}
	told := map[string]string{}
	_, text, _ := strings.Cut(string(testkit.Must(os.ReadFile("../../docs/PRIVACY.md"))(t)), "## Cookies of visitors\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for _, m := range regexp.MustCompile("(?m)^[|] `([^`]+)` [|] ([^;|]+)").FindAllStringSubmatch(text, -1) {
		life := lives[strings.TrimSpace(m[2])]
		if life == "" { // that of the room's sessions
			life = set[m[1]]
		}
		told[m[1]] = life
	}
	if len(set) < 4 || !maps.Equal(set, told) {
		t.Errorf("an edge sets %v, docs/PRIVACY.md has %v", set, told)
	}
}
