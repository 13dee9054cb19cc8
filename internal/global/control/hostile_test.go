package control

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An answer names the first ten faults and their number, and suggests keys for those alone. Bodies that are deep, wide
// or long are refused before anything is computed with them: memory is the measure, because it does not depend on the
// load of the machine.
func TestHostileBodies(t *testing.T) {
	f := start(t)
	id := f.made()
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"total_active_user%d":1`, i)
		}
		return "{" + b.String()[1:] + "}"
	}
	file := func(yaml string) string { return fmt.Sprintf(`{"rooms_yaml":%q}`, yaml) }
	deep := strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000)
	list := func(item string, n int) string { return "[" + strings.Repeat(item+",", n-1) + item + "]" }
	long, own, event := strings.Repeat("a", 2_000_000), "/vestibule/rooms/"+id, "{z}/"+id+"/events"
	const named, one = 11, 1
	for name, c := range map[string]struct {
		role           Role
		method, path   string
		body           string
		status, faults int // the number of faults is one of them
	}{
		"keys, to try":            {Viewer, "POST", own + "/rules/try", keys(900), 400, named},
		"more keys, to try":       {Viewer, "POST", own + "/rules/try", keys(60_000), 413, one},
		"repeated key, to try":    {Viewer, "POST", own + "/rules/try", `{"host":"a"` + strings.Repeat(`,"host":1`, 900) + "}", 400, named},
		"deep, to try":            {Viewer, "POST", own + "/rules/try", deep, 400, one},
		"elements, to try":        {Viewer, "POST", own + "/rules/try", `{"host":` + list("1", 2000) + "}", 400, one},
		"long expression, to try": {Viewer, "POST", own + "/rules/try", `{"host":"a","expression":"` + long[:5000] + `"}`, 400, one},
		"faulty expression":       {Viewer, "POST", own + "/rules/try", `{"host":"a","expression":"` + strings.Repeat("! ", 2000) + `"}`, 200, 0},
		"long path, to try":       {Viewer, "POST", own + "/rules/try", `{"host":"a","path":"` + strings.Repeat("/%2e", 4000) + `"}`, 200, 0},
		"long key, to try":        {Viewer, "POST", own + "/rules/try", `{"` + long[:60_000] + `":1,"host":"a"}`, 400, one},
		"keys, for a link":        {Viewer, "POST", "/vestibule/console/links", keys(900), 400, named},
		"keys of a room":          {Editor, "POST", "{z}", keys(900), 400, named},
		"more keys of a room":     {Editor, "POST", "{z}", keys(60_000), 400, one},
		"own keys of a room":      {Editor, "PATCH", "{z}/" + id, `{"vestibule":` + keys(900) + "}", 400, named},
		"deep room":               {Editor, "PATCH", "{z}/" + id, deep, 400, one},
		"routes":                  {Editor, "PATCH", "{z}/" + id, `{"additional_routes":` + list("{}", 900) + "}", 400, one},
		"long name":               {Editor, "PATCH", "{z}/" + id, `{"name":"` + long + `"}`, 400, one},
		"page of tags":            {Editor, "PATCH", "{z}/" + id, `{"custom_page_html":"` + strings.Repeat("{{a}}", 200_000) + `"}`, 400, one},
		"page of partials":        {Editor, "PATCH", "{z}/" + id, `{"custom_page_html":"` + strings.Repeat("{{>a}}", 4_000) + `"}`, 400, one},
		"style of urls":           {Editor, "PATCH", "{z}/" + id, `{"custom_page_html":"a{` + strings.Repeat("url(a)", 100_000) + `}"}`, 400, one},
		"keys of an event":        {Editor, "POST", event, keys(900), 400, named},
		"long name of an event":   {Editor, "POST", event, `{"name":"` + long + `"}`, 400, 3},
		"keys of a rule":          {Editor, "PUT", "{z}/" + id + "/rules", "[" + keys(900) + "]", 400, named},
		"rules":                   {Editor, "PUT", "{z}/" + id + "/rules", list("{}", 900), 400, named},
		"more rules":              {Editor, "PUT", "{z}/" + id + "/rules", list("{}", 90_000), 400, one},
		"keys of a pause":         {Operator, "PATCH", own + "/controls", `{"pause":` + keys(900) + "}", 400, named},
		"long site":               {Editor, "PUT", "/vestibule/hosts/a.test", `{"origin":"http://` + long + `"}`, 413, one},
		"keys of a file":          {Editor, "POST", "/vestibule/apply", file("rooms: [{" + strings.Repeat("total_active_user: 1,", 30_000) + "}]"), 400, named},
		"rooms of a file":         {Editor, "POST", "/vestibule/apply", file("rooms:\n" + strings.Repeat("- {}\n", 9_000)), 400, named},
		"more rooms of a file":    {Editor, "POST", "/vestibule/apply", file("rooms:\n" + strings.Repeat("- {}\n", 900_000)), 400, one},
		"elements of a file":      {Editor, "POST", "/vestibule/apply", file("rooms: [" + strings.Repeat("a,", 900_000) + "]"), 400, one},
		"pages":                   {Editor, "POST", "/vestibule/apply", `{"rooms_yaml":"rooms: []","pages":` + keys(90_000) + "}", 400, one},
	} {
		r := httptest.NewRequest(c.method, Prefix+strings.ReplaceAll(c.path, "{z}", "/zones/"+Zone+"/waiting_rooms"),
			strings.NewReader(c.body))
		r.Header.Set("Authorization", "Bearer "+f.token[c.role])
		w := httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f.api.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		if used := int(after.TotalAlloc-before.TotalAlloc) - 8*len(c.body); used > 200<<20 || w.Body.Len() > 32<<10 {
			t.Errorf("%s: %d MB for an answer of %d bytes", name, used>>20, w.Body.Len())
		}
		faults := strings.Count(w.Body.String(), `"code":1002`)
		if w.Code != c.status || faults != c.faults || faults == named && !strings.Contains(w.Body.String(), "faults, the first 10 are named") {
			t.Errorf("%s: %d with %d faults, want %d with %d: %.300s", name, w.Code, faults, c.status, c.faults, w.Body)
		}
	}
	a := f.ask(Editor, "PATCH", "{z}/"+id, keys(25))
	if last := a.Errors[len(a.Errors)-1].Message; !strings.Contains(last, "there are 25 faults") {
		t.Error(last)
	}
}

// endless is a body that never ends: a client that sends slowly.
type endless struct{ ctx context.Context }

func (e endless) Read([]byte) (int, error) {
	<-e.ctx.Done()
	return 0, io.ErrUnexpectedEOF
}

// A principal has four requests served at once and sixty that wait; those of others have their turns meanwhile. One
// large body is in memory at a time.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, ctx := newTurns(), t.Context()
		var held []*Turn
		for range maxAtOnce {
			turn, err := all.take(ctx, "a")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, turn)
		}
		begun := time.Now()
		if _, err := all.take(ctx, "a"); explain(err).Status != http.StatusTooManyRequests || time.Since(begun) != waitAtMost {
			t.Error(err, time.Since(begun))
		}
		other, err := all.take(ctx, "b")
		if err != nil || time.Since(begun) != waitAtMost {
			t.Error("another principal waits:", err)
		}
		if err := other.large(ctx); err != nil {
			t.Error(err)
		}
		within, err := all.take(context.WithValue(ctx, turnKey{}, other), "b")
		if err != nil || within.large(ctx) != nil {
			t.Error("a call within a turn waits for it:", err)
		}
		within.End()
		got := make(chan error)
		go func() { got <- held[0].large(ctx) }()
		synctest.Wait()
		select {
		case err := <-got:
			t.Error("two large bodies at once:", err)
		default:
		}
		other.End()
		if err := <-got; err != nil {
			t.Error(err)
		}
		for range maxWaiting {
			go func() {
				if turn, err := all.take(ctx, "a"); err == nil {
					turn.End()
				}
			}()
		}
		synctest.Wait()
		now := time.Now()
		if _, err := all.take(ctx, "a"); explain(err).Status != http.StatusTooManyRequests || time.Now() != now {
			t.Error("more wait than may:", err)
		}
		for _, turn := range held {
			turn.End()
		}
		synctest.Wait()
		if all.mu.Lock(); len(all.by) != 0 || len(all.one) != 0 {
			t.Errorf("%d principals and %d large bodies are left", len(all.by), len(all.one))
		}
		all.mu.Unlock()
	})
}

// A token whose requests hang keeps nobody else from pausing a room.
func TestPauseBesideHangingRequests(t *testing.T) {
	f := start(t)
	id := f.made()
	ctx, end := context.WithCancel(t.Context())
	done := make(chan int)
	const many = 2 * (maxAtOnce + maxWaiting)
	for range many {
		go func() {
			r := httptest.NewRequest("POST", Prefix+"/zones/"+Zone+"/waiting_rooms", endless{ctx}).WithContext(ctx)
			r.Header.Set("Authorization", "Bearer "+f.token[Editor])
			w := httptest.NewRecorder()
			f.api.ServeHTTP(w, r)
			done <- w.Code
		}()
	}
	for range many - maxAtOnce - maxWaiting {
		if code := <-done; code != http.StatusTooManyRequests {
			t.Error(code)
		}
	}
	f.ok(Operator, "PATCH", "/vestibule/rooms/"+id+"/controls", `{"pause":{}}`)
	end()
	for range maxAtOnce + maxWaiting {
		<-done
	}
}
