package allinone

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// OriginOptions configure the demo's site.
type OriginOptions struct {
	Listen  string
	Session time.Duration // a visitor is active until this long after its last request
	Header  string        // request header that identifies visitors; "" for a cookie of the site
	Journal io.Writer     // receives every visit as a line of JSON, see [Visit]; or nil
	Log     *slog.Logger
}

// SentHeader says when a visitor sent a request, in nanoseconds of Unix time. An edge decides between then and the
// request's arrival at the site, however long that takes on a busy machine: the site counts what holds for every such
// moment. A request without it was decided as it arrived.
const SentHeader = "X-Sent"

// Visit is a line of the journal: one request to the site.
type Visit struct {
	Sent  time.Time `json:"sent"` // see [SentHeader]
	At    time.Time `json:"at"`   // of its arrival
	Guest string    `json:"guest"`
}

// Origin is the site of the demo. It counts its sessions by its own means, without knowledge of waiting rooms, so
// that its counts verify them.
type Origin struct {
	session  time.Duration
	header   string
	journal  *json.Encoder // under mu; nil for none
	listener net.Listener
	server   *http.Server
	log      *slog.Logger

	mu       sync.Mutex
	seen     map[string]*guest
	peak     int
	entries  []time.Time // when the first requests that arrived in the last minute were sent
	peakRate int
	total    int
	requests int
}

type guest struct {
	until time.Time // its session lasts for certain: a session's duration after its newest request was sent
	over  time.Time // its session has certainly ended: [LongestSession] after its newest request arrived
	pages int
}

// LongestSession returns for how long at most a session of a duration lasts after its last request: by decision 1 it
// may outlive session_duration by a tenth, 20 s at most, and its ticket ends with a whole second.
func LongestSession(d time.Duration) time.Duration {
	return (d + min(d/10, 20*time.Second) + time.Second - 1).Truncate(time.Second) + time.Second
}

// longestWay is the time after which no request is on its way any more.
const longestWay = time.Minute

// NewOrigin opens a site.
func NewOrigin(opts OriginOptions) (*Origin, error) {
	l, err := net.Listen("tcp", opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("demo origin: %w", err)
	}
	o := &Origin{session: opts.Session, header: opts.Header, listener: l, log: opts.Log, seen: map[string]*guest{}}
	if opts.Journal != nil {
		o.journal = json.NewEncoder(opts.Journal)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats", o.stats)
	// Browsers request it without the page's cookie: it is no visit.
	mux.HandleFunc("/favicon.ico", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "max-age=86400")
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("/", o.page)
	o.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(opts.Log.Handler(), slog.LevelDebug),
	}
	return o, nil
}

// URL returns the site's address.
func (o *Origin) URL() string { return "http://" + o.listener.Addr().String() }

// Run serves until ctx ends.
func (o *Origin) Run(ctx context.Context) error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		if err := o.server.Close(); err != nil {
			o.log.Debug("demo origin", slog.Any("error", err))
		}
	}()
	if err := o.server.Serve(o.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("demo origin: %w", err)
	}
	<-stopped
	return nil
}

// OriginStats are the counts of the origin.
type OriginStats struct {
	Active   int `json:"active"`    // sessions seen within the session duration
	Peak     int `json:"peak"`      // maximum of Active
	PeakRate int `json:"peak_rate"` // maximum of new sessions in any 60 seconds
	Total    int `json:"total"`     // total of sessions
	Requests int `json:"requests"`
}

// Stats returns the counts so far.
func (o *Origin) Stats() OriginStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return OriginStats{
		Active: o.active(time.Now()), Peak: o.peak, PeakRate: o.peakRate, Total: o.total, Requests: o.requests,
	}
}

// active returns the number of sessions, and forgets those that ended before any request that is on its way was sent.
func (o *Origin) active(now time.Time) (n int) {
	for id, g := range o.seen {
		if now.Before(g.until) {
			n++
		} else if now.Sub(g.over) >= longestWay {
			delete(o.seen, id)
		}
	}
	return n
}

// visit counts a request of the visitor with this ID; "" is a new one.
func (o *Origin) visit(id string, sent time.Time) (_ string, pages, active int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if sent.IsZero() || sent.After(now) {
		sent = now
	}
	o.requests++
	if id == "" {
		var b [8]byte
		crand.Read(b[:]) // documented never to fail
		id = hex.EncodeToString(b[:])
	}
	g := o.seen[id]
	if g == nil || !sent.Before(g.over) { // a newcomer, or a session that has expired: it was admitted
		g = &guest{}
		o.seen[id] = g
		o.total++
		o.entries = append(o.entries, sent)
		o.entries = slices.DeleteFunc(o.entries, func(t time.Time) bool { return now.Sub(t) >= time.Minute })
		o.peakRate = max(o.peakRate, len(o.entries))
	}
	if until := sent.Add(o.session); until.After(g.until) {
		g.until = until
	}
	g.over = now.Add(LongestSession(o.session))
	g.pages++
	active = o.active(now)
	o.peak = max(o.peak, active)
	if o.journal != nil {
		if err := o.journal.Encode(Visit{Sent: sent, At: now, Guest: id}); err != nil {
			o.log.Error("demo origin: journal", slog.Any("error", err))
		}
	}
	return id, g.pages, active
}

const originCookie = "demo_guest"

var originPage = template.Must(template.New("origin").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>You are in</title>
<style>body{font:1.05rem/1.6 system-ui,sans-serif;max-width:36rem;margin:10vh auto;padding:0 1rem}h1{font-size:1.7rem}code{font-size:1.1em}</style>
<h1>You are in</h1>
<p>Guest <code>{{.ID}}</code>, page {{.Pages}} of your visit. Guests here now: {{.Active}}.</p>
<p>This is the demo site behind the waiting room. It is yours as long as you ask for a page every {{.Session}}.</p>
<p><a href="?again">Next page</a></p>
</html>
`))

func (o *Origin) page(w http.ResponseWriter, r *http.Request) {
	id := ""
	if o.header != "" {
		id = r.Header.Get(o.header)
	}
	if c, err := r.Cookie(originCookie); id == "" && err == nil && len(c.Value) == 16 {
		id = c.Value
	}
	var sent time.Time
	if ns, err := strconv.ParseInt(r.Header.Get(SentHeader), 10, 64); err == nil {
		sent = time.Unix(0, ns)
	}
	id, pages, active := o.visit(id, sent)
	http.SetCookie(w, &http.Cookie{
		Name: originCookie, Value: id, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("X-Demo-Origin", "1")
	session := o.session
	if r.URL.Path == BusyPath {
		session = busySession
	}
	err := originPage.Execute(w, map[string]any{"ID": id, "Pages": pages, "Active": active, "Session": session})
	if err != nil {
		o.log.Debug("demo origin: page not written", slog.Any("error", err))
	}
}

func (o *Origin) stats(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(o.Stats()); err != nil {
		o.log.Debug("demo origin: stats not written", slog.Any("error", err))
	}
}
