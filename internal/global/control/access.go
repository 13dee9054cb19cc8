package control

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Principal is an authenticated client.
type Principal struct {
	ID   string // of the token
	Name string
	Role Role
}

type principalKey struct{}

func principal(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey{}).(Principal)
	return p
}

// authenticate lets requests with a valid token through.
func (t *tokens) authenticate(next http.Handler, out *envelope) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !bearer {
			text = r.Header.Get("X-Auth-Key") // X-Auth-Email adds nothing to the key
		}
		who, err := t.check(r.Context(), source(r.RemoteAddr), strings.TrimSpace(text))
		if err != nil {
			if explain(err).Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="vestibule"`)
			}
			out.fail(w, err)
			return
		}
		base := "http://" + r.Host
		if r.TLS != nil {
			base = "https://" + r.Host
		}
		ctx := context.WithValue(r.Context(), previewHost{}, base)
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, principalKey{}, who)))
	})
}

// source returns the address that failures are counted for: a /64 network for IPv6.
func source(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if a = a.Unmap(); a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}

// throttle bounds how many invalid tokens an address may try. Recently valid tokens still pass, so that a neighbour
// cannot lock anybody out. It is safe for concurrent use.
type throttle struct {
	mu     sync.Mutex
	by     *simplelru.LRU[string, *failures]
	lately *simplelru.LRU[string, struct{}] // ids of valid tokens
}

type failures struct {
	since time.Time
	n     int
}

const (
	maxFailures    = 10 // per address
	failuresWithin = time.Minute
	maxSources     = 10_000
)

func newThrottle() *throttle {
	by, err := simplelru.NewLRU[string, *failures](maxSources, nil)
	if err != nil {
		panic(err) // for a size below 1
	}
	lately, err := simplelru.NewLRU[string, struct{}](maxTokens, nil)
	if err != nil {
		panic(err)
	}
	return &throttle{by: by, lately: lately}
}

// wait returns how long an address has to wait.
func (t *throttle) wait(now time.Time, from string) time.Duration {
	f, ok := t.by.Get(from)
	if !ok || f.n < maxFailures {
		return 0
	}
	return max(0, failuresWithin-now.Sub(f.since))
}

// refuses returns how long tokens from an address are refused, 0 if they are checked.
func (t *throttle) refuses(now time.Time, from, id string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lately.Contains(id) {
		return 0
	}
	return t.wait(now, from)
}

// failed records an invalid token, and returns how long the address has to wait.
func (t *throttle) failed(now time.Time, from string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if wait := t.wait(now, from); wait > 0 {
		return wait
	}
	f, ok := t.by.Get(from)
	if !ok || now.Sub(f.since) >= failuresWithin {
		f = &failures{since: now}
		t.by.Add(from, f)
	}
	f.n++
	return 0
}

func (t *throttle) good(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lately.Add(id, struct{}{})
}
