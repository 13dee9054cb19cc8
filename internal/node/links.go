package node

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/wire"
	"vestibule/internal/node/natsbus"
)

// Links are a node's connections. They are safe for concurrent use.
type Links struct {
	connected *prometheus.Desc

	mu   sync.Mutex
	keys []string // of the configuration, in order of Add
	all  []*natsbus.Conn
}

// NewLinks returns an empty set with its metrics on reg.
func NewLinks(reg prometheus.Registerer) *Links {
	l := &Links{connected: prometheus.NewDesc("vestibule_nats_connected", "1 while connected to NATS, 0 otherwise.",
		[]string{"connection"}, nil)}
	reg.MustRegister(l)
	return l
}

// Add adds a connection under its configuration key.
func (l *Links) Add(key string, link *natsbus.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys, l.all = append(l.keys, key), append(l.all, link)
}

// alarms returns the alarms of the connections.
func (l *Links) alarms() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for i, link := range l.all {
		if why := link.Refused(); why != "" {
			out = append(out, l.keys[i]+": the server refuses this node: "+why)
		}
		if why := link.Fault(); why != "" {
			out = append(out, l.keys[i]+": NATS cannot be used: "+why)
		}
	}
	return out
}

// Describe implements [prometheus.Collector].
func (l *Links) Describe(ch chan<- *prometheus.Desc) { ch <- l.connected }

// Collect implements [prometheus.Collector].
func (l *Links) Collect(ch chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, link := range l.all {
		up := 0.0
		if link.Connected() {
			up = 1
		}
		ch <- prometheus.MustNewConstMetric(l.connected, prometheus.GaugeValue, up, l.keys[i])
	}
}

// LeaseAlarms returns an alarm if the store has rejected leases for longer than a server replacement takes, or accepts
// them late.
func LeaseAlarms(l wire.Leadership) []string {
	if d, why := l.Trouble(); d > leaseAlarmAfter {
		return []string{fmt.Sprintf("the store has accepted no lease for %v, no process can lead: %s (if its disk is full, make room: then our nats-server goes on, restart any other)", d.Round(time.Second), why)}
	}
	if why := l.Slow(); why != "" {
		return []string{why}
	}
	return nil
}

const leaseAlarmAfter = 3 * time.Second

// DoubtNATS returns what keeps a node from using NATS now, for --check-config: key is the one of the configuration.
func DoubtNATS(key string, c *ClientConfig, name, inbox, stream string) []string {
	if c.URL == "" {
		return nil
	}
	o := c.Options(name, inbox, slog.New(slog.DiscardHandler))
	if err := natsbus.Diagnose(context.Background(), o, stream); err != nil {
		return []string{key + ": NATS cannot be used: " + err.Error()}
	}
	return nil
}
