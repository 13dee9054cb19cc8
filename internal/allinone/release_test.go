package allinone

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/control/api"
	"vestibule/internal/lab/testkit"
)

// ask sends a request to the API of a tree, and decodes its result into out.
func ask(t *testing.T, tree *Tree, method, path, body, key string, out any) int {
	t.Helper()
	req := testkit.Must(http.NewRequestWithContext(testkit.Within(t), method, tree.Info.Control.URL+path,
		bytes.NewReader([]byte(body))))(t)
	req.Header.Set("Authorization", "Bearer "+tree.Info.Control.Token)
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp := testkit.Must(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	a := struct{ Result any }{out}
	testkit.NoError(t, json.NewDecoder(resp.Body).Decode(&a))
	return resp.StatusCode
}

// TestRelease: in a paused room visitors wait at every edge, and exactly the released number enters.
func TestRelease(t *testing.T) {
	t.Parallel()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	tree, logged := grow(t, 50, 1000, 10*time.Minute, func(o *Options) { o.Params.Hold = 2 * time.Second })
	at := "/vestibule/rooms/" + room.PublicID("demo")
	if code := ask(t, tree, http.MethodPost, at+"/releases", `{"people":3}`, "", nil); code != http.StatusConflict {
		t.Errorf("a release where the room is not paused: %d", code)
	}
	if code := ask(t, tree, http.MethodPatch, at+"/controls", `{"pause":{}}`, "", nil); code != http.StatusOK {
		t.Fatalf("pause: %d", code)
	}
	everywhere(t, tree, "nobody is let in at any edge", func(v *wire.View) bool { return v.Cutoff == 0 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var in, asked atomic.Int64
	var people sync.WaitGroup
	defer people.Wait()
	defer cancel()
	const all, some = 12, 5
	for i := range all {
		b, edge := newBrowser(t), tree.Info.Edges[i%len(tree.Info.Edges)].URL
		people.Go(func() {
			for ctx.Err() == nil {
				p, err := b.try(ctx, edge, "application/json")
				asked.Add(1)
				if err == nil && p.inside {
					in.Add(1)
					return
				}
				sleep(ctx, p.retry)
			}
		})
	}
	var k, same api.Release
	if code := ask(t, tree, http.MethodPost, at+"/releases", fmt.Sprintf(`{"people":%d,"reason":"row one"}`, some), "once",
		&k); code != http.StatusOK || k.People != some {
		t.Fatalf("release: %d %+v", code, k)
	}
	for range 2 {
		if code := ask(t, tree, http.MethodPost, at+"/releases", fmt.Sprintf(`{"people":%d}`, some), "once",
			&same); code != http.StatusOK || same.Id != k.Id {
			t.Errorf("the same again: %d %+v, want release %d", code, same, k.Id)
		}
	}
	fewer := func() bool { return logged.Has("no longer leading") }
	took := eventually(t, "all who are released are in, and the API says so", func() bool {
		var now []api.Release
		ask(t, tree, http.MethodGet, at+"/releases", "", "", &now)
		return fewer() || in.Load() >= some && len(now) == 1 && now[0].State == api.Done
	})
	if !fewer() {
		eventually(t, "the audit log says that they are let in", func() bool {
			var log []api.AuditEntry
			ask(t, tree, http.MethodGet, "/vestibule/audit", "", "", &log)
			n := 0
			for _, e := range log {
				if strings.HasPrefix(e.Text, fmt.Sprintf("let in the next %d visitors of paused room ", some)) && e.Reason == "row one" {
					n++
				}
			}
			return n == 1
		})
	}
	before := asked.Load()
	again := eventually(t, "the others ask again", func() bool { return asked.Load() >= before+all-some })
	t.Logf("all were in after %v, the others asked again within %v", took.Round(time.Millisecond),
		again.Round(time.Millisecond))
	if n := in.Load(); n > some || n < some && !fewer() {
		t.Errorf("%d are in, of a release of %d", n, some)
	}
}
