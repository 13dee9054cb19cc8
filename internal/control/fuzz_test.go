package control

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"vestibule/internal/room"
)

// FuzzRoomBodies: whatever a body or a path is, the answer is in the envelope and never 500, and what
// was taken can be read again.
func FuzzRoomBodies(f *testing.F) {
	f.Add("POST", "/zones/"+Zone+"/waiting_rooms", shop+"}")
	f.Add("PUT", "/zones/"+Zone+"/waiting_rooms/"+room.PublicID("shop"), shop+`,"vestibule":{"epoch":7,"grace":"1m"},"additional_routes":[{"host":"b.example"}]}`)
	f.Add("PATCH", "/zones/"+Zone+"/waiting_rooms/"+room.PublicID("shop"), `{"session_duration":1e1,"custom_page_html":"{{#waitTimeKnown}}{{waitTime}}{{/waitTimeKnown}}"}`)
	f.Add("PUT", "/vestibule/hosts/shop.example", `{"origin":"http://10.0.0.9"}`)
	f.Add("POST", "/vestibule/tokens", `{"name":"x","role":"viewer","expires_on":null}`)
	f.Add("GET", "/zones/"+Zone+"/waiting_rooms?page=2&per_page=5", ``)
	f.Fuzz(func(t *testing.T, method, path, body string) {
		r, err := httpRequest(method, path, body)
		if err != nil {
			t.Skip("no request can be made of it")
		}
		x := start(t)
		x.ask(Editor, "POST", "{z}", shop+"}")
		r.Header.Set("Authorization", "Bearer "+x.token[Admin])
		x.do(r)
		if a := x.ask(Viewer, "GET", "{z}", ""); a.code != 200 {
			t.Errorf("rooms cannot be listed afterwards: %+v", a)
		}
	})
}

// httpRequest is a request as a server would have read it.
func httpRequest(method, target, body string) (*http.Request, error) {
	u, err := url.ParseRequestURI(Prefix + target)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequest(method, "http://127.0.0.1"+u.RequestURI(), strings.NewReader(body))
	if err == nil {
		r.RemoteAddr = "127.0.0.1:80"
	}
	return r, err
}

// TestCornersOfBodies: the corners of bodies that a client may send.
func TestCornersOfBodies(t *testing.T) {
	f := start(t)
	for extra, code := range map[string]int{
		`,"session_duration":null,"path":null,"additional_routes":null,"cookie_attributes":null,"enabled_origin_commands":null,"vestibule":null`: 200,
		`,"session_duration":5.0`:                                               200,
		`,"session_duration":1e999999999999999`:                                 400,
		`,"session_duration":5.5`:                                               400,
		`,"session_duration":-1`:                                                400,
		`,"session_duration":true`:                                              400,
		`,"cookie_attributes":{"samesite":"AUTO","secure":""}`:                  200,
		`,"vestibule":{"origin":"http://10.1.1.1","owner":"file","revision":9}`: 200,
		`,"vestibule":{"grace":60}`:                                             400,
		`,"vestibule":[]`:                                                       400,
		`,"additional_routes":{}`:                                               400,
		`,"custom_page_html":7`:                                                 400,
		`,"path":"/a/../b"`:                                                     400,
		`,"custom_page_html":"<p>hello"`:                                        200,
	} {
		a := f.ask(Editor, "POST", "{z}", shop+extra+"}")
		if a.code != code {
			t.Errorf("%s: %d %+v", extra, a.code, a)
		}
		if id, ok := a.field("id").(string); ok {
			if strings.Contains(extra, "hello") && a.field("custom_page_html") != "<p>hello" {
				t.Errorf("the page that was given is not shown: %v", a.field("custom_page_html"))
			}
			f.ask(Editor, "DELETE", "{z}/"+id, "")
		}
	}
	w := httptest.NewRecorder()
	if f.api.ServeHTTP(w, httptest.NewRequest("GET", "/preview/none", nil)); w.Code != 404 {
		t.Errorf("a preview that is not there: %d", w.Code)
	}
}
