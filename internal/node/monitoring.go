package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"
)

// Monitoring is one listener for the nodes of a process, in place of a Debug listener for each: metrics have the label
// node, the rest the name of the node. It is safe for concurrent use.
type Monitoring struct {
	listener net.Listener
	own      Listeners            // of the process
	process  *prometheus.Registry // metrics without a node
	log      *slog.Logger

	mu    sync.Mutex
	nodes []*Debug // those that run, by name
}

// NewMonitoring opens a listener; Run serves it.
func NewMonitoring(addr string, log *slog.Logger) (*Monitoring, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	m := &Monitoring{listener: l, process: prometheus.NewRegistry(), log: log}
	registerProcess(m.process)
	m.own.Add(l.Addr())
	return m, nil
}

// URL returns the address of the listener.
func (m *Monitoring) URL() string { return "http://" + m.listener.Addr().String() }

// Run serves the nodes that run, until ctx ends or the listener fails.
func (m *Monitoring) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	p := pages{"Vestibule", m, m.process, m.readiness, m.status, m.log}
	serveUntil(g, ctx.Done(), m.listener, "metrics", p.handler(), m.log)
	return g.Wait()
}

// add adds a node. The caller must call remove when the node has ended.
func (m *Monitoring) add(d *Debug) (remove func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes = append(m.nodes, d)
	slices.SortFunc(m.nodes, func(a, b *Debug) int { return cmp.Compare(a.name, b.name) })
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.nodes = slices.DeleteFunc(m.nodes, func(x *Debug) bool { return x == d })
	}
}

func (m *Monitoring) running() []*Debug {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.nodes)
}

// Gather implements [prometheus.Gatherer].
func (m *Monitoring) Gather() ([]*dto.MetricFamily, error) {
	all := prometheus.Gatherers{m.process}
	for _, d := range m.running() {
		all = append(all, d.gatherer)
	}
	return all.Gather()
}

// readiness is that of the nodes with visitors: a load balancer asks for it. Reasons of the other nodes are alarms.
func (m *Monitoring) readiness() Readiness {
	var all Readiness
	served := false
	for _, d := range m.running() {
		r := d.readiness()
		tell := func(to *[]string, texts []string) {
			for _, text := range texts {
				*to = append(*to, fmt.Sprintf("%s: %s", d.name, text))
			}
		}
		tell(&all.Alarms, r.Alarms)
		if !d.Visitors {
			tell(&all.Alarms, r.Reasons)
			continue
		}
		served = true
		all.Isolated = all.Isolated || r.Isolated
		tell(&all.Reasons, r.Reasons)
		all.Stops = append(all.Stops, r.Stops[:min(len(r.Stops), MaxStops-len(all.Stops))]...)
	}
	if !served {
		all.Reasons = append(all.Reasons, "no edge runs")
	}
	all.Ready = len(all.Reasons) == 0
	return all
}

// status is that of each node, by name.
func (m *Monitoring) status() any {
	all := map[string]any{}
	for _, d := range m.running() {
		all[d.name] = d.status()
	}
	return all
}
