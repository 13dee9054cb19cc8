package control

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"vestibule/internal/core/room"
	"vestibule/internal/page"
	"vestibule/internal/page/checkpage"
)

// previews are pages that anybody with their address can see. The candidate that made them keeps the last few.
type previews struct {
	pages *lru.Cache[string, preview]
	now   func() time.Time
}

type preview struct {
	shown *page.Page
	until time.Time
}

const (
	maxPreviews = 50
	previewFor  = time.Hour
)

func newPreviews() *previews {
	pages, err := lru.New[string, preview](maxPreviews)
	if err != nil {
		panic(err) // for a size below 1
	}
	return &previews{pages: pages, now: time.Now}
}

// ServeHTTP shows a page as a waiting visitor sees it, or in the state and the language that the query names.
func (p *previews) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v, ok := p.pages.Get(r.PathValue("id"))
	if !ok || p.now().After(v.until) {
		http.Error(w, "This preview is not there any more.", http.StatusNotFound)
		return
	}
	state := r.URL.Query().Get("state")
	visitor := page.Samples[0].Visitor
	for _, s := range page.Samples {
		if s.Name == state {
			visitor = s.Visitor
		}
	}
	visitor.Lang = page.LangOf(r.URL.Query().Get("lang"))
	visitor.Nonce = rand.Text()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	// A sandboxed origin: the page's scripts cannot reach this one.
	w.Header().Set("Content-Security-Policy", "sandbox allow-scripts; "+v.shown.Policy(visitor.Nonce, ""))
	if _, err := w.Write(v.shown.Render(nil, &visitor)); err != nil {
		return // the client disconnected
	}
}

type previewHost struct{}

func (p *previews) create(ctx context.Context, q *request) (any, error) {
	var f faults
	text, ok := f.longText("/custom_html", f.object("", q.body, "custom_html")["custom_html"], room.MaxPageBytes)
	shown := page.Builtin()
	if ok && text != "" {
		_, err := checkpage.Check([]byte(text))
		if err == nil {
			shown, err = page.Custom([]byte(text))
		}
		if err != nil {
			f.add("/custom_html", "custom_html: %v", err)
		}
	}
	if f.n > 0 {
		return nil, f.err()
	}
	id := strings.ToLower(rand.Text())
	p.pages.Add(id, preview{shown, p.now().Add(previewFor)})
	base, _ := ctx.Value(previewHost{}).(string)
	return map[string]string{"preview_url": base + "/preview/" + id}, nil
}
