package sse

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/page"
)

var eventually = testkit.Eventually

// A client that does not read blocks nobody: it skips whole messages, and gets the newest once it reads again.
func TestASlowReaderSkips(t *testing.T) {
	if !CanTakeOver {
		t.Skip("sockets cannot be written without waiting on this system")
	}
	other := httptest.NewTLSServer(nil)
	cert := other.TLS.Certificates[0]
	other.Close()
	for _, secure := range []bool{false, true} {
		t.Run("TLS "+strconv.FormatBool(secure), func(t *testing.T) {
			ln := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
			defer ln.Close()
			accepted := make(chan net.Conn, 1)
			go func() {
				defer close(accepted)
				if !secure {
					if c, err := ln.Accept(); err == nil {
						accepted <- wrapped{c.(*net.TCPConn)}
					}
					return
				}
				c, err := Listener{wrapping{ln}}.Accept()
				if err != nil {
					return
				}
				s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}}) //nolint:gosec // a test
				if s.HandshakeContext(context.Background()) == nil {
					accepted <- s
				}
			}()
			client := testkit.Must(net.Dial("tcp", ln.Addr().String()))(t)
			defer client.Close()
			if secure {
				client = tls.Client(client, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test's own certificate
				testkit.NoError(t, client.(*tls.Conn).HandshakeContext(context.Background()))
			}
			conn, ok := <-accepted
			if !ok {
				t.Fatal("nothing was accepted")
			}
			p := testkit.Must(TakeOver(conn))(t)
			defer p.Close()
			message := func(n int) []byte {
				return append(bytes.Repeat([]byte(strconv.Itoa(n%10)), 5000), '\n')
			}
			sent, skips := 0, 0
			for n := 0; skips < 100; n++ {
				skipped := testkit.Must(p.Send(message(n)))(t)
				if skipped {
					skips++
				} else {
					sent++
				}
			}
			if sent > 200 { // 1 MB: mostly the client's own buffer
				t.Errorf("%d messages are kept for a client that does not read", sent)
			}
			if !p.Alive() {
				t.Error("who does not read is taken to be gone")
			}
			r := bufio.NewReader(client)
			whole := func() byte {
				line, err := r.ReadBytes('\n')
				if err != nil || len(line) != 5001 || bytes.Count(line, line[:1]) != 5000 {
					t.Fatalf("%d bytes that are no message: %v", len(line), err)
				}
				return line[0]
			}
			// The last message may be partly sent.
			for range sent - 1 {
				whole()
			}
			eventually(t, "the newest is taken", func() bool {
				skipped := testkit.Must(p.Send(message(7)))(t)
				return !skipped
			})
			whole()
			if c := whole(); c != '7' {
				t.Errorf("the newest message is %c", c)
			}
			testkit.NoError(t, client.Close())
			eventually(t, "it is noticed that the client is gone", func() bool { return !p.Alive() })
		})
	}
}

// heard is a subscriber that keeps the messages.
type heard []string

func (h *heard) Send(msg []byte) (bool, error) { *h = append(*h, string(msg)); return false, nil }
func (*heard) Alive() bool                     { return true }
func (*heard) Close()                          {}

// TestStreamsFarBackHearLess: a stream far back in the line gets a message every five seconds, also in a line that
// seldom moves, and every message for some seconds after the state of the room has changed.
func TestStreamsFarBackHearLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Options{Max: 1000, PerPrefix: 1000, Reg: prometheus.NewRegistry()})
		const n = 10
		var near, far [n]heard
		for i := range n {
			for _, s := range []*Stream{{Turn: 100, Subscriber: &near[i]}, {Turn: 101, Subscriber: &far[i]}} {
				s.Place = Place{room.IDOf("sale"), uint64(s.Turn)*n + uint64(i)}
				testkit.NoError(t, errors.Join(e.Reserve(s.From), e.Add(s, 0, nil, func() error { return nil })))
			}
		}
		second := 0
		// play broadcasts for ten seconds, in a room whose line moves at some of them, and returns what the streams heard.
		play := func(every int, paused bool) (nearby, back []int) {
			for i := range n {
				near[i], far[i] = nil, nil
			}
			for range 10 {
				time.Sleep(time.Second)
				second++
				b := page.Broadcast{Now: fleettime.Time(second), View: &wire.View{Free: int64(second / every)}}
				if paused {
					b.PausedBy = page.PausedByOperator
				}
				e.Broadcast(func(room.ID, uint32) (Message, bool) {
					return Message{Text: page.AppendBroadcast(nil, &b), Far: 100}, true
				})
			}
			for i := range n {
				nearby, back = append(nearby, len(near[i])), append(back, len(far[i]))
			}
			return nearby, back
		}
		play(1, false)
		for _, tc := range []struct {
			every     int
			paused    bool
			near, far int
		}{
			{1, false, 10, 2},
			{1, true, 10, 4},
			{1, true, 10, 2},
			{1, false, 10, 4},
			{1, false, 10, 2},
			{4, false, 3, 2},
			{4, false, 3, 2},
		} {
			nearby, back := play(tc.every, tc.paused)
			if slices.Min(nearby) < tc.near-1 || slices.Min(back) < tc.far-1 || slices.Max(back) > tc.far+1 {
				t.Errorf("%+v: in ten seconds those near heard %v, those far back %v", tc, nearby, back)
			}
		}
	})
}

// nothing is a subscriber that accepts everything.
type nothing struct{ ended *int }

func (nothing) Send([]byte) (bool, error) { return false, nil }
func (nothing) Alive() bool               { return true }
func (n nothing) Close()                  { *n.ended++ }

// TestStreamsComeAndGo starts and ends streams at random next to a twin that tracks them.
func TestStreamsComeAndGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := New(Options{Max: 1000, PerPrefix: 1000, Reg: prometheus.NewRegistry()})
		twin := map[Place]*Stream{}
		ended, begun := 0, 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p := Place{
				[]room.ID{room.IDOf("sale"), room.IDOf("vip")}[rapid.IntRange(0, 1).Draw(t, "room")],
				rapid.Uint64Range(1, 6).Draw(t, "id"),
			}
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0, 1:
				s := &Stream{Place: p, Subscriber: nothing{&ended}}
				testkit.NoError(t, errors.Join(e.Reserve(s.From), e.Add(s, 0, nil, func() error { return nil })))
				twin[p] = s
				begun++
			case 2:
				e.Finish(p)
				delete(twin, p)
			default:
				if s := twin[p]; s != nil {
					e.Drop(s, Gone)
					e.Drop(s, Gone)
					delete(twin, p)
				}
			}
			if rapid.Bool().Draw(t, "reap") {
				e.reap()
			}
			members := 0
			for id, c := range e.rooms {
				for at, s := range c.members {
					if s.at != at || s.Room != id || twin[s.Place] != s || e.places[s.Place] != s {
						t.Fatalf("member %d of %d is %+v", at, id, s)
					}
				}
				members += len(c.members)
			}
			if members != len(twin) || len(e.places) != len(twin) || e.open != len(twin)+len(e.ending) {
				t.Fatalf("%d members, %d places, %d open of %d", members, len(e.places), e.open, len(twin))
			}
		}
		e.stop()
		if e.open != 0 || ended != begun || e.quota.Prefixes() != 0 || len(e.rooms) != 0 {
			t.Fatalf("%d open and %d of %d ended after stopping", e.open, ended, begun)
		}
	})
}

// wrapped is a connection as accepted by the edge's listeners.
type wrapped struct{ *net.TCPConn }

type wrapping struct{ net.Listener }

func (l wrapping) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return wrapped{c.(*net.TCPConn)}, nil
}
