package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"vestibule/internal/core/stop"
)

// Readiness is the response of /readyz.
type Readiness struct {
	Ready    bool     `json:"ready"`
	Isolated bool     `json:"isolated"` // without a parent; this alone does not make a node unready
	Reasons  []string `json:"reasons,omitempty"`
	Alarms   []string `json:"alarms,omitempty"` // for operators; these do not make a node unready

	// Stops says why nobody enters, as this node knows: for all of its rooms, or for one. At most MaxStops.
	Stops []stop.View `json:"stops,omitempty"`
}

// MaxStops bounds Readiness.Stops: there may be thousands of rooms.
const MaxStops = 100

// Add adds a stop, unless there are MaxStops already.
func (r *Readiness) Add(s stop.Stop) {
	if !s.OK() && len(r.Stops) < MaxStops {
		r.Stops = append(r.Stops, s.View())
	}
}

// Debug are the listeners for monitoring, which visitors must not reach: one for metrics, health, readiness and status,
// and one for profiles. The nodes of one process may share the first.
type Debug struct {
	Registry prometheus.Registerer
	Links    *Links     // their refusals are alarms
	Visitors bool       // visitors connect to this node: the process is not ready before the node
	Own      *Listeners // of the process

	name     string
	gatherer prometheus.Gatherer
	listener net.Listener // nil with shared
	shared   *Monitoring
	profiles net.Listener // nil for none
	log      *slog.Logger

	ready  func() Readiness // safe for concurrent use, and so is status
	status func() any
}

// NewDebug opens the listeners; Run serves them. The words of name tell the node from others of the process. With
// shared it opens none for metrics.
func NewDebug(base *Base, name string, shared *Monitoring, log *slog.Logger) (*Debug, error) {
	reg := prometheus.NewRegistry()
	d := &Debug{Registry: reg, Own: &Listeners{}, gatherer: reg, name: name, shared: shared, log: log}
	if shared != nil {
		d.Own = &shared.own
		d.name = strings.ReplaceAll(name, " ", "-")
		d.Registry = prometheus.WrapRegistererWith(prometheus.Labels{"node": d.name}, reg)
	} else {
		var err error
		if d.listener, err = net.Listen("tcp", base.Metrics.Listen); err != nil {
			return nil, fmt.Errorf("metrics.listen: %w", err)
		}
		d.Own.Add(d.listener.Addr())
		registerProcess(reg)
	}
	if base.Profiles.Listen != "" {
		var err error
		if d.profiles, err = net.Listen("tcp", base.Profiles.Listen); err != nil {
			return nil, errors.Join(fmt.Errorf("pprof.listen: %w", err), d.Close())
		}
		d.Own.Add(d.profiles.Addr())
	}
	RegisterBuild(d.Registry)
	d.Links = NewLinks(d.Registry)
	return d, nil
}

// registerProcess registers the metrics of the whole process.
func registerProcess(reg prometheus.Registerer) {
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
}

// readiness returns the answer of /readyz.
func (d *Debug) readiness() Readiness {
	r := d.ready()
	r.Alarms = append(r.Alarms, d.Links.alarms()...)
	return r
}

// pages are the content of a listener for monitoring. Its functions are called for every request.
type pages struct {
	title    string
	gatherer prometheus.Gatherer
	reg      prometheus.Registerer // of the metrics of the page of metrics
	ready    func() Readiness
	status   func() any
	log      *slog.Logger
}

func (p *pages) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.gatherer, promhttp.HandlerOpts{
		Registry: p.reg, ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelWarn), MaxRequestsInFlight: maxScrapes,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		p.writeJSON(w, http.StatusOK, map[string]bool{"alive": true})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r := p.ready()
		code := http.StatusOK
		if !r.Ready {
			code = http.StatusServiceUnavailable
		}
		p.writeJSON(w, code, r)
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		data, err := statusJSON(p.status())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		p.writeJSON(w, http.StatusOK, json.RawMessage(data))
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if _, err := fmt.Fprintf(w,
			"<!doctype html><title>%[1]s</title><h1>%[1]s</h1><ul><li><a href=metrics>metrics</a><li><a href=status>status</a><li><a href=readyz>readyz</a><li><a href=healthz>healthz</a></ul>",
			html.EscapeString(p.title)); err != nil {
			p.log.Debug("front page not written", slog.Any("error", err))
		}
	})
	return mux
}

// profileHandler serves profiles.
func profileHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

func (p *pages) writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		p.log.Debug("answer not written", slog.Any("error", err))
	}
}

// URL returns the address of the listener of metrics.
func (d *Debug) URL() string {
	if d.shared != nil {
		return d.shared.URL()
	}
	return "http://" + d.listener.Addr().String()
}

// own returns the listeners of this node alone.
func (d *Debug) own() (out []net.Listener) {
	for _, l := range []net.Listener{d.listener, d.profiles} {
		if l != nil {
			out = append(out, l)
		}
	}
	return out
}

// Close closes listeners that do not Run.
func (d *Debug) Close() error {
	var errs []error
	for _, l := range d.own() {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Run runs a node and serves its state until the node has ended, including its shutdown: because ctx ended, or the
// node or a listener failed. ready and status must be safe for concurrent use.
func (d *Debug) Run(
	ctx context.Context, run func(context.Context) error, ready func() Readiness, status func() any,
) error {
	d.ready, d.status = ready, status
	g, ctx := errgroup.WithContext(ctx)
	ended := make(chan struct{})
	g.Go(func() error {
		defer close(ended)
		return run(ctx)
	})
	if d.shared != nil {
		defer d.shared.add(d)()
	} else {
		p := pages{"Vestibule " + d.name, d.gatherer, d.Registry, d.readiness, status, d.log}
		serveUntil(g, ended, d.listener, "metrics", p.handler(), d.log)
	}
	if d.profiles != nil {
		serveUntil(g, ended, d.profiles, "pprof", profileHandler(), d.log)
	}
	return g.Wait()
}

// Bounds of what clients that do not read their answers keep in memory. Profiles take longer than scrapeWithin: package
// pprof moves the deadline.
const (
	maxScrapes   = 16
	scrapeWithin = 30 * time.Second
)

// serveUntil serves a listener in g until ended is closed.
func serveUntil(
	g *errgroup.Group, ended <-chan struct{}, l net.Listener, name string, handler http.Handler, log *slog.Logger,
) {
	server := &http.Server{
		Handler: RefuseForwarded(handler), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: scrapeWithin, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	g.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("%s listener: %w", name, err)
		}
		return nil
	})
	g.Go(func() error {
		<-ended
		if err := server.Close(); err != nil {
			log.Debug("listener not closed", slog.String("listener", name), slog.Any("error", err))
		}
		return nil
	})
}
