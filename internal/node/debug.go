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
// and one for profiles.
type Debug struct {
	Registry *prometheus.Registry
	Links    *Links // their refusals are alarms
	listener net.Listener
	profiles net.Listener // nil for none
	title    string
	log      *slog.Logger
}

// NewDebug opens the listeners; Run serves them. title names the node on the index page.
func NewDebug(base *Base, title string, log *slog.Logger) (*Debug, error) {
	l, err := net.Listen("tcp", base.Metrics.Listen)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w", err)
	}
	d := &Debug{Registry: prometheus.NewRegistry(), listener: l, title: title, log: log}
	if base.Profiles.Listen != "" {
		if d.profiles, err = net.Listen("tcp", base.Profiles.Listen); err != nil {
			return nil, errors.Join(fmt.Errorf("pprof.listen: %w", err), l.Close())
		}
	}
	d.Registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	RegisterBuild(d.Registry)
	d.Links = NewLinks(d.Registry)
	return d, nil
}

// handler serves a node. It calls ready and status for every request.
func (d *Debug) handler(ready func() Readiness, status func() any) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.Registry, promhttp.HandlerOpts{
		Registry: d.Registry, ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelWarn),
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		d.writeJSON(w, http.StatusOK, map[string]bool{"alive": true})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r := ready()
		r.Alarms = append(r.Alarms, d.Links.alarms()...)
		code := http.StatusOK
		if !r.Ready {
			code = http.StatusServiceUnavailable
		}
		d.writeJSON(w, code, r)
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		data, err := statusJSON(status())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		d.writeJSON(w, http.StatusOK, json.RawMessage(data))
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if _, err := fmt.Fprintf(w,
			"<!doctype html><title>%[1]s</title><h1>%[1]s</h1><ul><li><a href=metrics>metrics</a><li><a href=status>status</a><li><a href=readyz>readyz</a><li><a href=healthz>healthz</a></ul>",
			html.EscapeString(d.title)); err != nil {
			d.log.Debug("front page not written", slog.Any("error", err))
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

func (d *Debug) writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		d.log.Debug("answer not written", slog.Any("error", err))
	}
}

// URL returns the address of the listener of metrics.
func (d *Debug) URL() string { return "http://" + d.listener.Addr().String() }

// ProfilesURL returns the address of the listener of profiles, empty for none.
func (d *Debug) ProfilesURL() string {
	if d.profiles == nil {
		return ""
	}
	return "http://" + d.profiles.Addr().String()
}

// Listeners returns the addresses of the listeners.
func (d *Debug) Listeners() []net.Addr {
	if d.profiles == nil {
		return []net.Addr{d.listener.Addr()}
	}
	return []net.Addr{d.listener.Addr(), d.profiles.Addr()}
}

// Close closes listeners that do not Run.
func (d *Debug) Close() error {
	if d.profiles == nil {
		return d.listener.Close()
	}
	return errors.Join(d.listener.Close(), d.profiles.Close())
}

// Run runs a node and serves its state until the node has ended, including its shutdown: because ctx ended, or the
// node or a listener failed. ready and status must be safe for concurrent use.
func (d *Debug) Run(
	ctx context.Context, run func(context.Context) error, ready func() Readiness, status func() any,
) error {
	g, ctx := errgroup.WithContext(ctx)
	ended := make(chan struct{})
	g.Go(func() error {
		defer close(ended)
		return run(ctx)
	})
	serve := func(l net.Listener, name string, handler http.Handler) {
		server := &http.Server{
			Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
			ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
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
				d.log.Debug("listener not closed", slog.String("listener", name), slog.Any("error", err))
			}
			return nil
		})
	}
	serve(d.listener, "metrics", d.handler(ready, status))
	if d.profiles != nil {
		serve(d.profiles, "pprof", profileHandler())
	}
	return g.Wait()
}
