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
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/origin"
)

// Preflights are answered before admission, so the site of a closed room must not feel them: the edge answers from what
// the site said before, and asks it only so often for each address prefix. Rooms with space are not bounded.
const (
	preflightsAtOnce = 32          // questions in progress to sites of rooms without space
	preflightWait    = time.Second // for one of them
	preflightTime    = 5 * time.Second
	preflightsKept   = 4096             // answers of sites
	preflightKeptFor = 60 * time.Second // an answer
	maxPreflight     = 4 << 10          // bytes of CORS headers
)

// preflights answers preflights with the CORS headers of sites. It is safe for concurrent use.
type preflights struct {
	proxy  *proxy
	log    *slog.Logger
	asks   *gate.Asks
	asking *clientaddr.Shares // questions in progress
	kept   *lru.Cache[preflightKey, keptPreflight]
}

// preflightKey is the hash of everything that a site is asked with.
type preflightKey [sha256.Size]byte

// keptPreflight is the answer of a site: nil fields refuse.
type keptPreflight struct {
	fields []gate.Field
	until  time.Time
}

func newPreflights(p *proxy, asks *gate.Asks, log *slog.Logger) (*preflights, error) {
	kept, err := lru.New[preflightKey, keptPreflight](preflightsKept)
	if err != nil {
		return nil, err
	}
	return &preflights{
		proxy: p, log: log, asks: asks, kept: kept, asking: clientaddr.NewShares(preflightsAtOnce),
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
		if !p.asks.May(now, &o.Asks) || !o.Asks.Free && !p.take(r.Context(), clientaddr.Prefix(o.Client)) {
			o.Header = append(o.Header, gate.Field{Name: "Retry-After", Value: "2"})
			o.Refuse("preflight_limited", "Too many preflights at the moment.", http.StatusServiceUnavailable)
			return
		}
		var err error
		func() {
			if !o.Asks.Free {
				defer p.asking.Give(clientaddr.Prefix(o.Client))
			}
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

// take takes a place for a question in progress of a visitor's prefix, and reports whether there was one in time.
func (p *preflights) take(ctx context.Context, from netip.Prefix) bool {
	if p.asking.Take(from) {
		return true
	}
	late := time.NewTimer(preflightWait)
	defer late.Stop()
	again := time.NewTicker(preflightWait / 50)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			if p.asking.Take(from) {
				return true
			}
		case <-late.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
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
