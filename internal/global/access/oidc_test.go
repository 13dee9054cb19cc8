package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"vestibule/internal/global/control"
	"vestibule/internal/lab/testkit"
)

// issuer is a small OpenID Connect provider. It serves its configuration, its keys and the exchange of codes.
type issuer struct {
	testing.TB
	*httptest.Server
	key       *ecdsa.PrivateKey
	signs     *ecdsa.PrivateKey // the ID tokens: key, unless it is somebody else's
	code      string            // good for one exchange
	challenge string            // of the code (RFC 7636)
	claims    map[string]any    // of the next ID token
	exchanges int
	down      bool
}

const (
	oidcClient = "vestibule"
	oidcSecret = "s3cret"
	oidcSelf   = "https://console.example"
)

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	p := &issuer{TB: t}
	p.key = p.newKey()
	p.signs = p.key
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		if p.down {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		p.answer(w, map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
			"jwks_uri":                              p.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"ES256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		p.answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{
			Key: p.key.Public(), KeyID: "1", Algorithm: "ES256",
			Use: "sig",
		}}})
	})
	mux.HandleFunc("POST /token", p.exchange)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *issuer) newKey() *ecdsa.PrivateKey {
	return testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(p)
}

func (p *issuer) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		p.Error(err)
	}
}

// exchange answers a code with an ID token, for the client that has the secret and the verifier of the code.
func (p *issuer) exchange(w http.ResponseWriter, r *http.Request) {
	p.exchanges++
	id, secret, _ := r.BasicAuth()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	good := id == oidcClient && secret == oidcSecret && p.code != "" && r.PostFormValue("code") == p.code &&
		r.PostFormValue("redirect_uri") == oidcSelf+oidcPath && base64.RawURLEncoding.EncodeToString(sum[:]) == p.challenge
	p.code = ""
	if !good {
		w.WriteHeader(http.StatusBadRequest)
		p.answer(w, map[string]string{"error": "invalid_grant"})
		return
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.signs, KeyID: "1"}},
		nil)
	if err != nil {
		p.Error(err)
		return
	}
	signed, err := signer.Sign(encoded(p, p.claims))
	if err != nil {
		p.Error(err)
		return
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		p.Error(err)
		return
	}
	p.answer(w, map[string]any{"access_token": "a", "token_type": "Bearer", "expires_in": 60, "id_token": token})
}

// allow lets the user of a browser in, which followed the address of the login, and returns where the browser is sent
// back to.
func (p *issuer) allow(to string, claims map[string]any) string {
	p.Helper()
	u := testkit.Must(url.Parse(to))(p)
	q := u.Query()
	if !strings.HasPrefix(to, p.URL+"/authorize?") || q.Get("response_type") != "code" ||
		q.Get("client_id") != oidcClient || q.Get("code_challenge_method") != "S256" ||
		!strings.Contains(q.Get("scope"), "openid") || q.Get("redirect_uri") != oidcSelf+oidcPath || q.Get("state") == "" ||
		q.Get("nonce") == "" {
		p.Fatalf("the login leads to %s", to)
	}
	p.code, p.challenge = rand.Text(), q.Get("code_challenge")
	p.claims = map[string]any{
		"iss": p.URL, "aud": oidcClient, "sub": "4711", "nonce": q.Get("nonce"), "iat": time.Now().Unix(),
		"exp":  time.Now().Add(time.Minute).Unix(),
		"name": "Ana", "groups": []string{"shop-operators"},
	}
	maps.Copy(p.claims, claims)
	return oidcPath + "?" + url.Values{"code": {p.code}, "state": {q.Get("state")}}.Encode()
}

// site is an access whose users log in at the issuer.
func (p *issuer) site(t testing.TB) *fixture {
	t.Helper()
	return start(t, &OIDCConfig{
		Name: "Example Login", Issuer: p.URL, ClientID: oidcClient, ClientSecret: oidcSecret, URL: oidcSelf, Claim: "groups",
		Roles: map[string]control.Role{
			"shop-operators": control.Operator, "shop-admins": control.Admin,
			"everybody": control.Viewer,
		},
	})
}

// begin begins a login, and returns where the browser is sent.
func (b *client) begin(next string) string {
	b.Helper()
	w := b.get("/oidc/start?next=" + url.QueryEscape(next))
	if w.Code != http.StatusSeeOther {
		b.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Header().Get("Location")
}

func TestALoginAtAProvider(t *testing.T) {
	p := newIssuer(t)
	f := p.site(t)
	b := f.client()
	if page := b.get("/login").Body.String(); !strings.Contains(page, "Example Login") {
		t.Error(page)
	}
	back := p.allow(b.begin("/console/fleet"), nil)
	if b.in() {
		t.Error("in before the answer")
	}
	if w := b.get(back); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `content="0;url=/console/fleet"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if who, ok := b.who(); !ok || who.ID != "oidc:4711" || who.Name != "Ana" || who.Role != control.Operator {
		t.Errorf("%+v, %v", who, ok)
	}
	copied := b.again()
	if b.post("/logout"); b.in() || copied.in() {
		t.Error("the session outlives the logout")
	}
}

// The highest role that the map has for the claim counts; without one nobody gets in.
func TestRolesOfAProvider(t *testing.T) {
	p := newIssuer(t)
	f := p.site(t)
	for _, c := range []struct {
		groups any
		want   control.Role // "" for none
	}{
		{"everybody", control.Viewer},
		{[]string{"everybody", "shop-admins", "shop-operators"}, control.Admin},
		{[]string{"x", "everybody"}, control.Viewer},
		{nil, ""},
		{[]string{}, ""},
		{"admin", ""},
		{[]any{1, true}, ""},
		{map[string]any{"shop-admins": true}, ""},
		{"", ""},
	} {
		b := f.client()
		w := b.get(p.allow(b.begin(""), map[string]any{"groups": c.groups}))
		if who, ok := b.who(); who.Role != c.want || ok != (c.want != "") || !ok && w.Code != http.StatusForbidden {
			t.Errorf("%v: %d, %+v, want %q", c.groups, w.Code, who, c.want)
		}
	}
}

// Nothing but the answer to this browser's own login, with a token for it, lets it in.
func TestAnswersOfAProviderThatAreNotGood(t *testing.T) {
	past := time.Now().Add(-time.Hour).Unix()
	for what, c := range map[string]struct {
		claims map[string]any
		do     func(p *issuer, b *client, back string) string // returns where the browser goes
		status int
	}{
		"another audience": {map[string]any{"aud": "other"}, nil, http.StatusBadGateway},
		"another issuer":   {map[string]any{"iss": "https://evil.example"}, nil, http.StatusBadGateway},
		"expired":          {map[string]any{"exp": past}, nil, http.StatusBadGateway},
		"another party":    {map[string]any{"azp": "other"}, nil, http.StatusBadGateway},
		"for several":      {map[string]any{"aud": []string{oidcClient, "other"}}, nil, http.StatusBadGateway},
		"another nonce":    {map[string]any{"nonce": "x"}, nil, http.StatusBadGateway},
		"no nonce":         {map[string]any{"nonce": ""}, nil, http.StatusBadGateway},
		"another key": {nil, func(p *issuer, _ *client, back string) string {
			p.signs = p.newKey()
			return back
		}, http.StatusBadGateway},
		"another code": {nil, func(p *issuer, _ *client, back string) string {
			return strings.Replace(back, p.code, "x", 1)
		}, http.StatusBadGateway},
		"another verifier": {nil, func(p *issuer, _ *client, back string) string {
			p.challenge = "x"
			return back
		}, http.StatusBadGateway},
		"another state": {nil, func(_ *issuer, _ *client, back string) string { return back + "x" }, http.StatusForbidden},
		"no state": {nil, func(p *issuer, _ *client, _ string) string {
			return oidcPath + "?code=" + p.code
		}, http.StatusForbidden},
		"another browser": {nil, func(_ *issuer, b *client, back string) string {
			b.jar = map[string]string{}
			return back
		}, http.StatusForbidden},
		"of a login begun elsewhere": {nil, func(_ *issuer, b *client, back string) string {
			b.begin("")
			return back
		}, http.StatusForbidden},
		"refused there": {
			nil, func(_ *issuer, _ *client, back string) string { return back + "&error=access_denied" },
			http.StatusForbidden,
		},
		"no code": {
			nil, func(p *issuer, _ *client, back string) string { return strings.Replace(back, p.code, "", 1) },
			http.StatusBadGateway,
		},
	} {
		p := newIssuer(t)
		b := p.site(t).client()
		back := p.allow(b.begin(""), c.claims)
		if strings.Contains(back, "state=") && c.do != nil {
			if back = c.do(p, b, back); back == "" {
				t.Fatal(what)
			}
		}
		w := b.get(back)
		if w.Code != c.status || b.in() || c.status == http.StatusForbidden && p.exchanges > 0 {
			t.Errorf("%s: %d, in: %v, %d exchanges", what, w.Code, b.in(), p.exchanges)
		}
	}
}

// The answer of a provider is taken once.
func TestAnAnswerOfAProviderIsTakenOnce(t *testing.T) {
	p := newIssuer(t)
	b := p.site(t).client()
	back := p.allow(b.begin(""), nil)
	before := b.again() // with the cookie of the login that began
	if b.get(back); !b.in() {
		t.Fatal("not in")
	}
	b.post("/logout")
	if w := b.get(back); w.Code != http.StatusForbidden || b.in() {
		t.Errorf("again: %d", w.Code)
	}
	if w := before.get(back); w.Code != http.StatusBadGateway || before.in() {
		t.Errorf("by a copy of the browser: %d", w.Code)
	}
}

// While the provider is away, people get a message, and links work; later its users log in.
func TestAProviderThatIsAway(t *testing.T) {
	p := newIssuer(t)
	p.down = true
	f := p.site(t)
	if w := f.client().get("/oidc/start"); w.Code != http.StatusBadGateway || w.Header().Get("Location") != "" {
		t.Errorf("%d", w.Code)
	}
	f.login("a")
	p.down = false
	b := f.client()
	if b.get(p.allow(b.begin(""), nil)); !b.in() {
		t.Error("not in when it is back")
	}
}

// Without a provider there is no login at one.
func TestNoProvider(t *testing.T) {
	b := start(t, nil).client()
	for _, path := range []string{"/oidc/start", "/oidc/callback?state=&code=x"} {
		if w := b.get(path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// The role of a session is that of the roles that are configured now, and the session ends when there is none.
func TestRolesThatAreTakenAway(t *testing.T) {
	p := newIssuer(t)
	f := p.site(t)
	b := f.client()
	b.get(p.allow(b.begin(""), map[string]any{"groups": []string{"shop-operators", "later"}}))
	role := func() control.Role {
		who, _ := b.who()
		return who.Role
	}
	if role() != control.Operator {
		t.Fatalf("%q", role())
	}
	roles := f.oidc.config.Roles
	delete(roles, "shop-operators")
	if b.in() {
		t.Errorf("in as %q without a role", role())
	}
	roles["later"] = control.Viewer
	if role() != control.Viewer {
		t.Errorf("%q, want the role that was given later", role())
	}
	provider := f.oidc
	if f.oidc = nil; b.in() {
		t.Error("in without the provider")
	}
	f.oidc = provider
}

// After an hour the provider is asked again, without a page between; a form that was begun in time is taken.
func TestAProviderIsAskedAgain(t *testing.T) {
	p := newIssuer(t)
	f := p.site(t)
	b := f.client()
	b.get(p.allow(b.begin(""), nil))
	for range 3 {
		f.pass(20*time.Minute - time.Second)
		if !b.in() {
			t.Fatal("out within the hour")
		}
	}
	f.pass(time.Minute)
	if b.in() {
		t.Error("in after an hour")
	}
	if _, ok := b.Who(b.request(http.MethodPost, home)); !ok {
		t.Error("a form that was begun in time is refused")
	}
	w := b.get("/login?next=/console/fleet")
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/oidc/start?next=%2Fconsole%2Ffleet" {
		t.Errorf("%d %s", w.Code, w.Header().Get("Location"))
	}
	if b.get(p.allow(b.begin("/console/fleet"), nil)); !b.in() {
		t.Error("not in again")
	}
	f.pass(time.Hour + 16*time.Minute)
	if w := b.get("/login"); w.Code != http.StatusOK {
		t.Errorf("after a long time: %d", w.Code)
	}
	token := f.login("a")
	for range 3 {
		f.pass(25 * time.Minute)
		if !token.in() {
			t.Error("the session of a token ended")
		}
	}
}

// Admins list the sessions of persons and end them.
func TestSessionsOfPersonsAreEnded(t *testing.T) {
	p := newIssuer(t)
	f := p.site(t)
	f.login("a")
	b := f.client()
	b.get(p.allow(b.begin(""), nil))
	list, err := f.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Who.Name != "Ana" || list[0].Who.Role != control.Operator {
		t.Fatalf("%+v, %v", list, err)
	}
	if ok, err := f.End(t.Context(), list[0].ID); !ok || err != nil || b.in() {
		t.Errorf("%v, %v, in: %v", ok, err, b.in())
	}
	if ok, err := f.End(t.Context(), list[0].ID); ok || err != nil {
		t.Errorf("again: %v, %v", ok, err)
	}
	if list, err := f.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// A refused login is noted with who tried and why; behind a proxy with TLS the cookies are bound to the host.
func TestRefusedLoginsAndCookies(t *testing.T) {
	p := newIssuer(t)
	f := p.site(t)
	f.HTTPS = true
	var noted []string
	f.Refused = func(_ context.Context, who, from, why string) { noted = append(noted, who+" from "+from+": "+why) }
	b := f.client()
	b.get(p.allow(b.begin(""), map[string]any{"groups": "strangers"}))
	b.get(p.allow(b.begin(""), map[string]any{"azp": "other"}))
	b.get(oidcPath + "?state=x")
	want := []string{
		"Ana from 192.0.2.1: your account has no role here",
		" from 192.0.2.1: the authorized party (azp) is other, not this client",
		" from 192.0.2.1: it was not begun in this browser, or took too long",
	}
	if !slices.Equal(noted, want) {
		t.Errorf("%q, want %q", noted, want)
	}
	w := b.get("/oidc/start")
	if c := w.Result().Cookies(); len(c) != 1 || !c[0].Secure || c[0].Name != "__Host-vestibule_oidc" {
		t.Errorf("%v", c)
	}
	w = b.get(p.allow(w.Header().Get("Location"), nil))
	for _, c := range w.Result().Cookies() {
		if !c.Secure || !strings.HasPrefix(c.Name, "__Host-") || c.Path != "/" || c.Domain != "" {
			t.Errorf("%v", c)
		}
	}
	if !b.in() {
		t.Error("not in")
	}
}
