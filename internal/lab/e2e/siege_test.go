package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/process"
	"vestibule/internal/lab/testkit"
)

var (
	siege     = flag.Bool("siege", false, "run TestSiege (`make siege`)")
	siegeOnly = flag.String("siege-only", "", "attacks of TestSiege whose name contains the text")
)

const (
	siegeFiles  = 4096            // that the edge may open: an attack can take them all
	siegeMemory = 680 << 20       // GOMEMLIMIT of the edge
	siegeLength = 6 * time.Second // of watching each attack
	siegeCrowd  = 5000            // honest visitors behind one address
)

// TestSiege attacks an edge from one address beside visitors from another, and measures what the visitors notice.
func TestSiege(t *testing.T) {
	if !*siege {
		t.Skip("`make siege` runs it")
	}
	for _, front := range []string{"fast", "nethttp"} {
		t.Run(front, func(t *testing.T) { besiege(t, front) })
	}
}

func besiege(t *testing.T, front string) {
	t.Logf("%s; load %s", figures.Machine(), load1(t))
	edge, secure := startBesieged(t, front)
	plain := strings.TrimPrefix(edge.at["url"], "http://")
	people := newPeople(t, plain, net.IPv4(127, 0, 0, 1), 100)
	for _, p := range people {
		until(t, "a visitor gets in or has a place", func() bool { return p.ask(t.Context()) == nil })
	}
	base, goal := askAll(t.Context(), people), "siege of "+front+": "
	t.Logf("%-36s %s", "no attack", base)
	for _, name := range slices.Sorted(maps.Keys(attacks)) {
		a := attacks[name]
		for i, at := range []string{plain, secure} {
			if !strings.Contains(name, *siegeOnly) || a.secureOnly && at == plain {
				continue
			}
			kind := name + []string{"", ", TLS"}[i]
			got := askBeside(t, people, name, at, at == secure)
			t.Logf("%-36s %s", kind, got)
			failed := got.session
			if a.strict {
				failed = got.failed
			}
			figures.Check(t, goal+"failed requests of visitors with a session", kind, float64(failed))
			figures.Check(t, goal+"failed requests", kind, 100*float64(got.failed)/float64(got.n))
			figures.CheckTime(t, goal+"p99 with a session beside no attack", kind, got.quick-base.quick)
			figures.CheckTime(t, goal+"p99 of all beside no attack", kind, got.p99-base.p99)
		}
	}
	refused, n := askInCrowd(t, plain)
	t.Logf("%d honest visitors behind one address, half of them waiting: %d of %d requests refused", siegeCrowd, refused,
		n)
	figures.Check(t, goal+"refused behind one address", "", float64(refused))
	figures.Check(t, goal+"memory beside GOMEMLIMIT", "", float64(memoryOf(t, edge, peakMemory))/siegeMemory)
	took := until(t, "no connection of visitors is left",
		func() bool { return gauge(t, edge, "vestibule_edge_connections") == 0 })
	t.Logf("after %.1f s no connection of visitors, %d kept to the site; load %s", took.Seconds(),
		gauge(t, edge, "vestibule_edge_origin_connections"), load1(t))
	figures.CheckTime(t, goal+"until no connection is left", "", took)
}

// startBesieged starts an edge with a room that nobody waits for, and one that nobody enters. It also returns the
// address for TLS.
func startBesieged(t *testing.T, front string) (edge *command, secure string) {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(serveBesieged))
	t.Cleanup(func() {
		site.CloseClientConnections()
		site.Close()
	})
	bin, dir := build(t), t.TempDir()
	const rooms = `rooms:
- {name: sale, host: 127.0.0.1, path: /sale, total_active_users: 10000, new_users_per_minute: 60000,
   session_duration: 30m, origin: %[1]q}
- {name: full, host: 127.0.0.1, path: /full, total_active_users: 1, new_users_per_minute: 1, queue_all: true,
   session_duration: 30m, origin: %[1]q}
`
	nats, _ := fleet(t, bin, dir, fmt.Sprintf(rooms, site.URL), "nairobi")
	secure, cert := testkit.FreeAddr(t), certificate(t, dir, []string{"127.0.0.1"})
	config := edgeFile(t, dir, nats, "nairobi", "edge-1", fmt.Sprintf(
		"listen: 127.0.0.1:0\nfront: %s\ntls: {listen: %q, cert: %q, key: %[3]q}\n", front, secure, cert))
	edge = launch(t, process.Options{Env: []string{fmt.Sprint("GOMEMLIMIT=", siegeMemory)}}, "/bin/sh", "-c",
		fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, siegeFiles), filepath.Join(bin, "edge"), "--config", config)
	edge.listens(t)
	areReady(t, edge)
	return edge, secure
}

// serveBesieged is the site.
func serveBesieged(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Upgrade") != "":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		for b := make([]byte, 1<<10); err == nil; {
			_, err = conn.Read(b)
		}
	case r.URL.Path == "/slow":
		pause(r.Context(), time.Second)
	case r.URL.Path == "/large":
		for b, n := make([]byte, 64<<10), 0; n < 256; n++ {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	default:
		w.Header().Set("X-Demo-Origin", "1")
		fmt.Fprintln(w, "the site")
	}
}

// besieged is a visitor with a session, or one that waits.
type besieged struct {
	*guest
	session bool
}

// newPeople returns n visitors behind one address: every second one is to have a session, the others wait.
func newPeople(t *testing.T, at string, from net.IP, n int) (out []besieged) {
	t.Helper()
	dial := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	transport := &http.Transport{DialContext: dial.DialContext, DisableKeepAlives: true, DisableCompression: true}
	for i := range n {
		url := "http://" + at + []string{"/sale", "/full"}[i%2]
		out = append(out, besieged{newGuest(t, url, transport), i%2 == 0})
	}
	return out
}

// errWaits means that a visitor waits that is to have a session.
var errWaits = errors.New("a visitor with a session waits")

// ask asks for the visitor's page over a connection of its own.
func (p besieged) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := p.Request(ctx, p.url)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/html")
	a, err := p.Do(req)
	switch {
	case err != nil:
		return err
	case a.Status != http.StatusOK:
		return fmt.Errorf("status %d", a.Status)
	case p.session && !a.Inside:
		return errWaits
	case !p.session && a.Inside:
		return errors.New("a visitor that is to wait is inside")
	}
	return nil
}

// noticed is the experience of the visitors.
type noticed struct {
	n, failed, session int           // requests, failed ones, and those of visitors with a session
	p99, quick         time.Duration // of all, and of visitors with a session: others may be held for a second
	newest             error
}

func (s noticed) String() string {
	text := fmt.Sprintf("%d of those with a session and %d of %d in all failed, p99 %v and %v", s.session, s.failed, s.n,
		s.quick.Round(time.Millisecond), s.p99.Round(time.Millisecond))
	if s.newest != nil {
		text += fmt.Sprintf(" (%v)", s.newest)
	}
	return text
}

// askAll has every visitor ask twice a second.
func askAll(ctx context.Context, people []besieged) (s noticed) {
	const every = 500 * time.Millisecond
	var mu sync.Mutex
	var took, quick []time.Duration
	var all sync.WaitGroup
	end := time.Now().Add(siegeLength)
	for i, p := range people {
		all.Go(func() {
			tick := time.NewTicker(every)
			defer tick.Stop()
			pause(ctx, every*time.Duration(i)/time.Duration(len(people)))
			for time.Now().Before(end) {
				begun := time.Now()
				err := p.ask(ctx)
				d := time.Since(begun)
				mu.Lock()
				if took = append(took, d); p.session {
					quick = append(quick, d)
				}
				if err != nil {
					s.failed, s.newest = s.failed+1, err
					if p.session {
						s.session++
					}
				}
				mu.Unlock()
				<-tick.C
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	slices.Sort(quick)
	s.n, s.p99, s.quick = len(took), took[len(took)*99/100], quick[len(quick)*99/100]
	return s
}

// askBeside asks while another process attacks.
func askBeside(t *testing.T, people []besieged, attack, at string, secure bool) noticed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s,%s,%v", attackVariable, attack, at, secure))
	cmd.Stderr = os.Stderr
	testkit.NoError(t, cmd.Start())
	pause(t.Context(), held/opened*time.Second) // it takes what it can get
	s := askAll(t.Context(), people)
	testkit.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	pause(t.Context(), time.Second)
	return s
}

// askInCrowd has honest visitors behind one address ask thrice, half of them with a session, and returns how many
// requests fail.
func askInCrowd(t *testing.T, at string) (refused, asked int) {
	t.Helper()
	people := newPeople(t, at, net.IPv4(127, 8, 8, 8), siegeCrowd)
	var mu sync.Mutex
	for range 3 {
		var all sync.WaitGroup
		work := make(chan besieged)
		for range 64 {
			all.Go(func() {
				for p := range work {
					err := p.ask(t.Context())
					mu.Lock()
					if asked++; err != nil && !errors.Is(err, errWaits) { // it may wait for a second for its permit
						if refused++; refused == 1 {
							t.Logf("one of the crowd: %v", err)
						}
					}
					mu.Unlock()
				}
			})
		}
		for _, p := range people {
			work <- p
		}
		close(work)
		all.Wait()
	}
	return refused, asked
}

// load1 returns the load of the machine.
func load1(t *testing.T) string {
	t.Helper()
	text := testkit.Must(os.ReadFile("/proc/loadavg"))(t)
	return strings.Fields(string(text))[0]
}
