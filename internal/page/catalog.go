package page

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"

	"vestibule/internal/core/room"
	"vestibule/internal/core/strictjson"
)

// Lang is a language of the built-in page: an index into [room.Languages].
type Lang uint8

// English is the fallback of every language.
const English Lang = 0

// LangOf returns the language with this code, English for an unknown one.
func LangOf(code string) Lang {
	l, _ := LangNamed(code) // English is the first
	return l
}

// LangNamed returns the language with this code; ok is false for an unknown one.
func LangNamed(code string) (l Lang, ok bool) {
	i := slices.Index(room.Languages, code)
	return Lang(max(0, i)), i >= 0
}

// Code returns the code of the language, such as "pt-BR".
func (l Lang) Code() string { return room.Languages[l] }

// Dir returns the direction in which the language is written, "ltr" or "rtl".
func (l Lang) Dir() string { return catalogs[l].dir }

// messages are all texts of the page. A text with a number has one form for each plural category of the language
// (zero, one, two, few, many, other). The others have no number, so that no language needs to inflect them.
type messages struct {
	Language       string `json:"language"`
	Languages      string `json:"languages"`
	Queued         string `json:"queued"`
	QueuedText     string `json:"queued_text"`
	QueuedRandom   string `json:"queued_random"`
	QueuedLonger   string `json:"queued_longer"`
	QueuedCounting string `json:"queued_counting"`
	Next           string `json:"next"`
	NextText       string `json:"next_text"`
	Entering       string `json:"entering"`
	EnteringText   string `json:"entering_text"`
	Paused         string `json:"paused"`
	PausedSystem   string `json:"paused_system"`
	PausedOperator string `json:"paused_operator"`
	PausedSite     string `json:"paused_site"`
	Closed         string `json:"closed"`
	ClosedText     string `json:"closed_text"`
	Before         string `json:"before"`
	BeforeText     string `json:"before_text"`
	DrawOpen       string `json:"draw_open"`
	DrawMaking     string `json:"draw_making"`
	DrawLate       string `json:"draw_late"`
	DrawPlaced     string `json:"draw_placed"`
	DrawCheck      string `json:"draw_check"`
	DrawPlace      string `json:"draw_place"`
	DrawCloses     string `json:"draw_closes"`
	Check          string `json:"check"`
	CheckText      string `json:"check_text"`
	CheckRecord    string `json:"check_record"`
	CheckReceipts  string `json:"check_receipts"`
	CheckStart     string `json:"check_start"`
	CheckRight     string `json:"check_right"`
	CheckWrong     string `json:"check_wrong"`
	Copy           string `json:"copy"`
	Save           string `json:"save"`
	Moment         string `json:"moment"`
	MomentText     string `json:"moment_text"`
	Offline        string `json:"offline"`
	OfflineText    string `json:"offline_text"`
	Left           string `json:"left"`
	LeftText       string `json:"left_text"`
	LostExpired    string `json:"lost_expired"`
	LostAway       string `json:"lost_away"`
	LostVoid       string `json:"lost_void"`
	Blocked        string `json:"blocked"`
	BlockedText    string `json:"blocked_text"`
	Form           string `json:"form"`
	FormBack       string `json:"form_back"`
	Message        string `json:"message"`
	Earlier        string `json:"earlier"`
	Ahead          string `json:"ahead"`
	Wait           string `json:"wait"`
	Starts         string `json:"starts"`
	WaitNow        string `json:"wait_now"`
	WaitUnknown    string `json:"wait_unknown"`
	WaitShort      string `json:"wait_short"`
	WaitLong       string `json:"wait_long"`
	WaitShare      string `json:"wait_share"`
	TurnAt         string `json:"turn_at"`
	Progress       string `json:"progress"`
	Then           string `json:"then"`
	Kept           string `json:"kept"`
	Total          string `json:"total"`
	Number         string `json:"number"`
	Joined         string `json:"joined"`
	Waited         string `json:"waited"`
	Updated        string `json:"updated"`
	Sound          string `json:"sound"`
	Notify         string `json:"notify"`
	Leave          string `json:"leave"`
	LeaveText      string `json:"leave_text"`
	LeaveYes       string `json:"leave_yes"`
	Rejoin         string `json:"rejoin"`
	PushOn         string `json:"push_on"`
	PushFailed     string `json:"push_failed"`
	PushHome       string `json:"push_home"`

	Second map[string]string `json:"second"`
	Minute map[string]string `json:"minute"`
	Hour   map[string]string `json:"hour"`
	Day    map[string]string `json:"day"`
}

//go:embed messages/*.json
var messageFiles embed.FS

// catalog is one language prepared for rendering.
type catalog struct {
	code   string
	tag    language.Tag
	dir    string
	msg    messages
	byKey  map[string]string // messages without a number
	units  [units][plural.Many + 1]counted
	small  [1000]plural.Form // of numbers below 1000
	digits [10]string
	groups [maxDigits + 1][]string // by number of digits: the separator before each digit
	script string                  // the messages for the page's script, as JSON
}

// counted is the text around a number.
type counted struct {
	before, after string
	bare          bool // it has its number in words
}

// unit is a unit of time.
type unit uint8

const (
	seconds unit = iota
	minutes
	hours
	days
	units
)

// pluralNames are the names of the categories in catalog files.
var pluralNames = [...]string{
	plural.Other: "other", plural.Zero: "zero", plural.One: "one", plural.Two: "two", plural.Few: "few",
	plural.Many: "many",
}

// catalogs are all languages, in the order of room.Languages. They are embedded: any test finds a broken one.
var catalogs = loadCatalogs()

func loadCatalogs() []*catalog {
	all := make([]*catalog, len(room.Languages))
	for i, code := range room.Languages {
		data, err := messageFiles.ReadFile("messages/" + code + ".json")
		if err == nil {
			all[i], err = newCatalog(code, data)
		}
		if err != nil {
			panic("waiting page: " + err.Error())
		}
	}
	return all
}

// newCatalog parses a catalog file. The error lists everything wrong with it.
func newCatalog(code string, data []byte) (*catalog, error) {
	c := &catalog{code: code, dir: "ltr", byKey: map[string]string{}}
	var err error
	if c.tag, err = language.Parse(code); err != nil {
		return nil, fmt.Errorf("%s: %w", code, err)
	}
	switch script, _ := c.tag.Script(); script.String() {
	case "Arab", "Hebr":
		c.dir = "rtl"
	}
	if err := strictjson.Decode(data, &c.msg); err != nil {
		return nil, fmt.Errorf("%s: %w", code, err)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	for u, forms := range [units]map[string]string{c.msg.Second, c.msg.Minute, c.msg.Hour, c.msg.Day} {
		for form, name := range pluralNames {
			text, ok := forms[name]
			if !ok {
				text = forms["other"]
			}
			before, after, holds := strings.Cut(text, "{n}")
			c.units[u][form] = counted{before, after, !holds}
		}
	}
	c.learnNumbers()
	script, err := json.Marshal(forScript(c.msg)) // escapes <, > and &
	if err != nil {
		return nil, fmt.Errorf("%s: %w", code, err)
	}
	c.script = string(script)
	return c, nil
}

// check returns all faults for the translator to correct, and fills in byKey.
func (c *catalog) check() error {
	var errs []error
	add := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("messages/%s.json: %s: %w", c.code, key, fmt.Errorf(format, args...)))
	}
	plain := func(key, text string) {
		switch {
		case strings.TrimSpace(text) == "":
			add(key, "is missing")
		case strings.TrimSpace(text) != text:
			add(key, "has blanks around it")
		case strings.ContainsAny(text, "<>&\"\\\n"):
			add(key, "has a character that a page would take for its own")
		}
	}
	for n := range c.small {
		c.small[n] = c.cardinal(uint64(n))
	}
	need := c.forms()
	v := reflect.ValueOf(c.msg)
	for i := range v.NumField() {
		key := v.Type().Field(i).Tag.Get("json")
		switch m := v.Field(i).Interface().(type) {
		case string:
			plain(key, m)
			switch rest := strings.Replace(m, "{n}", "", 1); {
			case key == "wait_share" && rest == m:
				add(key, "must have {n} once")
			case strings.ContainsAny(rest, "{}"), key != "wait_share" && rest != m:
				add(key, "has a placeholder, and there is nothing to put there")
			}
			c.byKey[key] = m
		case map[string]string:
			for name, text := range m {
				plain(key+"."+name, text)
				if !slices.Contains(need, name) {
					add(key+"."+name, "is no plural form of this language; it has %s", strings.Join(need, ", "))
				}
				n := strings.Count(text, "{n}")
				if strings.Count(text, "{") != n || strings.Count(text, "}") != n {
					add(key+"."+name, "has a placeholder that is not {n}")
				}
				if n > 1 || n == 0 && !c.single(name) {
					add(key+"."+name, "must have {n} once")
				}
			}
			for _, name := range need {
				if m[name] == "" {
					add(key+"."+name, "is missing")
				}
			}
		}
	}
	return errors.Join(errs...)
}

// forms returns the plural categories of whole numbers in this language.
func (c *catalog) forms() []string {
	var out []string
	for form, name := range pluralNames {
		if slices.Contains(c.small[:], plural.Form(form)) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// single reports whether a category contains exactly one number, which may then be in words.
func (c *catalog) single(name string) bool {
	n := 0
	for _, form := range c.small {
		if pluralNames[form] == name {
			n++
		}
	}
	return n == 1
}

// lost returns why the visitor's previous place is void, or "".
func (c *catalog) lost(v *Visitor) string {
	switch lost[v.Decision.Fresh] {
	case "expired", "left":
		return c.msg.LostExpired
	case "away":
		return c.msg.LostAway
	case "void":
		return c.msg.LostVoid
	}
	return ""
}

// languages returns the text of the link to the list of languages, also in English: the page may be in a language
// that the visitor does not read.
func (c *catalog) languages() string {
	english := "Language"
	if c.msg.Languages == english {
		return english
	}
	return c.msg.Languages + " / " + english
}

// heading and text describe the visitor's state.
func (c *catalog) heading(v *Visitor) string { return c.byKey[v.State().String()] }

func (c *catalog) text(v *Visitor) string {
	switch s := v.State(); s {
	case Paused:
		return c.byKey["paused_"+v.pausedBy()]
	case Queued:
		switch {
		case v.counting():
			return c.msg.QueuedCounting
		case v.longer():
			return c.msg.QueuedLonger
		case v.randomOrder():
			return c.msg.QueuedRandom
		}
		return c.msg.QueuedText
	default:
		return c.byKey[s.String()+"_text"]
	}
}

// textOrDraw describes the visitor's state, like text or drawText.
func (c *catalog) textOrDraw(v *Visitor) string {
	if stage := v.stage(); c.drawIsState(v, stage) {
		return c.drawText(stage)
	}
	return c.text(v)
}

// drawIsState reports whether the stage of a draw describes the state completely.
func (c *catalog) drawIsState(v *Visitor, stage string) bool {
	return stage != "" && (v.State() == Before || v.State() == Queued && c.text(v) == c.msg.QueuedText)
}

// drawText describes the stage of a draw.
func (c *catalog) drawText(stage string) string {
	switch stage {
	case DrawOpen:
		return c.msg.DrawOpen
	case DrawLate:
		return c.msg.DrawLate
	case DrawPlaced:
		return c.msg.DrawPlaced
	}
	return c.msg.DrawMaking
}

// forScript returns the messages that the script uses.
func forScript(m messages) map[string]any {
	out := map[string]any{}
	v := reflect.ValueOf(m)
	for i := range v.NumField() {
		switch key := v.Type().Field(i).Tag.Get("json"); key {
		case "language", "languages", "left", "left_text", "starts", "progress", "then", "kept", "total", "joined", "waited",
			"updated",
			"sound", "notify", "leave", "leave_text", "leave_yes", "rejoin", "message",
			"draw_open", "draw_making", "draw_late", "draw_placed", "draw_check", "draw_place", "draw_closes", "copy", "save",
			"earlier", "turn_at", "number",
			"check", "check_text", "check_record", "check_receipts", "check_start", "check_right", "check_wrong",
			"lost_expired", "lost_away", "lost_void", "form", "form_back", "push_on", "push_failed", "push_home":
		default:
			out[key] = v.Field(i).Interface()
		}
	}
	return out
}
