package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"vestibule/internal/lab/process"
	"vestibule/internal/lab/testkit"
)

// fleet is a site behind one edge with its regional and global.
type fleet struct {
	dir                   string
	site                  *httptest.Server
	nodes                 []*process.Process
	edge                  *process.Process
	plain, tls, metricsAt string
	memory                int64 // GOMEMLIMIT
}

// filesOfEdge is the limit of open files of the edge: an attack can take them all.
const filesOfEdge = 4096

func startFleet(ctx context.Context, o *options) (_ *fleet, err error) {
	f := &fleet{}
	if f.dir, err = os.MkdirTemp("", "siege"); err != nil {
		return nil, err
	}
	mib, err := strconv.ParseInt(strings.TrimSuffix(o.limit, "MiB"), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("-memory: must be such as 680MiB: %w", err)
	}
	f.memory = mib << 20
	f.site = httptest.NewServer(http.HandlerFunc(serveSite))
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	if err := process.Build(ctx, filepath.Join(f.dir, "bin"), "./cmd/global", "./cmd/regional", "./cmd/edge"); err != nil {
		return nil, err
	}
	var free [6]string
	for i := range free {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		free[i] = l.Addr().String()
		defer l.Close() // the nodes start later
	}
	f.plain, f.tls, f.metricsAt = free[3], free[4], free[5]
	files := map[string]string{
		"rooms.yaml": fmt.Sprintf("rooms:\n"+
			"  - {name: sale, host: %[1]s, path: %[2]s, total_active_users: 10000, new_users_per_minute: 60000, session_duration: 30m, origin: '%[4]s'}\n"+
			"  - {name: full, host: %[1]s, path: %[3]s, total_active_users: 1, new_users_per_minute: 1, queue_all: true, session_duration: 30m, origin: '%[4]s'}\n", host, sale, queue, f.site.URL),
		"global.yaml": fmt.Sprintf("data_centers: [a]\nrooms: rooms.yaml\ndata_dir: ./g\nnats: {embedded: true, listen: '%s'}\nmetrics: {listen: '%s'}\n", free[0], free[1]),
		"regional.yaml": fmt.Sprintf("data_center: a\ndata_dir: ./r\nnats: {url: 'nats://%s'}\nmetrics: {listen: '%s'}\n",
			free[0], free[2]),
		"edge.yaml": fmt.Sprintf("name: e\ndata_center: a\ndata_dir: ./e\nfront: %s\nlisten: %s\ntls: {listen: '%s', cert: c.pem, key: k.pem}\nnats: {url: 'nats://%s'}\nmetrics: {listen: '%s'}\n",
			o.front, f.plain, f.tls, free[0], f.metricsAt),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	if err := writeCertificate(f.dir); err != nil {
		return nil, err
	}
	return f, nil
}

// start starts the nodes: their ports are free now.
func (f *fleet) start(o *options) error {
	log, err := os.Create(filepath.Join(f.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	for _, script := range []string{
		"exec bin/global --config global.yaml --bootstrap", "exec bin/regional --config regional.yaml --bootstrap",
		fmt.Sprintf("ulimit -n %d; exec bin/edge --config edge.yaml", filesOfEdge),
	} {
		p, err := process.Start(process.Options{
			Name: script, Argv: []string{"sh", "-c", "cd " + f.dir + "; " + script},
			Env: []string{"GOMEMLIMIT=" + o.limit}, Stderr: log, Stdout: log,
		})
		if err != nil {
			return err
		}
		f.nodes, f.edge = append(f.nodes, p), p
	}
	return nil
}

func (f *fleet) stop() error {
	var errs []error
	for _, p := range f.nodes {
		errs = append(errs, p.End(syscall.SIGTERM, 20*time.Second))
	}
	f.site.CloseClientConnections()
	f.site.Close()
	return errors.Join(append(errs, os.RemoveAll(f.dir))...)
}

func writeCertificate(dir string) error {
	cert, key, err := testkit.Certificate(1, time.Now().Add(24*time.Hour), host)
	return errors.Join(err,
		os.WriteFile(filepath.Join(dir, "c.pem"), cert, 0o600), os.WriteFile(filepath.Join(dir, "k.pem"), key, 0o600))
}

// metric returns the sum of a metric of the edge over its labels.
func (f *fleet) metric(name string) (sum float64, err error) {
	res, err := http.Get("http://" + f.metricsAt + "/metrics")
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok && rest != "" && (rest[0] == ' ' || rest[0] == '{') {
			n, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, nil
}

// peakMemory returns the most memory that the edge has had.
func (f *fleet) peakMemory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.edge.PID()))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	return kib << 10, err
}

// settles waits until the edge has no connections of visitors, and describes the rest.
func (f *fleet) settles(ctx context.Context, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		visitors, err := f.metric("vestibule_edge_connections")
		if err != nil {
			return "", err
		}
		if visitors == 0 {
			sites, err := f.metric("vestibule_edge_origin_connections")
			return fmt.Sprintf("no connection of visitors, %v kept to the site", sites), err
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%v connections of visitors are left", visitors)
		case <-tick.C:
		}
	}
}
