package edge

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/proof"
	"vestibule/internal/edge/gate"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

func proving(st *stage) { st.cfg.Proof.Enabled = true }

// proven returns the claims of the newest proof that the site saw, verified with the edge's published keys.
func (st *stage) proven() proof.Claims {
	st.t.Helper()
	lines := st.origin.last().Header.Values(gate.ProofHeader)
	if len(lines) != 1 {
		st.t.Fatalf("the site saw %d proofs", len(lines))
	}
	a := st.door.visitor().get("http://sale.example" + gate.KeysPath)
	var set jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(a.body), &set); err != nil {
		st.t.Fatalf("%d %.60q: %v", a.StatusCode, a.body, err)
	}
	parsed := testkit.Must(jwt.ParseSigned(lines[0], []jose.SignatureAlgorithm{jose.EdDSA}))(st.t)
	var c proof.Claims
	testkit.NoError(st.t, parsed.Claims(&set, &c))
	return c
}

// verify asks the edge about a proof, as a site does.
func (st *stage) verify(query string, proofs ...string) (code int, v map[string]any) {
	st.t.Helper()
	r := testkit.Must(http.NewRequest(http.MethodGet, "http://edge.internal"+gate.VerifyPath+query, nil))(st.t)
	r.Header[gate.ProofHeader] = proofs
	a := st.door.visitor().do(r)
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		st.t.Fatalf("%d %.60q: %v", a.StatusCode, a.body, err)
	}
	return a.StatusCode, v
}

// Every request at the site has one proof, the edge's own. The proof never reaches the visitor.
func TestTheSiteIsGivenAProof(t *testing.T) {
	st := open(t, proving)
	st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(gate.ProofHeader, r.Header.Get(gate.ProofHeader)) // a site that reveals everything
	})
	v := st.door.visitor()
	a := v.get("http://sale.example/", gate.ProofHeader, "mine", "vestibule-proof", "mine", "Vestibule_Proof", "mine",
		"Connection", gate.ProofHeader)
	if a.StatusCode != http.StatusOK || a.Header.Get(gate.ProofHeader) != "" {
		t.Errorf("the visitor gets %d and %q", a.StatusCode, a.Header)
	}
	c := st.proven()
	now := time.Now().Unix()
	if c.Room != "sale" || c.Audience != st.origin.URL || c.Subject == "" || c.Admitted < now-60 || c.Admitted > now+1 ||
		c.Expires <= now || c.Expires > now+301 {
		t.Errorf("inside: %+v", c)
	}
	v.get("http://sale.example/")
	again := st.proven()
	if again.Subject != c.Subject {
		t.Errorf("the same visitor: %+v, then %+v", c, again)
	}
	second := st.origin.last().Header.Get(gate.ProofHeader)
	v.get("http://sale.example/picture")
	if got := st.origin.last().Header.Get(gate.ProofHeader); got != second {
		t.Error("a proof is made anew for each request")
	}
	st.door.visitor().get("http://sale.example/")
	if other := st.proven(); other.Subject == c.Subject {
		t.Errorf("another visitor: %+v", other)
	}
	// Outside of all rooms there are no sessions, but the request passed through the edge.
	st.door.visitor().get("http://shop.example/about")
	if c := st.proven(); c.Room != "" || c.Subject != "" || c.Audience != st.origin.URL {
		t.Errorf("outside: %+v", c)
	}
}

func TestKeysOfProofsArePublished(t *testing.T) {
	st := open(t, proving)
	for _, host := range []string{"sale.example", "edge.internal"} {
		a := st.door.visitor().get("http://" + host + gate.KeysPath)
		if a.StatusCode != http.StatusOK || a.Header.Get("Cache-Control") != "public, max-age=300" ||
			a.Header.Get("Content-Type") != "application/jwk-set+json" {
			t.Errorf("%s: %d %q", host, a.StatusCode, a.Header)
		}
		if strings.Contains(a.body, `"d"`) || strings.Count(a.body, `"kid"`) != len(st.keys.ring.Keys) {
			t.Errorf("%s: %s", host, a.body)
		}
	}
	st.door.visitor().ask(http.MethodPost, "http://sale.example"+gate.KeysPath,
		"").has(t, http.StatusMethodNotAllowed, "POST")
	// A rotation adds a key, and the site's proofs go on.
	next := testkit.Must(st.keys.ring.Rotate(fleettime.TimeOf(time.Now()).Add(24*time.Hour), 24*time.Hour,
		strings.NewReader(strings.Repeat("k", 64))))(t)
	st.docs.offer(node.KeysDocument, keysDocument(t, next))
	eventually(t, "the new key is published", func() bool {
		return strings.Count(st.door.visitor().get("http://sale.example"+gate.KeysPath).body, `"kid"`) == len(next.Keys)
	})
	st.door.visitor().get("http://sale.example/")
	st.proven()
}

// A site can ask whether the session of a proof goes on.
func TestASiteAsksWhetherASessionIsInside(t *testing.T) {
	st := open(t, proving)
	v := st.door.visitor()
	v.get("http://sale.example/")
	good := st.origin.last().Header.Get(gate.ProofHeader)
	st.door.visitor().get("http://shop.example/about")
	outside := st.origin.last().Header.Get(gate.ProofHeader)
	for _, tc := range []struct {
		name, query string
		proofs      []string
		code        int
		inside      bool
	}{
		{"inside", "", []string{good}, 200, true},
		{"of this room, for this site", "?room=sale&audience=" + st.origin.URL, []string{good}, 200, true},
		{"outside of all rooms", "", []string{outside}, 200, false},
		{"outside of all rooms, where a room is asked for", "?room=sale", []string{outside}, 403, false},
		{"of another room", "?room=vip", []string{good}, 403, false},
		{"for another site", "?audience=http://10.0.0.6", []string{good}, 403, false},
		{"asked in two ways", "?room=vip&room=sale", []string{good}, 403, false},
		{"no proof", "", nil, 403, false},
		{"two", "", []string{good, good}, 403, false},
		{"two in a line", "", []string{good + ", " + good}, 403, false},
		{"altered", "", []string{good[:len(good)-8] + "AAAAAAAA"}, 403, false},
	} {
		code, body := st.verify(tc.query, tc.proofs...)
		if code != tc.code || body["passed"] != (tc.code == 200) || body["inside"] != tc.inside ||
			(tc.code != 200) != (body["reason"] != nil) {
			t.Errorf("%s: %d %v", tc.name, code, body)
		}
	}
	// A visitor that left is not inside any more, even while the proof is valid.
	if a := v.ask(http.MethodPost, "http://sale.example"+gate.LeavePath, ""); a.StatusCode >= 300 {
		t.Fatalf("leaving: %d", a.StatusCode)
	}
	if code, body := st.verify("", good); code != 403 || body["inside"] != false {
		t.Errorf("after leaving: %d %v", code, body)
	}
	// Nor is anybody of an earlier epoch.
	st.door.visitor().get("http://sale.example/")
	good = st.origin.last().Header.Get(gate.ProofHeader)
	d := document(st.origin.URL)
	d.Rooms[0].Epoch = 1
	st.docs.offer(node.RoomsDocument, roomsDocument(t, 2, d))
	eventually(t, "the epoch is over", func() bool { code, _ := st.verify("", good); return code == 403 })
}

// A front is given the proof for the site.
func TestAFrontIsGivenAProof(t *testing.T) {
	st := open(t, func(st *stage) {
		proving(st)
		st.cfg.Front.Listen, st.cfg.Proxies = "127.0.0.1:0", []string{"127.0.0.1"}
	})
	v := st.door.visitor()
	r := testkit.Must(http.NewRequest(http.MethodGet, st.server.FrontURL(), nil))(t)
	for name, value := range map[string]string{
		"Method": "GET", "Proto": "http", "Host": "sale.example", "Uri": "/",
		"For": "192.0.2.7",
	} {
		r.Header.Set("X-Forwarded-"+name, value)
	}
	res := testkit.Must(http.DefaultClient.Do(r))(t)
	defer http.DefaultClient.CloseIdleConnections()
	testkit.NoError(t, res.Body.Close())
	if code, body := st.verify("?room=sale", res.Header.Get(gate.ProofHeader)); res.StatusCode != 200 || code != 200 {
		t.Errorf("%d, then %d %v", res.StatusCode, code, body)
	}
	v.CloseIdleConnections()
}

func TestNoProofsUnlessAskedFor(t *testing.T) {
	st := open(t, nil)
	st.door.visitor().get("http://sale.example/", gate.ProofHeader, "mine").has(t, http.StatusOK, "a page of the site")
	if got := st.origin.last().Header.Values(gate.ProofHeader); got != nil {
		t.Errorf("the site sees %q", got)
	}
	for _, path := range []string{gate.KeysPath, gate.VerifyPath} {
		st.door.visitor().get("http://sale.example"+path).has(t, http.StatusNotFound, "%s", path)
	}
}

// BenchmarkProof measures the cost of a proof per request: cached, as for all but the first request of some minutes,
// and new.
func BenchmarkProof(b *testing.B) {
	st := open(b, proving)
	st.server.proxy.trip = instantly{}
	s := session(7)
	r := &gate.Request{
		Host: "sale.example", Target: "/", Method: http.MethodGet,
		Cookies: []string{st.keys.seal("sale", s)},
	}
	b.Run("remembered", func(b *testing.B) {
		o := st.server.gate.Begin()
		defer o.End()
		st.server.gate.Decide(b.Context(), r, o)
		if o.Proof() == "" {
			b.Fatal("no proof")
		}
		b.ReportAllocs()
		for b.Loop() {
			o.Proof()
		}
	})
	b.Run("made", func(b *testing.B) {
		keys := testkit.Must(proof.NewKeys(st.keys.ring))(b)
		in := st.server.gate.Rooms().ByName("sale")
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := keys.Inside(fleettime.TimeOf(time.Now()), st.origin.URL, in, &s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("request", func(b *testing.B) {
		benchmark(b, st, "sale.example", "/tickets?show=1", st.keys.seal("sale", s), http.StatusOK)
	})
}
