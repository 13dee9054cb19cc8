package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// attack is what one client address does.
type attack struct {
	run                   func(ctx context.Context, at string, secure bool)
	plainOnly, secureOnly bool
}

const (
	held      = filesOfEdge // connections of an attack
	attackers = 8           // goroutines that open them
	opened    = 1_000       // connections opened or replaced in a second: more would measure the processor that both sides share
)

var attacks = map[string]attack{
	"slow heads":         {run: holds("GET /other HTTP/1.1\r\nHost: "+host+"\r\n", "X: y\r\n")},
	"slow bodies":        {run: holds(post("Content-Length: 100000"), "x")},
	"short slow bodies":  {run: holds(post("Content-Length: 100"), "x")},
	"slow chunks":        {run: holds(post("Transfer-Encoding: chunked"), "1\r\nx\r\n")},
	"silent connections": {run: holds("", "")},
	"unread answers":     {run: holds("GET /large HTTP/1.1\r\nHost: "+host+"\r\n\r\n", "")},
	"websockets":         {run: holds("GET /other HTTP/1.1\r\nHost: "+host+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", "")},
	"event streams":      {run: holds("GET /.well-known/vestibule/events?room=full HTTP/1.1\r\nHost: "+host+"\r\n\r\n", "")},
	"pipelines":          {run: floods(strings.Repeat("GET /other HTTP/1.1\r\nHost: "+host+"\r\n\r\n", 100))},
	"short connections":  {run: floods("")},
	"half handshakes":    {run: holdsBare("\x16\x03\x01\x02\x00"), secureOnly: true},
	"zero windows":       {run: overHTTP2(zeroWindows), secureOnly: true},
	"reset streams":      {run: overHTTP2(resets), secureOnly: true},
	"settings and pings": {run: overHTTP2(settings), secureOnly: true},
}

func post(framing string) string {
	return "POST /other HTTP/1.1\r\nHost: " + host + "\r\n" + framing + "\r\n\r\n"
}

func dial(at string, secure bool, protocols ...string) (net.Conn, error) {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, 9, 9)}, Timeout: 2 * time.Second}
	if !secure {
		return d.Dial("tcp", at)
	}
	return tls.DialWithDialer(d, "tcp", at, &tls.Config{InsecureSkipVerify: true, ServerName: host, NextProtos: protocols}) //nolint:gosec // the program's own certificate
}

// each runs a function in several goroutines until ctx ends.
func each(ctx context.Context, run func(n int)) {
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
		each(ctx, func(n int) {
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
		each(ctx, func(int) {
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

// overHTTP2 opens connections over HTTP/2, and calls send on each until it fails.
func overHTTP2(send func(f *http2.Framer, stream uint32) error) func(context.Context, string, bool) {
	return func(ctx context.Context, at string, _ bool) {
		each(ctx, func(int) {
			c, err := dial(at, true, "h2")
			if err != nil {
				<-time.After(10 * time.Millisecond)
				return
			}
			defer c.Close()
			f := http2.NewFramer(c, c)
			if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
				return
			}
			if f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) != nil {
				return
			}
			for stream := uint32(1); ctx.Err() == nil; stream += 100 {
				if c.SetDeadline(time.Now().Add(5*time.Second)) != nil || send(f, stream) != nil {
					return
				}
			}
		})
	}
}

func head(path string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", host}, {":path", path}} {
		e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) //nolint:errcheck // memory
	}
	return b.Bytes()
}

func ask(f *http2.Framer, stream uint32, path string) error {
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head(path), EndStream: true, EndHeaders: true})
}

// zeroWindows asks for long answers and takes none of them.
func zeroWindows(f *http2.Framer, stream uint32) error {
	if stream > 100 {
		<-time.After(time.Second)
		return f.WritePing(false, [8]byte{})
	}
	for i := range uint32(50) {
		if err := ask(f, stream+2*i, "/large"); err != nil {
			return err
		}
	}
	return nil
}

func resets(f *http2.Framer, stream uint32) error {
	for i := range uint32(50) {
		if err := ask(f, stream+2*i, "/other"); err != nil {
			return err
		}
		if err := f.WriteRSTStream(stream+2*i, http2.ErrCodeCancel); err != nil {
			return err
		}
	}
	return nil
}

func settings(f *http2.Framer, _ uint32) error {
	for range 100 {
		if err := f.WriteSettings(); err != nil {
			return err
		}
		if err := f.WritePing(false, [8]byte{}); err != nil {
			return err
		}
	}
	return nil
}
