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
)

// Readiness is what /readyz answers.
type Readiness struct {
	Ready    bool     `json:"ready"`
	Isolated bool     `json:"isolated"` // without its parent; this alone does not make a node unready
	Reasons  []string `json:"reasons,omitempty"`
	Alarms   []string `json:"alarms,omitempty"` // for a person to look at; these do not make a node unready
}

// Debug is the listener for people and machines that watch a node: metrics,
// health, readiness, status and pprof. It serves nothing that visitors may see.
type Debug struct {
	Registry *prometheus.Registry
	Links    *Links // what is refused there is among the alarms
	server   *http.Server
	listener net.Listener
	log      *slog.Logger
}

// NewDebug opens the listener. title names the node on the front page; ready
// and status are asked on every request and must be safe for concurrent use.
func NewDebug(listen, title string, log *slog.Logger, ready func() Readiness, status func() any) (*Debug, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w", err)
	}
	d := &Debug{Registry: prometheus.NewRegistry(), listener: l, log: log}
	d.Registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	RegisterBuild(d.Registry)
	d.Links = NewLinks(d.Registry)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.Registry, promhttp.HandlerOpts{
		Registry: d.Registry, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { d.say(w, http.StatusOK, map[string]bool{"alive": true}) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		r := ready()
		r.Alarms = append(r.Alarms, d.Links.alarms()...)
		code := http.StatusOK
		if !r.Ready {
			code = http.StatusServiceUnavailable
		}
		d.say(w, code, r)
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { d.say(w, http.StatusOK, status()) })
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if _, err := fmt.Fprintf(w, "<!doctype html><title>%[1]s</title><h1>%[1]s</h1><ul><li><a href=metrics>metrics</a><li><a href=status>status</a><li><a href=readyz>readyz</a><li><a href=healthz>healthz</a><li><a href=debug/pprof/>pprof</a></ul>", html.EscapeString(title)); err != nil {
			log.Debug("front page not written", slog.Any("error", err))
		}
	})
	d.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return d, nil
}

func (d *Debug) say(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		d.log.Debug("answer not written", slog.Any("error", err))
	}
}

// URL returns where the listener answers.
func (d *Debug) URL() string { return "http://" + d.listener.Addr().String() }

// Run serves until ctx ends.
func (d *Debug) Run(ctx context.Context) error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		if err := d.server.Close(); err != nil {
			d.log.Debug("metrics listener", slog.Any("error", err))
		}
	}()
	err := d.server.Serve(d.listener)
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics listener: %w", err)
	}
	<-stopped
	return nil
}
