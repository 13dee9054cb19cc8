// Package visitor is the HTTP client of the visitors that chaos and the end-to-end tests send to
// real edges: a browser or an app with its own cookies and connections. The callers decide when and where it goes.
package visitor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/page"
)

// Visitor is one person's browser or app. It is safe for concurrent use.
type Visitor struct {
	Client *http.Client
	Host   string // requested; "" for that of the URL
	Site   string // header that only responses of the site have

	mu      sync.Mutex
	cookies map[string]string
}

// Answer is a complete response.
type Answer struct {
	Status int
	Inside bool          // the site answered
	Retry  time.Duration // from its header, negative for none
	Shown  Shown         // of a waiting page
	Cookie *http.Cookie  // newest one that was set, nil for none
	Script string        // path of the script of a waiting page, "" for one that is in the page
}

// Shown is the vestibule object of the JSON form; see docs/WAITING-PAGE.md.
type Shown struct {
	State, Lost     string
	QueueingMethod  string
	JoinedAt, Place time.Time // Place is zero for JoinedAt

	PeopleAhead int64 // negative if absent
	Counting    bool

	WaitTimeKnown, WaitTimeLonger                            bool
	WaitTimeSeconds, WaitTimeLowSeconds, WaitTimeHighSeconds float64
	WaitTimePercentileSeconds                                [3]float64
	RetryAfterSeconds                                        float64

	Draw struct {
		Stage, Commit string
		Receipt       *draw.Receipt
		Place         int // rank among the entrants; 0 for unknown
	}
}

// Retry returns the time until the next request.
func (s *Shown) Retry() time.Duration {
	return time.Duration(s.RetryAfterSeconds * float64(time.Second))
}

// IsRandom reports whether the order is random.
func (s *Shown) IsRandom() bool { return s.QueueingMethod == room.MethodRandom }

// Standing returns the place in the queue, like page.js.
func (s *Shown) Standing() fleettime.Time {
	if s.Place.IsZero() {
		return fleettime.TimeOf(s.JoinedAt)
	}
	return fleettime.TimeOf(s.Place)
}

// Request returns a GET with the visitor's present cookies.
func (v *Visitor) Request(ctx context.Context, url string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Host = v.Host
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, value := range v.cookies {
		req.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	return req, nil
}

// HasTicket reports whether the visitor has cookies.
func (v *Visitor) HasTicket() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.cookies) > 0
}

// Forget drops all cookies, like a new browser.
func (v *Visitor) Forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cookies = nil
}

// Do sends a request and keeps the cookies of the response. Neither the site's page nor the waiting page is an error;
// any other response is one, with its status in the answer.
func (v *Visitor) Do(req *http.Request) (a Answer, err error) {
	resp, err := v.Client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close() // read completely
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	a.Status = resp.StatusCode
	v.mu.Lock()
	for _, c := range resp.Cookies() {
		if c.MaxAge < 0 {
			delete(v.cookies, c.Name)
			continue
		}
		if v.cookies == nil {
			v.cookies = map[string]string{}
		}
		v.cookies[c.Name] = c.Value
		a.Cookie = c
	}
	v.mu.Unlock()
	if a.Inside = resp.StatusCode == http.StatusOK && resp.Header.Get(v.Site) != ""; a.Inside {
		return a, nil
	}
	a.Retry = -1
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		a.Retry = time.Duration(n) * time.Second
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		var form struct{ Vestibule Shown }
		err = json.Unmarshal(body, &form)
		a.Shown = form.Vestibule
	} else if _, state, ok := strings.Cut(strings.Replace(string(body), `id="now">`, "id=now>", 1), "id=now>"); ok { // earlier releases quote
		// What page.js reads: a list that begins with the state, and ends with named values.
		state, _, _ = strings.Cut(state, "</script>")
		var list []json.RawMessage
		if err = json.Unmarshal([]byte(state), &list); err == nil && len(list) > 1 {
			err = errors.Join(json.Unmarshal(list[0], &a.Shown.State), json.Unmarshal(list[len(list)-1], &a.Shown))
		}
	}
	if _, script, ok := strings.Cut(string(body), `<script src="`); ok {
		a.Script, _, _ = strings.Cut(script, `"`)
	}
	if err != nil || a.Shown.State == "" {
		return a, fmt.Errorf("status %d, Retry-After %q, %.60q", a.Status, resp.Header.Get("Retry-After"), body)
	}
	return a, nil
}

// Waiting reports whether the response is the waiting page of a visitor that has to ask again.
func (a *Answer) Waiting() bool {
	return a.Shown.State != "" && (a.Status == http.StatusOK || a.Status == http.StatusTooManyRequests) && a.Retry >= 0
}

// AskJSON requests a page like an app. With a poll it asks for the state only, like the waiting page's script: "now" for
// an answer at once, "1" for one that may be held until the turn.
func (v *Visitor) AskJSON(ctx context.Context, url, poll string) (Answer, error) {
	req, err := v.Request(ctx, url)
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("Accept", "application/json")
	if poll != "" {
		req.Header.Set("Vestibule-Poll", poll)
	}
	return v.Do(req)
}

// Stream reads the event stream of a room at an edge, until it or ctx ends.
func (v *Visitor) Stream(ctx context.Context, edge, room string, each func(*page.Broadcast)) error {
	req, err := v.Request(ctx, edge+"/.well-known/vestibule/events?room="+room)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: v.Client.Transport}).Do(req) // without a timeout
	if err != nil {
		return err
	}
	defer resp.Body.Close() // nothing more is read
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if b, err := ReadBroadcast([]byte(text)); err == nil {
				each(b)
			}
		}
	}
	return lines.Err()
}

// Leave says goodbye to a room at an edge, and returns the status of the response.
func (v *Visitor) Leave(ctx context.Context, edge, room string) (status int, err error) {
	req, err := v.Request(ctx, edge+"/.well-known/vestibule/leave?room="+room)
	if err != nil {
		return 0, err
	}
	req.Method = http.MethodPost
	resp, err := v.Client.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
