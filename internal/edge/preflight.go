package edge

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/origin"
)

// Preflights are answered before admission, so the site of a closed room must not feel them: the edge answers from what
// the site said before, and asks it only so often for each address prefix.
const (
	preflightsAtOnce   = 32 // questions in progress
	preflightTime      = 5 * time.Second
	preflightsKept     = 4096             // answers of sites
	preflightKeptFor   = 60 * time.Second // an answer
	preflightsOfPrefix = 120              // questions to sites, per address prefix and minute
	maxPreflight       = 4 << 10          // bytes of CORS headers
)

// preflights answers preflights with the CORS headers of sites. It is safe for concurrent use.
type preflights struct {
	proxy  *proxy
	log    *slog.Logger
	asked  *clientaddr.Rate
	asking *clientaddr.Shares // questions in progress
	kept   *lru.Cache[preflightKey, keptPreflight]

	mu sync.Mutex // of mayAsk
}

// preflightKey is the hash of everything that a site is asked with.
type preflightKey [sha256.Size]byte

// keptPreflight is the answer of a site: nil fields refuse.
type keptPreflight struct {
	fields []gate.Field
	until  time.Time
}

func newPreflights(p *proxy, log *slog.Logger) (*preflights, error) {
	kept, err := lru.New[preflightKey, keptPreflight](preflightsKept)
	if err != nil {
		return nil, err
	}
	return &preflights{
		proxy: p, log: log, asked: clientaddr.NewRate(preflightsOfPrefix), kept: kept,
		asking: clientaddr.NewShares(preflightsAtOnce),
	}, nil
}

// answer sets the answer to a preflight: which pages of other origins may send a request. The site gets only path,
// origin and the CORS request headers, and only CORS headers of its answer are returned: the visitor is not admitted
// (decision 62). A timeout does not count against the site, since a visitor could choose a slow path.
func (p *preflights) answer(r *http.Request, o *gate.Outcome) {
	now, key := time.Now(), keyOf(r, o)
	had, known := p.kept.Get(key)
	fields := had.fields
	if !known || !now.Before(had.until) {
		from := clientaddr.Prefix(o.Client)
		if !p.mayAsk(now, from) {
			o.Header = append(o.Header, gate.Field{Name: "Retry-After", Value: "2"})
			o.Refuse("preflight_refused", "Too many preflights at the moment.", http.StatusServiceUnavailable)
			return
		}
		var err error
		func() {
			defer p.asking.Give(from)
			fields, err = p.askSite(r, o)
		}()
		if err != nil {
			p.log.Debug("preflight not answered by the site", slog.String("host", r.Host), slog.Any("error", err))
		} else {
			p.kept.Add(key, keptPreflight{fields, now.Add(preflightKeptFor)})
		}
	}
	if fields == nil {
		o.Refuse("preflight_refused", "The site does not allow this.", http.StatusForbidden)
		return
	}
	o.Kind, o.Status, o.Header = gate.Answered, http.StatusNoContent, append(o.Header, fields...)
}

// mayAsk takes a place of asking for a question to the site, of a visitor's prefix, and reports whether there was one.
func (p *preflights) mayAsk(now time.Time, from netip.Prefix) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	minute := now.Unix() / 60
	if p.asked.Full(minute, from) || !p.asking.Take(from) {
		return false
	}
	p.asked.Add(minute, from)
	return true
}

// corsHeaders are the header fields of a preflight that reach the site.
var corsHeaders = [...]string{"Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers"}

func keyOf(r *http.Request, o *gate.Outcome) preflightKey {
	path, _, _ := strings.Cut(rawTarget(r), "?")
	parts := []string{o.Origin.URL.Scheme, o.Origin.URL.Host, r.Host, path, fmt.Sprint(o.Secure)}
	for _, name := range corsHeaders {
		parts = append(parts, r.Header.Get(name))
	}
	return sha256.Sum256([]byte(strings.Join(parts, "\x00"))) // no part holds a NUL
}

// askSite returns the CORS headers of the site's answer, nil if its status is not a success.
func (p *preflights) askSite(r *http.Request, o *gate.Outcome) ([]gate.Field, error) {
	ctx, cancel := context.WithTimeout(origin.ForClient(r.Context(), o.Client), preflightTime)
	defer cancel()
	target := rawTarget(r)
	o.MustGo(gate.Preflights, target)
	to := o.Origin.URL
	out := (&http.Request{
		Method: http.MethodOptions, URL: &url.URL{Scheme: to.Scheme, Host: to.Host}, Host: r.Host, Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"User-Agent": {"vestibule-preflight"}},
	}).WithContext(ctx)
	for _, f := range o.AppendForward(nil, r.Host) {
		out.Header[f.Name] = []string{f.Value}
	}
	path, _, _ := strings.Cut(target, "?")
	setPath(out.URL, path)
	for _, name := range corsHeaders {
		if v := r.Header.Get(name); v != "" {
			out.Header.Set(name, v)
		}
	}
	res, err := p.proxy.trip.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return nil, nil
	}
	fields := []gate.Field{{Name: "Cache-Control", Value: "no-store"}}
	size := 0
	for name, values := range res.Header {
		if name != "Vary" && !strings.HasPrefix(name, "Access-Control-") {
			continue
		}
		for _, v := range values {
			fields = append(fields, gate.Field{Name: name, Value: v})
			size += len(name) + len(v)
		}
	}
	if size > maxPreflight {
		return nil, fmt.Errorf("CORS headers of %d bytes, more than %d", size, maxPreflight)
	}
	return fields, nil
}
