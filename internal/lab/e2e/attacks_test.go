package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// attackVariable makes a process of this test attack an edge: the name of an attack, an address, and whether with TLS.
const attackVariable = "VESTIBULE_ATTACK"

// attack is the behaviour of one client address.
type attack struct {
	run        func(ctx context.Context, at string, secure bool)
	secureOnly bool
	strict     bool // it floods with what costs the edge no memory: no request of a visitor may fail
}

const (
	held      = siegeFiles // connections of an attack
	attackers = 8          // goroutines that open them
	opened    = 1_000      // connections opened or replaced in a second: more would measure the processor
)

var attacks = map[string]attack{
	"slow heads":         {run: holds("GET /other HTTP/1.1\r\nHost: 127.0.0.1\r\n", "X: y\r\n")},
	"slow bodies":        {run: holds(post("Content-Length: 100000"), "x")},
	"short slow bodies":  {run: holds(post("Content-Length: 100"), "x")},
	"slow chunks":        {run: holds(post("Transfer-Encoding: chunked"), "1\r\nx\r\n")},
	"silent connections": {run: holds("", "")},
	"unread answers":     {run: holds("GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "")},
	"websockets": {
		run: holds("GET /other HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", ""),
	},
	"event streams": {run: holds("GET /.well-known/vestibule/events?room=full HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"")},
	"pipelines":         {run: floods(strings.Repeat("GET /other HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 100))},
	"short connections": {run: floods("")},
	"half handshakes":   {run: holdsBare("\x16\x03\x01\x02\x00"), secureOnly: true},

	"HTTP/2 settings and pings":            overHTTP2(settings, 500),
	"HTTP/2 priorities and window updates": overHTTP2(priorities, 500),
	"HTTP/2 empty data":                    overHTTP2(emptyData, 1000),
	"HTTP/2 continuations":                 overHTTP2(continuations, 1000),
	"HTTP/2 resets at once":                overHTTP2(resets, 1),
	"HTTP/2 resets while the site works":   overHTTP2(lateResets, 1),
	"HTTP/2 zero windows":                  overHTTP2(zeroWindows, 1),
	"HTTP/2 unread answers":                overHTTP2(unread, 1),
}

func post(framing string) string {
	return "POST /other HTTP/1.1\r\nHost: 127.0.0.1\r\n" + framing + "\r\n\r\n"
}

func dial(at string, secure bool, protocols ...string) (net.Conn, error) {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, 9, 9)}, Timeout: 2 * time.Second}
	if !secure {
		return d.Dial("tcp", at)
	}
	return tls.DialWithDialer(d, "tcp", at, &tls.Config{
		InsecureSkipVerify: true, ServerName: "127.0.0.1",
		NextProtos: protocols,
	}) //nolint:gosec // the program's own certificate
}

// eachAttacker runs a function in several goroutines until ctx ends.
func eachAttacker(ctx context.Context, run func(n int)) {
	var all sync.WaitGroup
	for n := range attackers {
		all.Go(func() {
			for ctx.Err() == nil {
				run(n)
			}
		})
	}
	all.Wait()
}

// holds opens connections, says first on each, and then every second a little more.
func holds(first, then string) func(context.Context, string, bool) {
	return func(ctx context.Context, at string, secure bool) {
		var mine [attackers][]net.Conn
		var said [attackers]time.Time
		pace := time.NewTicker(time.Second / opened)
		defer pace.Stop()
		eachAttacker(ctx, func(n int) {
			<-pace.C
			if len(mine[n]) < held/attackers {
				if c, err := dial(at, secure); err != nil {
					<-time.After(10 * time.Millisecond)
				} else {
					io.WriteString(c, first) //nolint:errcheck // the edge may have closed it
					mine[n] = append(mine[n], c)
				}
			} else {
				mine[n][0].Close() // as above
				mine[n] = mine[n][1:]
			}
			if then == "" || time.Since(said[n]) < time.Second {
				return
			}
			said[n] = time.Now()
			for _, c := range mine[n] {
				io.WriteString(c, then) //nolint:errcheck // as above
			}
		})
	}
}

func holdsBare(first string) func(context.Context, string, bool) {
	hold := holds(first, "")
	return func(ctx context.Context, at string, _ bool) { hold(ctx, at, false) }
}

// floods opens connections, says all on each again and again, and reads nothing.
func floods(text string) func(context.Context, string, bool) {
	return func(ctx context.Context, at string, secure bool) {
		eachAttacker(ctx, func(int) {
			c, err := dial(at, secure)
			if err != nil {
				<-time.After(10 * time.Millisecond)
				return
			}
			defer c.Close()
			if c.SetDeadline(time.Now().Add(5*time.Second)) != nil {
				return
			}
			for text != "" && err == nil && ctx.Err() == nil {
				_, err = io.WriteString(c, text)
			}
		})
	}
}

// overHTTP2 opens connections over HTTP/2 with windows of 0. On each it makes the given number of calls of send, until
// one fails; each call gets the ID of the first of its own streams.
func overHTTP2(send func(f *http2.Framer, stream uint32) error, calls int) attack {
	return attack{secureOnly: true, strict: true, run: func(ctx context.Context, at string, _ bool) {
		eachAttacker(ctx, func(int) {
			c, err := dial(at, true, "h2")
			if err != nil {
				<-time.After(10 * time.Millisecond)
				return
			}
			defer c.Close()
			out := bufio.NewWriterSize(c, 16<<10)    // keeps its first error
			io.WriteString(out, http2.ClientPreface) //nolint:errcheck // as above
			f := http2.NewFramer(out, nil)
			err = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			for stream := uint32(1); err == nil && ctx.Err() == nil; {
				err = c.SetDeadline(time.Now().Add(5 * time.Second))
				for range calls {
					err = errors.Join(err, send(f, stream))
					stream += 2 * streams
				}
				err = errors.Join(err, out.Flush())
			}
		})
	}}
}

// streams are those of one call, from a number on.
const streams = 50

// request begins requests for a path.
func request(f *http2.Framer, stream uint32, method, path string) error {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, h := range [][2]string{
		{":method", method}, {":scheme", "https"}, {":authority", "127.0.0.1"}, {":path", path},
	} {
		if err := e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			return err
		}
	}
	return f.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: b.Bytes(), EndStream: method == "GET",
		EndHeaders: true,
	})
}

func requestAll(f *http2.Framer, stream uint32, path string) error {
	for i := range uint32(streams) {
		if err := request(f, stream+2*i, "GET", path); err != nil {
			return err
		}
	}
	return nil
}

func settings(f *http2.Framer, _ uint32) error {
	return errors.Join(f.WriteSettings(), f.WritePing(false, [8]byte{}))
}

func priorities(f *http2.Framer, stream uint32) error {
	return errors.Join(f.WritePriority(stream, http2.PriorityParam{Weight: 1}), f.WriteWindowUpdate(0, 1))
}

// emptyData is the body of one form, which never ends.
func emptyData(f *http2.Framer, stream uint32) error {
	if stream == 1 {
		return request(f, 1, "POST", "/other")
	}
	return f.WriteData(1, false, nil)
}

func resets(f *http2.Framer, stream uint32) error {
	for i := range uint32(streams) {
		if err := errors.Join(request(f, stream+2*i, "GET", "/other"),
			f.WriteRSTStream(stream+2*i, http2.ErrCodeCancel)); err != nil {
			return err
		}
	}
	return nil
}

// lateResets leaves requests when the site has them.
func lateResets(f *http2.Framer, stream uint32) (err error) {
	if stream > 1 {
		<-time.After(10 * time.Millisecond)
		for i := range uint32(streams) {
			err = errors.Join(err, f.WriteRSTStream(stream-2*(i+1), http2.ErrCodeCancel))
		}
	}
	return errors.Join(err, requestAll(f, stream, "/slow"))
}

// zeroWindows asks for long answers and allows none of them.
func zeroWindows(f *http2.Framer, stream uint32) error {
	if stream > 1 {
		<-time.After(time.Second)
		return f.WritePing(false, [8]byte{})
	}
	return requestAll(f, stream, "/large")
}

// unread asks for long answers, allows them and reads none.
func unread(f *http2.Framer, stream uint32) error {
	if stream > 1 {
		return zeroWindows(f, stream)
	}
	const all = 1<<31 - 1
	return errors.Join(f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: all}),
		f.WriteWindowUpdate(0, all-65535), requestAll(f, stream, "/large"))
}

// continuations is one head that never ends.
func continuations(f *http2.Framer, stream uint32) error {
	if stream == 1 {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
	}
	return f.WriteContinuation(1, false, nil)
}
