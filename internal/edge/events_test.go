package edge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"vestibule/internal/fleet"
	"vestibule/internal/node"
	"vestibule/internal/room"
	"vestibule/internal/ticket"
)

const streamURL = "http://sale.example" + eventsPath + "?room=sale"

// onStream counts the event streams that are open.
func (st *stage) onStream() int {
	e := st.server.streams
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open
}

// inLine returns the ticket of somebody who joined a minute ago and came back.
func inLine(id uint64) ticket.Ticket {
	t := session(id)
	t.Admitted, t.Until, t.Home, t.Flags = 0, 0, 0, ticket.Returned
	return t
}

// listening is an event stream as a page hears it.
type listening struct {
	t      *testing.T
	res    *http.Response
	cancel context.CancelFunc
	lines  *bufio.Reader
}

// listen opens an event stream, whatever the answer is.
func (v *visitor) listen(url string, header ...string) *listening {
	v.st.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // a stream that does not end fails
	v.st.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		v.st.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	v.Timeout = 0
	res, err := v.Do(r)
	if err != nil {
		v.st.t.Fatal(err)
	}
	v.st.t.Cleanup(func() { res.Body.Close() })
	return &listening{v.st.t.(*testing.T), res, cancel, bufio.NewReader(res.Body)}
}

// next returns the next message; ok is false once the stream has ended.
func (l *listening) next() (event, data string, ok bool) {
	l.t.Helper()
	for {
		line, err := l.lines.ReadString('\n')
		if err != nil {
			return "", "", false
		}
		line = strings.TrimSuffix(line, "\n")
		switch field, value, _ := strings.Cut(line, ": "); field {
		case "event":
			event = value
		case "data":
			data = value
		case "":
			if data != "" {
				return event, data, true
			}
		}
	}
}

// until reads messages up to one that is as wanted.
func (l *listening) until(what string, ok func(event string, told map[string]any) bool) {
	l.t.Helper()
	for {
		event, data, more := l.next()
		if !more {
			l.t.Fatalf("the stream ended before: %s", what)
		}
		told := map[string]any{"text": data}
		if event == "" {
			if err := json.Unmarshal([]byte(data), &told); err != nil {
				l.t.Fatalf("%v in %s", err, data)
			}
		}
		if ok(event, told) {
			return
		}
	}
}

// over waits for the last message of the stream, and its end.
func (l *listening) over(do string) {
	l.t.Helper()
	l.until("over: "+do, func(event string, told map[string]any) bool {
		if event == "over" && told["text"] != do {
			l.t.Errorf("the page is to %v", told["text"])
		}
		return event == "over"
	})
	l.ended()
}

// ended waits until the stream has ended.
func (l *listening) ended() {
	l.t.Helper()
	if rest, err := io.ReadAll(l.lines); err != nil || len(rest) > 0 {
		l.t.Errorf("not the end: %q, %v", rest, err)
	}
}

// Whoever waits is told where everybody stands, by every kind of connection;
// nobody is counted by it; at the turn one question leads inside, and the stream
// is over.
func TestAPageHearsUntilItsTurn(t *testing.T) {
	for _, name := range []string{"HTTP/1.1", "HTTP/1.1 by header", "HTTP/1.1 over TLS", "HTTP/2 over TLS"} {
		t.Run(name, func(t *testing.T) {
			secure := strings.Contains(name, "TLS")
			st := open(t, func(st *stage) {
				if secure {
					st.withTLS()
					pair(t, st.cfg.TLS, 1)
				}
			})
			st.up.queue(sale, 10, 1)
			v := st.visitor()
			page, stream := saleURL, streamURL
			var header []string
			if secure {
				v = st.secure(strings.Contains(name, "HTTP/2"))
				page, stream = strings.Replace(page, "http:", "https:", 1), strings.Replace(stream, "http:", "https:", 1)
			}
			if strings.Contains(name, "header") {
				v.Jar = nil
			}
			if v.Jar == nil {
				header = []string{ticketHeader, v.get(page, ticketHeader, "new").Header.Get(ticketHeader)}
			} else {
				v.get(page)
			}
			l := v.listen(stream, header...)
			if h := l.res.Header; l.res.StatusCode != http.StatusOK || h.Get("Content-Type") != "text/event-stream" || !strings.Contains(h.Get("Cache-Control"), "no-store") || h.Get("X-Accel-Buffering") != "no" {
				t.Fatalf("%d %v", l.res.StatusCode, h)
			}
			if want := strings.Contains(name, "HTTP/2"); (l.res.ProtoMajor == 2) != want {
				t.Errorf("%s", l.res.Proto)
			}
			l.until("where everybody stands", func(_ string, told map[string]any) bool {
				slices, ok := told["line"].([]any)
				return ok && len(slices) == 3 && slices[2] == 10.0 && fmt.Sprint(told["paces"]) == "[0 1]" && told["horizon"] == 1.0
			})
			if l := st.server.Status().Rooms["sale"]; l.Waiting != 0 || l.Spent != 0 || l.Held != 0 {
				t.Errorf("listening counts: %+v", l)
			}
			st.up.view(sale, 0, 2, 1<<60, 1<<60)
			l.until("the turn", func(_ string, told map[string]any) bool { return told["horizon"].(float64) > 1e15 })
			if a := v.get(page, header...); a.body != "the site" {
				t.Errorf("at the turn: %.60q", a.body)
			}
			l.over("ask")
			eventually(t, "the stream is closed", func() bool { return st.onStream() == 0 })
		})
	}
}

// Pages that hear that their turn is near ask, and are held; of three for whom
// there is one slot one comes in, the first in line, and is charged once.
func TestAsManyEnterAsThereAreSlots(t *testing.T) {
	st := open(t, func(st *stage) { st.params.Hold, st.params.Knock = time.Hour, time.Hour })
	for range 1000 { // what the regional gave is used
		st.server.arrive(st.server.site.Load().rooms[st.index("sale")], ticket.Ticket{})
	}
	st.up.queue(sale, 10, 1)
	spent := st.server.Status().Rooms["sale"].Spent
	entered := make(chan int, 3)
	for i := range 3 {
		place := inLine(uint64(i) + 1)
		place.Joined += fleet.Time(i)
		v := st.visitor()
		v.Timeout = 0
		v.Jar.SetCookies(&url.URL{Scheme: "http", Host: "sale.example"}, []*http.Cookie{{Name: ticket.CookieName("sale", false), Value: st.value("sale", place)}})
		l := v.listen(streamURL)
		go func() {
			l.until("the turn is near", func(_ string, told map[string]any) bool { return told["park"].(float64) >= float64(place.Joined) })
			if a := v.get(saleURL, "Accept", "application/json", pollHeader, "1"); a.told(t).Ours["state"] == "entering" {
				if a := v.get(saleURL); a.body != "the site" {
					t.Errorf("inside: %.60q", a.body)
				}
				entered <- i
				return
			}
			entered <- -1 // the edge stops
		}()
	}
	at := inLine(1).Joined
	st.up.view(sale, 10, 1, at+10, at+10)
	eventually(t, "all are held", func() bool { return st.server.Status().Rooms["sale"].Held == 3 })
	st.up.grant(sale, 1, 1)
	if i := <-entered; i != 0 {
		t.Errorf("number %d came in", i)
	}
	eventually(t, "the stream of who came in is over", func() bool { return st.onStream() == 2 })
	if l := st.server.Status().Rooms["sale"]; l.Held != 2 || l.Spent != spent+1 {
		t.Errorf("%d are held and %d rights spent", l.Held, l.Spent-spent)
	}
	if err := st.stop(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if i := <-entered; i != -1 {
			t.Errorf("number %d came in too", i)
		}
	}
}

// Nobody listens but pages of the site whose visitors wait.
func TestWhoMayListen(t *testing.T) {
	st := open(t, func(st *stage) { st.cfg.Events.Prefix, st.cfg.Events.Total = 1, 3 })
	st.up.queue(sale, 10, 1)
	v := st.visitor()
	v.Jar = nil
	cookie := st.seal("sale", inLine(7))
	void := inLine(8)
	void.Epoch = 3
	for _, tc := range []struct {
		name, method, url string
		header            []string
		want              int
	}{
		{"another method", http.MethodPost, streamURL, []string{"Cookie", cookie}, http.StatusMethodNotAllowed},
		{"a page of another site", http.MethodGet, streamURL, []string{"Cookie", cookie, "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"a page of another origin", http.MethodGet, streamURL, []string{"Cookie", cookie, "Origin", "http://evil.example"}, http.StatusForbidden},
		{"no room", http.MethodGet, "http://sale.example" + eventsPath, []string{"Cookie", cookie}, http.StatusNotFound},
		{"a room that there is not", http.MethodGet, "http://sale.example" + eventsPath + "?room=x", []string{"Cookie", cookie}, http.StatusNotFound},
		{"a host that there is not", http.MethodGet, "http://x.example" + eventsPath + "?room=sale", []string{"Cookie", cookie}, http.StatusMisdirectedRequest},
		{"nobody", http.MethodGet, streamURL, nil, http.StatusNoContent},
		{"somebody inside", http.MethodGet, streamURL, []string{"Cookie", st.seal("sale", session(9))}, http.StatusNoContent},
		{"a place of an earlier epoch", http.MethodGet, streamURL, []string{"Cookie", st.seal("sale", void)}, http.StatusNoContent},
		{"a ticket of another room", http.MethodGet, "http://sale.example" + eventsPath + "?room=vip", []string{"Cookie", cookie}, http.StatusNoContent},
	} {
		if a := v.ask(tc.method, tc.url, "", tc.header...); a.StatusCode != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, a.StatusCode, tc.want)
		}
	}
	if n := st.onStream(); n != 0 {
		t.Fatalf("%d streams are open", n)
	}

	first := v.listen(streamURL, "Cookie", cookie, "Sec-Fetch-Site", "same-origin")
	if a := v.ask(http.MethodGet, streamURL, "", "Cookie", st.seal("sale", inLine(10))); a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
		t.Errorf("one too many of a neighbourhood: %d", a.StatusCode)
	}
	first.cancel()
	eventually(t, "who went away is noticed", func() bool { return st.onStream() == 0 })
	v.listen(streamURL, "Cookie", cookie)
}

// A ticket has one stream, the newest: its other pages are told to poll, and an
// edge has no more streams than it may.
func TestStreamsAreCapped(t *testing.T) {
	st := open(t, func(st *stage) { st.cfg.Events.Total = 2 })
	st.up.queue(sale, 10, 1)
	v := st.visitor()
	v.Jar = nil
	old := v.listen(streamURL, "Cookie", st.seal("sale", inLine(7)))
	v.listen(streamURL, "Cookie", st.seal("sale", inLine(7)))
	old.over("poll")
	eventually(t, "the old stream is closed", func() bool { return st.onStream() == 1 })
	v.listen(streamURL, "Cookie", st.seal("sale", inLine(8)))
	if a := v.ask(http.MethodGet, streamURL, "", "Cookie", st.seal("sale", inLine(9))); a.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", a.StatusCode)
	}
}

// Who leaves, whose place is void and whose room is gone is told to ask; when
// the edge stops, everybody's stream ends.
func TestStreamsEnd(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	st.up.queue(vip, 10, 1)
	v := st.visitor()
	v.Jar = nil
	const vipStream = "http://shop.example" + eventsPath + "?room=vip"

	place := st.seal("sale", inLine(7))
	l := v.listen(streamURL, "Cookie", place)
	if a := v.ask(http.MethodPost, leaveURL, "", "Cookie", place); a.StatusCode != http.StatusNoContent {
		t.Fatalf("leaving: %d", a.StatusCode)
	}
	l.over("ask")
	if a := v.ask(http.MethodGet, streamURL, "", "Cookie", place); a.StatusCode != http.StatusNoContent {
		t.Errorf("after leaving: %d", a.StatusCode)
	}

	sales, vips := v.listen(streamURL, "Cookie", st.seal("sale", inLine(8))), v.listen(vipStream, "Cookie", st.seal("vip", inLine(8)))
	d := document(st.origin.URL)
	d.Rooms[0].Epoch = 1
	d.Rooms = d.Rooms[:1]
	st.docs.offer(node.RoomsDocument, roomsDocument(t, 2, d))
	sales.over("ask")
	vips.over("ask")

	anew := inLine(9)
	anew.Epoch = 1
	last := v.listen(streamURL, "Cookie", st.seal("sale", anew))
	if err := st.stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
	for _, _, more := last.next(); more; _, _, more = last.next() {
	}
	if n := st.onStream(); n != 0 {
		t.Errorf("%d streams are open", n)
	}
}

// A stream over HTTP/2 ends with its client, and keeps no edge from stopping.
func TestStreamsOverHTTP2EndWithTheEdge(t *testing.T) {
	st := open(t, func(st *stage) {
		st.withTLS()
		pair(t, st.cfg.TLS, 1)
		st.cfg.Timeouts.Shutdown = time.Minute
	})
	st.up.queue(sale, 10, 1)
	v := st.secure(true)
	v.Jar = nil
	url := strings.Replace(streamURL, "http:", "https:", 1)
	kept := v.listen(url, "Cookie", st.sealTLS("sale", inLine(7)))
	gone := v.listen(url, "Cookie", st.sealTLS("sale", inLine(8)))
	if kept.res.ProtoMajor != 2 || st.onStream() != 2 {
		t.Fatalf("%s, %d streams", kept.res.Proto, st.onStream())
	}
	gone.cancel()
	eventually(t, "who went away is noticed", func() bool { return st.onStream() == 1 })
	begun := time.Now()
	if err := st.stop(); err != nil || time.Since(begun) > st.cfg.Timeouts.Shutdown/2 {
		t.Errorf("stopping: %v after %v", err, time.Since(begun))
	}
	for _, _, more := kept.next(); more; _, _, more = kept.next() {
	}
}

// An edge without a lease says so, and what has not changed is not said every
// second.
func TestAStreamTellsOfAPause(t *testing.T) {
	st := open(t, func(st *stage) { st.params.Isolation = time.Hour })
	st.up.queue(sale, 10, 1)
	v := st.visitor()
	v.Jar = nil
	l := v.listen(streamURL, "Cookie", st.seal("sale", inLine(7)))
	l.until("no pause", func(_ string, told map[string]any) bool { return told["pausedBy"] == nil })
	st.server.mu.Lock()
	st.server.eng.Lapse(st.server.clock.Now())
	st.server.mu.Unlock()
	st.up.silence()
	l.until("a pause", func(_ string, told map[string]any) bool { return told["pausedBy"] == "system" })
}

// A client that does not read makes nobody wait: it skips messages, never
// half of one, and hears the newest once it reads again.
func TestASlowReaderSkips(t *testing.T) {
	if !canDrip {
		t.Skip("sockets cannot be written without waiting on this system")
	}
	dir := t.TempDir()
	cfg := TLSConfig{Cert: dir + "/cert.pem", Key: dir + "/key.pem"}
	pair(t, cfg, 1)
	cert, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, secure := range []bool{false, true} {
		t.Run("TLS "+strconv.FormatBool(secure), func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			accepted := make(chan net.Conn, 1)
			go func() {
				defer close(accepted)
				if !secure {
					if c, err := ln.Accept(); err == nil {
						accepted <- c
					}
					return
				}
				c, err := patientListener{ln}.Accept()
				if err != nil {
					return
				}
				s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}}) //nolint:gosec // a test
				if s.HandshakeContext(context.Background()) == nil {
					accepted <- s
				}
			}()
			var client net.Conn
			if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if secure {
				client = tls.Client(client, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test's own certificate
				if err := client.(*tls.Conn).HandshakeContext(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			conn, ok := <-accepted
			if !ok {
				t.Fatal("nothing was accepted")
			}
			p, err := newPipe(conn)
			if err != nil {
				t.Fatal(err)
			}
			defer p.end()
			message := func(n int) []byte {
				return append(bytes.Repeat([]byte(strconv.Itoa(n%10)), 5000), '\n')
			}
			sent, skips := 0, 0
			for n := 0; skips < 100; n++ {
				skipped, err := p.send(message(n))
				if err != nil {
					t.Fatal(err)
				}
				if skipped {
					skips++
				} else {
					sent++
				}
			}
			if !p.alive() {
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
			// The last message may be half on its way.
			for range sent - 1 {
				whole()
			}
			eventually(t, "the newest is taken", func() bool {
				skipped, err := p.send(message(7))
				if err != nil {
					t.Fatal(err)
				}
				return !skipped
			})
			whole()
			if c := whole(); c != '7' {
				t.Errorf("the newest message is %c", c)
			}
			if err := client.Close(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is noticed that the client is gone", func() bool { return !p.alive() })
		})
	}
}

// nothing is an outlet that takes everything.
type nothing struct{ ended *int }

func (nothing) send([]byte) (bool, error) { return false, nil }
func (nothing) alive() bool               { return true }
func (n nothing) end()                    { *n.ended++ }

// TestStreamsComeAndGo opens and ends streams at random beside a twin that knows
// who has one.
func TestStreamsComeAndGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, err := newQuota(1000)
		if err != nil {
			t.Fatal(err)
		}
		e := newStreams(1000, q, newMetrics(prometheus.NewRegistry()))
		twin := map[place]*stream{}
		ended, begun := 0, 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p := place{[]room.ID{sale, vip}[rapid.IntRange(0, 1).Draw(t, "room")], rapid.Uint64Range(1, 6).Draw(t, "id")}
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0, 1:
				s := &stream{place: p, out: nothing{&ended}}
				if err := errors.Join(e.reserve(s.from), e.add(s, 0, nil, func() error { return nil })); err != nil {
					t.Fatal(err)
				}
				twin[p] = s
				begun++
			case 2:
				e.over(p)
				delete(twin, p)
			default:
				if s := twin[p]; s != nil {
					e.gone(s, endGone)
					e.gone(s, endGone)
					delete(twin, p)
				}
			}
			if rapid.Bool().Draw(t, "bury") {
				e.bury()
			}
			members := 0
			for id, c := range e.rooms {
				for at, s := range c.members {
					if s.at != at || s.room != id || twin[s.place] != s || e.places[s.place] != s {
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
		if e.open != 0 || ended != begun || q.open.Len() != 0 || len(e.rooms) != 0 {
			t.Fatalf("%d open and %d of %d ended after stopping", e.open, ended, begun)
		}
	})
}
