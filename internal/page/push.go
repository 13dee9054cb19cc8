package page

import (
	_ "embed"
	"encoding/json"
)

var (
	//go:embed webpush/page.js
	pushPage string

	// PushWorker is the service worker that shows notifications.
	//
	//go:embed webpush/worker.js
	PushWorker string
)

// AppendPush appends the script of a waiting page for subscribing to notifications; key is the fleet's.
func AppendPush(dst []byte, l Lang, room, key string) []byte {
	c := catalogs[l]
	data, err := json.Marshal(map[string]string{
		"room": room, "key": key, "label": c.msg["notify"], "on": c.msg["push_on"], "failed": c.msg["push_failed"],
		"home": c.msg["push_home"],
	})
	if err != nil {
		panic(err) // texts always marshal
	}
	return append(append(append(append(dst, pushPage...), '('), data...), ");\n"...)
}

// Stages of a notification in [PushText].
const (
	PushConfirm = "confirm"
	PushSoon    = "soon"
	PushTurn    = "turn"
)

// PushText returns a notification for the service worker: of a stage in a room, which opens a page of the site. of
// tells subscriptions apart, and code confirms them.
func PushText(l Lang, stage, room, open, of, code string) ([]byte, error) {
	c := catalogs[l]
	m := struct {
		Stage string `json:"stage"`
		Room  string `json:"room"`
		Title string `json:"title"`
		Page  string `json:"page"`
		Lang  string `json:"lang"`
		Dir   string `json:"dir"`
		Of    string `json:"of"`
		Code  string `json:"code"`
	}{Stage: stage, Room: room, Page: open, Lang: c.code, Dir: c.dir, Of: of, Code: code}
	switch stage {
	case PushTurn:
		m.Title = c.msg["entering"]
	case PushSoon:
		m.Title = c.msg["wait"] + ": " + string(c.appendUnit(nil, minutes, 5))
	default:
		m.Title = c.msg["push_on"]
	}
	return json.Marshal(&m)
}
