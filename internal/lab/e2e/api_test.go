package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/global/control"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/testkit"
)

// apiClient asks the API with a token.
type apiClient struct{ url, token string }

// adminOf returns a client with the first token of a fleet, which its global writes to a file.
func adminOf(t *testing.T, global *command, dir string) apiClient {
	t.Helper()
	a := apiClient{url: global.at["control"]}
	until(t, "there is a token", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "control.token"))
		a.token = strings.TrimSpace(string(data))
		return err == nil && a.token != ""
	})
	return a
}

// ask sends a request. The result is that of the envelope.
func (a apiClient) ask(ctx context.Context, method, path string, body []byte) (status int, result json.RawMessage, err error) {
	r, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+a.token)
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	data, err := io.ReadAll(res.Body)
	var envelope struct{ Result json.RawMessage }
	if err = errors.Join(err, res.Body.Close()); err == nil {
		err = json.Unmarshal(data, &envelope)
	}
	return res.StatusCode, envelope.Result, err
}

// do sends a request that must succeed, again while the store is not there, and returns a field of its result.
func (a apiClient) do(t *testing.T, method, path, body, field string) (value string) {
	t.Helper()
	until(t, method+" "+path+" succeeds", func() bool {
		status, result, err := a.ask(testkit.Within(t), method, path, []byte(body))
		if err != nil || status >= 500 {
			return false
		}
		var fields map[string]any
		if status != http.StatusOK || json.Unmarshal(result, &fields) != nil {
			t.Fatalf("%s %s: %d %s", method, path, status, result)
		}
		value = fmt.Sprint(fields[field])
		return true
	})
	return value
}

// saleRoom is the body of a room on shop.example.
func saleRoom(total int) string {
	return fmt.Sprintf(`{"name":"sale","host":"shop.example","total_active_users":%d,"new_users_per_minute":1000}`, total)
}

// TestHostileBodiesBesideASale: fifty bodies that are nothing but faults come at once: of 60 KB from tokens that may only
// read, and of 1.9 MB from those of editors. The leader keeps its lease and its memory, another token pauses the room
// meanwhile, and a visitor comes in.
func TestHostileBodiesBesideASale(t *testing.T) {
	bin, dir := build(t), t.TempDir()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Demo-Origin", "1")
	}))
	t.Cleanup(site.Close)
	b := &bus{url: map[string]string{}}
	global := startGlobal(t, bin, dir, "", fmt.Sprintf(
		"nats: {embedded: true, listen: %q}\ncontrol: {listen: '127.0.0.1:0', origin: %q}\n", testkit.FreeAddr(t), site.URL),
		[]string{"nairobi"})
	b.url["global"] = global.at["nats"]
	regional := startRegionals(t, bin, dir, b, []string{"nairobi"})[0]
	edge := startEdge(t, bin, dir, b, "nairobi", "edge-1", quickEdge)
	admin := adminOf(t, global, filepath.Join(dir, "global"))
	room := admin.do(t, "POST", "/zones/"+control.Zone+"/waiting_rooms", saleRoom(1000), "id")
	shopper := func() shopper { return newShopper(t, strings.TrimPrefix(edge.at["url"], "http://")) }
	until(t, "a visitor is inside", shopper().inside)

	body := func(size int) []byte {
		text := []byte("{")
		for i := 0; len(text) < size; i++ {
			text = fmt.Appendf(text, "\"k%d\":1,", i)
		}
		return append(text[:len(text)-1], '}')
	}
	small, large := body(60_000), body(1_900_000)
	terms := func() [2]int {
		return [2]int{gauge(t, global, "vestibule_global_term"), gauge(t, regional, "vestibule_regional_term")}
	}
	before := terms()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	var all sync.WaitGroup
	answers := make(chan int, 50)
	for n := range 5 {
		role, method, path, body := "viewer", "POST", "/vestibule/rooms/"+room+"/rules/try", small
		if n%2 == 1 {
			role, method, path, body = "editor", "PATCH", "/zones/"+control.Zone+"/waiting_rooms/"+room, large
		}
		token := admin.do(t, "POST", "/vestibule/tokens", fmt.Sprintf(`{"name":"t%d","role":%q}`, n, role), "value")
		for range 10 {
			all.Go(func() {
				status, _, err := apiClient{admin.url, token}.ask(ctx, method, path, body)
				if err != nil {
					status = 0
				}
				answers <- status
			})
		}
	}
	longest := time.Duration(0)
	for _, pause := range []string{`{"pause":{}}`, `{"pause":null}`, `{"pause":{}}`, `{"pause":null}`} {
		begun := time.Now()
		admin.do(t, "PATCH", "/vestibule/rooms/"+room+"/controls", pause, "pause")
		longest = max(longest, time.Since(begun))
	}
	until(t, "a visitor comes in meanwhile, or after the pause", shopper().inside)
	all.Wait()
	close(answers)
	codes := map[int]int{}
	for code := range answers {
		codes[code]++
	}
	if codes[http.StatusBadRequest] == 0 || codes[http.StatusBadRequest]+codes[http.StatusTooManyRequests] != 50 {
		t.Errorf("answers %v", codes)
	}
	lost := 0
	for i, term := range terms() {
		lost += term - before[i]
	}
	t.Logf("answers %v", codes)
	figures.Check(t, "api: leases lost under 50 hostile bodies", "", float64(lost))
	figures.Check(t, "api: memory of global under 50 hostile bodies", "", float64(memoryOf(t, global, peakMemory))/(1<<20))
	figures.CheckTime(t, "api: a pause under 50 hostile bodies", "", longest)
}

// consoleOf logs in to the console. It returns what a page shows of the state of a room, by the page's path.
func (a apiClient) consoleOf(t *testing.T) (shows func(path string) string) {
	t.Helper()
	jar := testkit.Must(cookiejar.New(nil))(t)
	browser, base := http.Client{Jar: jar}, strings.TrimSuffix(a.url, control.Prefix)
	ask := func(method, path string) string {
		r := testkit.Must(http.NewRequestWithContext(testkit.Within(t), method, base+path, http.NoBody))(t)
		res := testkit.Must(browser.Do(r))(t)
		page, err := io.ReadAll(res.Body)
		if err = errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %d, %v", method, path, res.StatusCode, err)
		}
		return string(page)
	}
	ask(http.MethodPost, a.do(t, http.MethodPost, "/vestibule/console/links", "", "path"))
	state := regexp.MustCompile(`data-state="[a-z]*">([^<]*)<`)
	return func(path string) string {
		page := ask(http.MethodGet, path)
		m := state.FindStringSubmatch(page)
		if m == nil {
			t.Fatalf("%s shows no state:\n%s", path, page)
		}
		return m[1]
	}
}

// TestADeadSiteIsTold: a site dies while nobody asks for it. The webhook, the console's list and page of the room,
// status and fleet status say so, and the site comes before the full room.
func TestADeadSiteIsTold(t *testing.T) {
	bin, data := build(t), filepath.Join(t.TempDir(), "data")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Demo-Origin", "1")
	}))
	t.Cleanup(site.Close)
	kinds := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct{ Type string }
		if json.NewDecoder(r.Body).Decode(&m) == nil {
			kinds <- m.Type
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(receiver.Close)
	addr := testkit.FreeAddr(t)
	one := start(t, filepath.Join(bin, "vestibule"), "serve", "--rooms", "", "--origin", site.URL, "--listen", addr,
		"--control", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--data-dir", data, "--notices-networks", "127.0.0.0/8")
	admin := adminOf(t, one, filepath.Join(data, "global"))
	room := admin.do(t, "POST", "/zones/"+control.Zone+"/waiting_rooms", saleRoom(1), "id")
	admin.do(t, "POST", "/vestibule/webhooks", fmt.Sprintf(`{"name":"pager","url":%q}`, receiver.URL), "id")
	until(t, "a visitor is inside", newShopper(t, addr).inside)
	run := func(args ...string) string {
		cmd := exec.CommandContext(testkit.Within(t), filepath.Join(bin, "vestibule"), args...)
		cmd.Env = append(os.Environ(), "VESTIBULE_SERVER="+admin.url, "VESTIBULE_TOKEN="+admin.token)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Logf("%v: %v %s", args, err, out)
		}
		return string(out)
	}
	until(t, "the room is full", func() bool { return strings.Contains(run("status", "sale"), "total_active_users is reached") })
	state, pages := admin.consoleOf(t), map[string]string{"console": "/console/", "room page": "/console/rooms/" + room}
	for what, path := range pages {
		if got := state(path); got != "Queueing" {
			t.Errorf("%s: %q, want Queueing", what, got)
		}
	}

	site.Close()
	begun := time.Now()
	told := map[string]time.Duration{}
	const says = "the site does not answer"
	until(t, "everybody is told", func() bool {
		for more := true; more; {
			select {
			case kind := <-kinds:
				if kind == "site.down" {
					told["webhook"] = time.Since(begun)
				}
			default:
				more = false
			}
		}
		for what, path := range pages {
			if _, known := told[what]; !known && state(path) == "Site down" {
				told[what] = time.Since(begun)
			}
		}
		for _, command := range []string{"status", "fleet status"} {
			if _, known := told[command]; known {
				continue
			}
			out := run(strings.Fields(command)...)
			site, full := strings.Index(out, says), strings.Index(out, "total_active_users is reached")
			if site < 0 {
				continue
			}
			told[command] = time.Since(begun)
			if full >= 0 && full < site {
				t.Errorf("%s says first that the room is full:\n%s", command, out)
			}
		}
		return len(told) == 5
	})
	for what, after := range told {
		figures.CheckTime(t, "site: told after its end", what, after)
	}
}
