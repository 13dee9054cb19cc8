package console_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	kept "vestibule/internal/global/history"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
)

// chartsJSON are the values that the script draws.
type chartsJSON struct {
	Step   int
	Times  []int64
	Charts []struct {
		ID     string
		Series []struct {
			Label, Kind string
			Values      []*float64
		}
	}
	Marks []struct{ Text string }
}

func (f *fixture) charts(path string) (c chartsJSON) {
	f.Helper()
	a := f.see(path)
	if err := json.Unmarshal([]byte(a.body), &c); err != nil || a.header.Get("Content-Type") != "application/json" {
		f.Fatalf("%v: %s", err, a.body)
	}
	return c
}

// The charts of a room have the limits as lines, a table each, and marks; the script gets their values, and later
// the rows that are new.
func TestChartsOfARoom(t *testing.T) {
	f := start(t)
	id := f.sale()
	f.plan(id)
	page := f.see("/console/rooms/" + id)
	contains(t, page, "Let in per minute", "UTC let in limit", "Inside, by data centre", "dublin nairobi",
		"the queue of autumn-launch opens", "arrived in a minute")
	source := regexp.MustCompile(`data-charts="([^"]+)"`).FindStringSubmatch(page.body)
	if source == nil {
		t.Fatal("the page has no charts")
	}
	address := strings.ReplaceAll(source[1], "&amp;", "&")
	const opens = "the queue of autumn-launch opens"
	all := f.charts(address)
	if n := len(all.Times); all.Step != 10 || n < 350 || n > 361 || !strings.Contains(fmt.Sprint(all.Marks), opens) {
		t.Fatalf("step %d, %d times, marks %v", all.Step, n, all.Marks)
	}
	last := len(all.Times) - 1
	for _, c := range all.Charts {
		if !strings.Contains(page.body, `data-chart="`+c.ID+`"`) {
			t.Errorf("the page has no place for the chart %s", c.ID)
		}
		for _, s := range c.Series {
			if len(s.Values) != len(all.Times) {
				t.Errorf("%s: %s has %d values", c.ID, s.Label, len(s.Values))
			}
			if c.ID == "admitted" && s.Kind == "limit" && *s.Values[last] != 180 || c.ID == "admitted" && s.Kind == "line" &&
				(*s.Values[last] < 170 || *s.Values[last] > 190) {
				t.Errorf("%s: %s is %v", c.ID, s.Label, *s.Values[last])
			}
		}
	}
	if news := f.charts(address + "&after=" + strconv.FormatInt(all.Times[last-3], 10)); len(news.Times) < 3 ||
		len(news.Times) > 5 || strings.Contains(fmt.Sprint(news.Marks), opens) {
		t.Errorf("%d new rows, marks %v", len(news.Times), news.Marks)
	}
	f.get("/console/rooms/"+id+"/charts?from=x").is(t, http.StatusBadRequest) // a faulty range
}

// The history of a range or an event is a report with totals, tables of at most 60 rows, and a file.
func TestHistoryIsAReport(t *testing.T) {
	f := start(t)
	id := f.sale()
	event := f.plan(id)
	at := "/console/rooms/" + id + "/history"
	page := f.see(at)
	contains(t, page, "1 hour", "Arrived", "Gave up", "Highest queue", "4 min")
	for _, rng := range []string{"-1h", "-24h", "-168h", "-720h"} {
		page := f.see(at + "?range=" + rng)
		if !strings.Contains(page.body, `<option value="`+rng+`" selected`) {
			t.Errorf("%s is not chosen", rng)
		}
		if rows := strings.Count(strings.SplitN(page.body, "</table>", 2)[0], "<tr>") - 1; rows < 25 || rows > 61 {
			t.Errorf("%s: %d rows", rng, rows)
		}
	}
	report := f.see(at + "?event=" + event)
	contains(t, report, "report of an event", "Waited, half of those let in", "Ben: event autumn-launch made",
		"Ben: limits set", "Ben: room made")
	// The same choice has times and events: with two, another time than that of the event would not be shown.
	chosen := f.see(at + "?range=" + event)
	contains(t, chosen, "report of an event")
	if n := strings.Count(chosen.body, " selected>"); n != 1 ||
		!strings.Contains(chosen.body, `<option value="`+event+`" selected>`) {
		t.Errorf("%d choices are selected, not only the event", n)
	}
	log := f.see("/console/audit") // nothing as a program writes it
	lacks(t, log, "map[", "create-webhook")
	contains(t, log, "Ben created webhook pager", "room.paused, alarm.raised",
		"rule description the office, enabled false, expression ip.src in {192.0.2.0/24}", "limits.new_users_per_minute 180")
	file := f.see(strings.ReplaceAll(regexp.MustCompile(`href="([^"]+history\.csv[^"]*)"`).FindStringSubmatch(report.body)[1], "&amp;", "&"))
	rows, err := csv.NewReader(strings.NewReader(file.body)).ReadAll()
	if err != nil || len(rows) < 60 || rows[0][0] != "time" || rows[0][1] != "waiting" ||
		!strings.Contains(file.header.Get("Content-Disposition"), `filename="autumn-sale.csv"`) {
		t.Errorf("%d rows, %v, %v", len(rows), err, file.header)
	}
	f.get(at+".csv?event=nothing").is(t, http.StatusNotFound) // the file of an unknown event
	contains(t, f.see("/console/rooms/"+id+"/events/"+event), "Report")
}

// cpu returns the time that processors have worked for this process.
func cpu() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // for unknown arguments
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkCharts measures charts over a history of 1,000 rooms, 20 of them busy: a day of seconds and 400 days of
// hours. The goal is 300 ms on one core.
func BenchmarkCharts(b *testing.B) {
	f := start(b)
	levels := []string{"seconds", "minutes", "hours"}
	ids := map[string]string{}
	for _, name := range levels {
		ids[name] = f.api.make(name, 2000, 200, nil)
	}
	dir, now := b.TempDir(), time.Now().Unix()
	// without sync
	filler, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, JetStream: true, StoreDir: dir})
	testkit.NoError(b, err)
	filler.Start()
	nc := testkit.Must(nats.Connect("", nats.InProcessServer(filler)))(b)
	js := testkit.Must(jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4000)))(b)
	open := func(s nats.InProcessConnProvider) *natsbus.History {
		conn, err := natsbus.Connect(natsbus.Options{InProcess: s, Name: "global", Log: slog.New(slog.DiscardHandler)})
		testkit.NoError(b, err)
		b.Cleanup(conn.Close)
		return natsbus.NewHistory(conn, 1)
	}
	write := open(filler)
	// The time of messages is that of the test. So a room has the blocks of its level, and below it only those that are
	// read: since the end of the newest block above. Streams begin where a reading begins.
	fill := func(level wire.HistoryLevel, step, length, days int64) {
		const busy, all = 20, 1000
		begin := now/length*length - days*86400
		above := map[int64]int64{60: 3600, 3600: 86400, 86400: 30 * 86400}[length]
		for at := begin; at+length <= now; at += length {
			points := f.past.points(at+step, at+length, step)
			block := history.EncodeBlock(points)
			var same []history.Point // of a room at rest
			for _, p := range points {
				if p.At%history.Beat == 0 {
					same = append(same, history.Point{At: p.At, Values: points[0].Values, Centres: points[0].Centres})
				}
			}
			var rest []byte
			if len(same) > 0 {
				rest = history.EncodeBlock(same)
			}
			if at == begin && err == nil {
				err = write.Write(b.Context(), level, "none", "first", block) // makes the stream
			}
			for n := 0; n < all && err == nil; n++ {
				of, data := fmt.Sprintf("%016x", n), block
				if n < len(levels) {
					own := []wire.HistoryLevel{wire.HistorySeconds, wire.HistoryMinutes, wire.HistoryMonths}[n]
					if of = fmt.Sprintf("%016x", uint64(room.IDOf(levels[n]))); own < level || own > level && at < now/above*above {
						continue
					}
				} else if n >= busy {
					data = rest
				}
				if data != nil {
					_, err = js.PublishAsync(wire.HistorySubject(level, of), data, jetstream.WithStallWait(time.Minute))
				}
			}
			testkit.NoError(b, err)
		}
		<-js.PublishAsyncComplete()
	}
	fill(wire.HistorySeconds, 1, 60, 1)
	fill(wire.HistoryMinutes, 60, 3600, 2)
	fill(wire.HistoryHours, 3600, 86400, 32)
	fill(wire.HistoryMonths, 3600, 30*86400, 420)
	nc.Close()
	filler.Shutdown()
	filler.WaitForShutdown()
	s := testkit.Must(embedded.Start(embedded.Options{Name: "bench", Dir: dir, Log: slog.New(slog.DiscardHandler)}))(b)
	b.Cleanup(s.Stop)
	f.past.kept = kept.New(open(s), slog.New(slog.DiscardHandler))
	for _, c := range [][3]string{
		{"400 days", "hours", "from=-9600h"},
		{"400 days by hours", "hours", "from=-9600h&step=3600"},
		{"24 hours", "minutes", "from=-24h"},
		{"24 hours by seconds", "seconds", "from=-24h&step=1"},
	} {
		b.Run(c[0], func(b *testing.B) {
			var body string
			used := cpu()
			for b.Loop() {
				body = f.see("/console/rooms/" + ids[c[1]] + "/charts?" + c[2]).body
			}
			used = cpu() - used
			var got chartsJSON
			testkit.NoError(b, json.Unmarshal([]byte(body), &got))
			b.ReportMetric(float64(len(got.Times)), "rows")
			b.ReportMetric(float64(len(body))/1e3, "kB")
			b.ReportMetric(used.Seconds()*1e3/float64(b.N), "cpu-ms/chart")
		})
	}
}

// The first view of a room, with its script, style and charts, has at most 90 KB.
func TestTheFirstViewIsSmall(t *testing.T) {
	f := start(t)
	id := f.sale()
	f.plan(id)
	sum := 0
	load := func(path string) string {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		if w.Code != http.StatusOK || w.Header().Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %d, encoding %q", path, w.Code, w.Header().Get("Content-Encoding"))
		}
		t.Logf("%6d bytes of %s", w.Body.Len(), path)
		sum += w.Body.Len()
		return path
	}
	path := load("/console/rooms/" + id)
	page := f.see(path)
	for _, m := range regexp.MustCompile(`(?:src|stylesheet" href|data-charts)="([^"]+)"`).FindAllStringSubmatch(page.body,
		-1) {
		load(strings.ReplaceAll(m[1], "&amp;", "&"))
	}
	if t.Logf("%6d bytes in all", sum); sum > 90<<10 {
		t.Errorf("the first view has %d bytes", sum)
	}
}
