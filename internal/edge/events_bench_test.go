//go:build unix

package edge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/sse"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/page"
)

// BenchmarkEventStreams opens as many event streams from another process as the goal names or the machine allows, and
// sends a new message to all of them in each round. It measures the edge's process.
func BenchmarkEventStreams(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchmarkStreams(b, false) })
	b.Run("tls", func(b *testing.B) { benchmarkStreams(b, true) })
}

// wanted is how many streams are opened; the files of the edge bound it.
func wanted(b *testing.B) int {
	var limit syscall.Rlimit
	testkit.NoError(b, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	return shareFiles(int(limit.Cur), 0, 20_000).streams
}

func benchmarkStreams(b *testing.B, secure bool) {
	const seconds = 5 // in which a stream far back gets one message
	n := wanted(b)
	st := openRooms(b, func(st *stage) {
		st.cfg.Events = EventsConfig{Total: n, Prefix: n}
		st.params.Knock = time.Millisecond
		st.castEvery = time.Hour // the benchmark sends the messages
		if secure {
			st.withTLS()
		}
	}, nil)
	round := 0
	news := func() {
		round++
		at := fleettime.TimeOf(time.Now())
		var h estimate.Histogram
		for i := range 48 {
			h = append(h, estimate.Slice{
				Start: at - 600_000 + fleettime.Time(i*12_000), Width: 12_000,
				N: float64(400 + round%7 + i),
			})
		}
		st.up.mu.Lock()
		defer st.up.mu.Unlock()
		st.up.held[sale].View = &wire.View{
			Version: st.up.seq + 1, At: at, Since: at - 600_000, Cutoff: 1, Mu: 12.5,
			Paces: []estimate.Pace{{Mu: 12.5}}, Theta: .0001, Line: estimate.NewDigest(h),
		}
		st.up.say()
	}
	news()

	var cookies bytes.Buffer
	for id := range n {
		cookie := st.keys.seal("sale", inLine(uint64(id)+1))
		if secure {
			cookie = st.keys.sealTLS("sale", inLine(uint64(id)+1))
		}
		fmt.Fprintln(&cookies, cookie)
	}
	clients := exec.CommandContext(b.Context(), os.Args[0])
	clients.Env = append(os.Environ(), listenersEnv+"="+st.door.addr(0), listenersEnv+"_TLS="+strconv.FormatBool(secure))
	clients.Stdin, clients.Stderr = &cookies, os.Stderr
	heap, rss := memory()
	out, err := clients.StdoutPipe()
	if err == nil {
		err = clients.Start()
	}
	testkit.NoError(b, err)
	defer func() {
		clients.Process.Kill() //nolint:errcheck // it may have ended
		clients.Wait()         //nolint:errcheck // it was killed
	}()
	lines := bufio.NewScanner(out)
	heard := func() string {
		if !lines.Scan() {
			b.Fatalf("the clients fell silent: %v", lines.Err())
		}
		return lines.Text()
	}
	if said := heard(); said != "ready" {
		b.Fatal(said)
	}
	cookies = bytes.Buffer{}
	heapNow, rssNow := memory()

	var last []time.Duration
	var cpu, cpuFar time.Duration
	size := 0
	for b.Loop() {
		news()
		used, begun := cpuTime(b), time.Now()
		st.server.streams.hub.Broadcast(func(id room.ID, epoch uint32) (sse.Message, bool) {
			m, ok := st.server.gate.Message(id, epoch)
			size, m.Far = len(m.Text), estimate.Open
			return m, ok
		})
		cpu += cpuTime(b) - used
		at := testkit.Must(strconv.ParseInt(heard(), 10, 64))(b)
		last = append(last, time.Unix(0, at).Sub(begun))

		used = cpuTime(b)
		tick := time.NewTicker(time.Second)
		for i := range seconds { // every stream is far back
			<-tick.C
			st.server.streams.hub.Broadcast(func(id room.ID, epoch uint32) (sse.Message, bool) {
				m, ok := st.server.gate.Message(id, epoch)
				// another line
				m.Text = bytes.Replace(m.Text, []byte(page.LineFollows), []byte(page.LineFollows+strconv.Itoa(1+i)), 1)
				return m, ok
			})
		}
		tick.Stop()
		cpuFar += cpuTime(b) - used
		heard()
	}
	if open := st.onStream(); open != n {
		b.Fatalf("%d streams are open", open)
	}
	slices.Sort(last)
	b.ReportMetric(float64(n), "streams")
	b.ReportMetric(float64(size), "B/message")
	b.ReportMetric(float64(heapNow-heap)/float64(n)/1024, "KiB/stream")
	b.ReportMetric(float64(rssNow-rss)/float64(n)/1024, "KiB-resident/stream")
	b.ReportMetric(float64(last[len(last)/2].Milliseconds()), "ms-last-client")
	b.ReportMetric(float64(last[len(last)-1].Milliseconds()), "ms-last-client-worst")
	b.ReportMetric(float64(cpu.Nanoseconds())/1000/float64(n*len(last)), "us-cpu/message")
	b.ReportMetric(float64(cpuFar.Nanoseconds())/1000/float64(n*len(last)*seconds), "us-cpu/far-stream-second")
	b.ReportMetric(0, "ns/op")
}

// memory returns the bytes in use by heap and stacks, and the resident size of the process.
func memory() (used, resident int64) {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	used = int64(m.HeapAlloc + m.StackInuse + m.MSpanInuse + m.OtherSys)
	if data, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := strings.Fields(string(data)); len(fields) > 1 {
			pages, err := strconv.ParseInt(fields[1], 10, 64)
			if err == nil {
				resident = pages * int64(os.Getpagesize())
			}
		}
	}
	return used, resident
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	testkit.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const listenersEnv = "VESTIBULE_TEST_LISTENERS"

// The process of the clients is this test binary.
func init() {
	addr := os.Getenv(listenersEnv)
	if addr == "" {
		return
	}
	if err := listeners(addr, os.Getenv(listenersEnv+"_TLS") == "true"); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// listeners opens a stream for each cookie that it reads, says that it is ready
// once everybody has heard something, and then at which time everybody had heard
// the next message.
func listeners(addr string, secure bool) error {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	cookies := strings.Fields(string(input))
	var heard [1 << 16]atomic.Int64
	opening := make(chan struct{}, 64)
	failed := make(chan error, 1)
	var begun sync.WaitGroup
	for _, cookie := range cookies {
		begun.Add(1)
		opening <- struct{}{}
		go func() {
			n := -1 // the first message is the state of things
			err := listenTo(addr, secure, cookie, func() {
				if n++; n == 0 {
					<-opening
					begun.Done()
				} else if heard[n].Add(1) == int64(len(cookies)) {
					fmt.Println(time.Now().UnixNano())
				}
			})
			select {
			case failed <- err:
			default:
			}
		}()
	}
	go func() {
		begun.Wait()
		fmt.Println("ready")
	}()
	return <-failed
}

// listenTo opens a stream and calls got for each message, until it ends.
func listenTo(addr string, secure bool, cookie string, got func()) error {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if secure {
		conn = tls.Client(conn, trusting("sale.example"))
	}
	if _, err := fmt.Fprintf(conn, "GET %s?room=sale HTTP/1.1\r\nHost: sale.example\r\nCookie: %s\r\n\r\n",
		gate.EventsPath, cookie); err != nil {
		return err
	}
	buf := make([]byte, 2048)
	ends := -1 // of retry
	var before byte
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return err
		}
		for _, c := range buf[:n] {
			if c == '\n' && before == '\n' {
				if ends++; ends > 0 {
					got()
				}
			}
			before = c
		}
	}
}
