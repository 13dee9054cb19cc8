//go:build linux

package edge

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

// BenchmarkPages measures waiting pages with a fresh ticket per second from one core, for newcomers and returning
// visitors, beside an nginx that serves a file of the same size. wrk runs on the other core. Rounds take turns and
// medians are reported, since the machine may have other work.
func BenchmarkPages(b *testing.B) {
	tools := needs(b, "nginx", "wrk", "taskset")
	st := open(b, func(st *stage) { st.params.Refresh = time.Hour })
	st.up.queue(sale, 1234, 2)
	page := st.door.visitor().get(saleURL)
	if !strings.Contains(page.body, "1,234") || len(page.Header["Set-Cookie"]) != 1 {
		b.Fatalf("%d %v", page.StatusCode, page.Header)
	}
	static, worker := startFile(b, tools, len(page.body))
	place := inLine(7)
	place.Joined = st.server.Status().Time
	back := "Cookie: " + st.keys.seal("sale", place)

	const html = "Accept: text/html"
	sides := []*side{
		{name: "newcomers", url: "http://" + st.door.addr(0) + "/", header: []string{html}, pid: os.Getpid()},
		{name: "back", url: "http://" + st.door.addr(0) + "/", header: []string{back}, pid: os.Getpid()},
		{name: "nginx", url: static, header: []string{html}, pid: worker},
	}
	takeTurns(b, tools, sides)
	for _, s := range sides[:2] {
		// By processor time: wrk has one core too, and cannot keep nginx busy.
		b.ReportMetric(median(sides[2].cpus)/median(s.cpus), s.name+"-of-nginx")
	}
	b.ReportMetric(float64(len(page.body)), "B/page")
	b.ReportMetric(0, "ns/op")
}

// needs returns the paths of programs that a benchmark runs, and skips it if one is missing.
func needs(b *testing.B, names ...string) map[string]string {
	tools := map[string]string{}
	for _, name := range names {
		tools[name] = testkit.Program(b, name)
	}
	if runtime.NumCPU() < 2 {
		b.Fatal("there is one core only, and wrk needs one too")
	}
	return tools
}

// takeTurns asks the sides in turns, and reports the medians.
func takeTurns(b *testing.B, tools map[string]string, sides []*side) {
	b.Helper()
	turns(b, tools, sides)
	for _, s := range sides {
		b.ReportMetric(median(s.rates), s.name+"/s")
		b.ReportMetric(median(s.cpus)*1e6, s.name+"-us-cpu")
	}
}

// turns asks the sides in turns, this process on the first core.
func turns(b *testing.B, tools map[string]string, sides []*side) {
	b.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	pin(b, tools["taskset"], "0")
	defer pin(b, tools["taskset"], "0-"+strconv.Itoa(runtime.NumCPU()-1))
	for _, s := range sides {
		s.load(b, tools)
	}
	const rounds = 5
	for b.Loop() {
		for range rounds {
			for _, s := range sides {
				rate, cpu := s.loadAlone(b, tools)
				s.rates, s.cpus = append(s.rates, rate), append(s.cpus, cpu)
			}
		}
	}
}

// side is one server under test.
type side struct {
	name, url   string
	header      []string
	pid         int
	helper      int    // another process that works for it, 0 for none
	http2       bool   // 64 connections with 8 requests each
	visit       string // of [visits]; "" for connections that are kept
	rates, cpus []float64
}

var (
	perSecond = regexp.MustCompile(`Requests/sec: +([0-9.]+)`)
	inAll     = regexp.MustCompile(`([0-9]+) requests in`)
)

// loadAlone is load, again if others had more than 6 % of the first core, at most three times.
func (s *side) loadAlone(b *testing.B, tools map[string]string) (rate, cpu float64) {
	b.Helper()
	for range 3 {
		busy, begun := busyOthers(b, s), time.Now()
		rate, cpu = s.load(b, tools)
		if busyOthers(b, s)-busy < .06*time.Since(begun).Seconds() {
			break
		}
		b.Logf("%s: others were busy on its core", s.name)
	}
	return rate, cpu
}

// busyOthers returns the seconds that the first core has worked for others than a side and this process: also for
// another machine.
func busyOthers(b *testing.B, s *side) float64 {
	b.Helper()
	data := testkit.Must(os.ReadFile("/proc/stat"))(b)
	_, line, _ := strings.Cut(string(data), "cpu0 ")
	var user, nice, system, idle, wait, irq, softirq, steal float64
	testkit.Must(fmt.Sscan(line, &user, &nice, &system, &idle, &wait, &irq, &softirq, &steal))(b)
	known := s.used(b)
	if s.pid != os.Getpid() {
		known += cpuOf(b, os.Getpid())
	}
	return (user+nice+system+steal)/100 - known // as in cpuOf
}

// load asks for a second from another core. It returns answers per second, and
// seconds of processor time per answer.
func (s *side) load(b *testing.B, tools map[string]string) (rate, cpu float64) {
	b.Helper()
	used := s.used(b)
	var out bytes.Buffer
	args := []string{"-c", "1", tools["wrk"], "-t1", "-c64", "-d1s", "-H", "Host: sale.example", "-H", "User-Agent: bench"}
	switch {
	case s.http2:
		return s.loadHTTP2(b, tools)
	case s.visit != "":
		return s.loadVisits(b, tools)
	}
	for _, line := range s.header {
		args = append(args, "-H", line)
	}
	wrk := exec.CommandContext(b.Context(), tools["taskset"], append(args, s.url)...)
	wrk.Stdout, wrk.Stderr = &out, &out
	if err := wrk.Run(); err != nil {
		b.Fatalf("%v: %s", err, out.String())
	}
	per, all := perSecond.FindSubmatch(out.Bytes()), inAll.FindSubmatch(out.Bytes())
	if per == nil || all == nil || strings.Contains(out.String(), "Non-2xx") ||
		strings.Contains(out.String(), "Socket errors") {
		b.Fatal(out.String())
	}
	rate, err := strconv.ParseFloat(string(per[1]), 64)
	n, err2 := strconv.ParseFloat(string(all[1]), 64)
	testkit.NoError(b, errors.Join(err, err2))
	return rate, (s.used(b) - used) / n
}

// used returns the seconds of processor time that a side has used.
func (s *side) used(b *testing.B) float64 {
	used := cpuOf(b, s.pid)
	if s.helper != 0 {
		used += cpuOf(b, s.helper)
	}
	return used
}

// BenchmarkFrontAuth measures fronts' questions about admitted visitors per second from one core, beside an answer of
// 200 to the same requests by net/http's server.
func BenchmarkFrontAuth(b *testing.B) {
	tools := needs(b, "wrk", "taskset")
	static := newStage(b, reads(frontNetHTTP))
	static.server.listeners[0].handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
	})
	static.start()
	var sides []*side
	for _, form := range []string{formHeaders, formAccel} {
		header := []string{
			"Accept: text/html", "Accept-Language: en", "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: http",
		}
		if form == formHeaders {
			header = append(header, "X-Forwarded-Method: GET", "X-Forwarded-Host: sale.example",
				"X-Forwarded-Uri: /tickets?show=1")
		}
		const path = "/tickets?show=1"
		beside := &side{name: "static-" + form, url: "http://" + static.door.addr(0) + path, pid: os.Getpid()}
		sides = append(sides, beside)
		for _, reader := range []string{frontNetHTTP, frontFast} {
			st := openFront(b, form, reads(reader))
			st.up.queue(sale, 10, 1)
			beside.header = append([]string{"Cookie: theirs=1; " + st.keys.seal("sale", session(7))}, header...)
			sides = append(sides, &side{
				name: form + "-" + reader, url: "http://" + st.door.addr(0) + path,
				header: beside.header, pid: os.Getpid(),
			})
		}
	}
	takeTurns(b, tools, sides)
	for i, s := range sides {
		if i%3 > 0 { // By processor time: wrk has one core too.
			b.ReportMetric(ratio(sides[i-i%3].cpus, s.cpus), s.name+"-of-static")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkFronts measures requests of admitted visitors per second through nginx and HAProxy on one core, shared
// with edge and site, with and without questions to the edge.
func BenchmarkFronts(b *testing.B) {
	tools := needs(b, "wrk", "taskset")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request,
	) {
		fmt.Fprint(w, "the site")
	}))
	b.Cleanup(site.Close)
	var sides []*side
	for _, f := range testkit.Fronts[:2] {
		st := openFront(b, f.Form, nil)
		at := testkit.FrontPlaces{Edges: []string{st.door.addr(0)}, Site: site.Listener.Addr().String()}
		header := []string{"Cookie: theirs=1; " + st.keys.seal("sale", session(7)), "Accept: text/html"}
		for _, name := range []string{f.Name, f.Name + "-alone"} {
			sides = append(sides, &side{
				name: name, url: "http://" + startFront(b, &f, at, 1) + "/", header: header,
				pid: os.Getpid(),
			})
			at.Alone = true
		}
	}
	takeTurns(b, tools, sides)
	for i := 0; i < len(sides); i += 2 {
		b.ReportMetric(median(sides[i].rates)/median(sides[i+1].rates), sides[i].name+"-of-alone")
	}
	b.ReportMetric(0, "ns/op")
}

// cpuOf returns the seconds of processor time that a process has used.
func cpuOf(b *testing.B, pid int) float64 {
	if pid == os.Getpid() {
		return cpuTime(b).Seconds()
	}
	data := testkit.Must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(b)
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	ticks := 0.
	for _, f := range fields[11:13] {
		ticks += testkit.Must(strconv.ParseFloat(f, 64))(b)
	}
	return ticks / 100 // USER_HZ, the same on every architecture that Go knows
}

// pin puts all threads of this process on some cores.
func pin(b *testing.B, taskset, cores string) {
	b.Helper()
	if out, err := exec.CommandContext(b.Context(), taskset, "-a", "-c", "-p", cores,
		strconv.Itoa(os.Getpid())).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
}

// ratio returns the median of how many times of b is a, round by round.
func ratio(a, b []float64) float64 {
	all := make([]float64, len(a))
	for i := range a {
		all[i] = a[i] / b[i]
	}
	return median(all)
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// startFile has an nginx on the first core serve a file of size bytes.
func startFile(b *testing.B, tools map[string]string, size int) (url string, worker int) {
	b.Helper()
	dir := b.TempDir()
	testkit.NoError(b, os.WriteFile(filepath.Join(dir, "page.html"), bytes.Repeat([]byte("x"), size), 0o600))
	addr, worker := startNginx(b, tools, 0, "sendfile on; tcp_nopush on; default_type text/html; open_file_cache max=10;",
		"root "+dir+";")
	return "http://" + addr + "/page.html", worker
}

// startNginx runs an nginx with one worker on a core until the benchmark ends. server is the content of its server
// block, http stands beside it, and more holds options of the listen address and further arguments.
func startNginx(b *testing.B, tools map[string]string, core int, http, server string, more ...string) (addr string,
	worker int,
) {
	b.Helper()
	addr = testkit.FreeAddr(b)
	args := append(testkit.Nginx(b, b.TempDir(), http+"\n\tserver { listen "+addr+strings.Join(more[:min(1, len(more))],
		"")+"; "+server+" }"), more[min(1, len(more)):]...)
	nginx := exec.CommandContext(b.Context(), tools["taskset"],
		append([]string{"-c", strconv.Itoa(core), tools["nginx"]}, args...)...)
	nginx.Stderr = os.Stderr
	nginx.Cancel = func() error { return nginx.Process.Signal(syscall.SIGTERM) }
	testkit.NoError(b, nginx.Start())
	b.Cleanup(func() {
		nginx.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
		nginx.Wait()                          //nolint:errcheck // it was stopped
	})
	listens(b, "nginx", addr)
	eventually(b, "nginx has a worker", func() bool {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", nginx.Process.Pid, nginx.Process.Pid))
		testkit.NoError(b, err)
		worker, err = strconv.Atoi(strings.TrimSpace(string(children)))
		return err == nil
	})
	return addr, worker
}

// listens waits for a listener at addr.
func listens(b *testing.B, who, addr string) {
	b.Helper()
	eventually(b, who+" listens", func() bool {
		c, err := net.Dial("tcp", addr)
		return err == nil && c.Close() == nil
	})
}
