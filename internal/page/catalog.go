package page

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

//go:embed messages/*.json
var messageFiles embed.FS

// catalog is one language prepared for rendering.
type catalog struct {
	code   string
	tag    language.Tag
	dir    string
	msg    map[string]string // messages without a number, so that no language needs to inflect them
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

// unit is a unit of time. Its message has one form for each plural category of the language.
type unit uint8

const (
	seconds unit = iota
	minutes
	hours
	days
	units
)

var unitKeys = [units]string{"second", "minute", "hour", "day"}

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
	c := &catalog{code: code, dir: "ltr", msg: map[string]string{}}
	var err error
	if c.tag, err = language.Parse(code); err != nil {
		return nil, fmt.Errorf("%s: %w", code, err)
	}
	switch script, _ := c.tag.Script(); script.String() {
	case "Arab", "Hebr":
		c.dir = "rtl"
	}
	doc := map[string]any{}
	if err := strictjson.Decode(data, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", code, err)
	}
	if err := c.check(doc); err != nil {
		return nil, err
	}
	for u, key := range unitKeys {
		forms := formsOf(doc[key])
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
	script, err := json.Marshal(forScript(doc)) // escapes <, > and &
	if err != nil {
		return nil, fmt.Errorf("%s: %w", code, err)
	}
	c.script = string(script)
	return c, nil
}

// keys are the keys of a catalog file: those of the English one.
var keys = func() map[string]any {
	all := map[string]any{}
	data, err := messageFiles.ReadFile("messages/" + English.Code() + ".json")
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		panic("waiting page: " + err.Error())
	}
	return all
}()

// formsOf returns the text of a message with a number by plural category.
func formsOf(message any) map[string]string {
	forms := map[string]string{}
	all, _ := message.(map[string]any)
	for name, text := range all {
		forms[name], _ = text.(string)
	}
	return forms
}

// check returns all faults for the translator to correct, and fills in msg.
func (c *catalog) check(doc map[string]any) error {
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
	for key := range doc {
		if keys[key] == nil {
			add(key, "unknown field %q", key)
		}
	}
	need := c.forms()
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if slices.Contains(unitKeys[:], key) {
			forms := formsOf(doc[key])
			for name, text := range forms {
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
				if forms[name] == "" {
					add(key+"."+name, "is missing")
				}
			}
			continue
		}
		m, _ := doc[key].(string)
		plain(key, m)
		switch rest := strings.Replace(m, "{n}", "", 1); {
		case key == "wait_share" && rest == m:
			add(key, "must have {n} once")
		case strings.ContainsAny(rest, "{}"), key != "wait_share" && rest != m:
			add(key, "has a placeholder, and there is nothing to put there")
		}
		c.msg[key] = m
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
		return c.msg["lost_expired"]
	case "away":
		return c.msg["lost_away"]
	case "void":
		return c.msg["lost_void"]
	}
	return ""
}

// languages returns the text of the link to the list of languages, also in English: the page may be in a language
// that the visitor does not read.
func (c *catalog) languages() string {
	english := "Language"
	if c.msg["languages"] == english {
		return english
	}
	return c.msg["languages"] + " / " + english
}

// heading and text describe the visitor's state.
func (c *catalog) heading(v *Visitor) string { return c.msg[v.State().String()] }

func (c *catalog) text(v *Visitor) string {
	switch s := v.State(); s {
	case Paused:
		return c.msg["paused_"+v.pausedBy()]
	case Queued:
		switch {
		case v.counting():
			return c.msg["queued_counting"]
		case v.longer():
			return c.msg["queued_longer"]
		case v.randomOrder():
			return c.msg["queued_random"]
		}
		return c.msg["queued_text"]
	default:
		return c.msg[s.String()+"_text"]
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
	return stage != "" && (v.State() == Before || v.State() == Queued && c.text(v) == c.msg["queued_text"])
}

// drawText describes the stage of a draw.
func (c *catalog) drawText(stage string) string {
	switch stage {
	case DrawOpen:
		return c.msg["draw_open"]
	case DrawLate:
		return c.msg["draw_late"]
	case DrawPlaced:
		return c.msg["draw_placed"]
	}
	return c.msg["draw_making"]
}

// forScript returns the messages that the script uses.
func forScript(doc map[string]any) map[string]any {
	out := map[string]any{}
	for key, message := range doc {
		switch key {
		case "language", "languages", "left", "left_text", "starts", "progress", "then", "kept", "total", "joined", "waited",
			"updated",
			"sound", "notify", "leave", "leave_text", "leave_yes", "rejoin", "message",
			"draw_open", "draw_making", "draw_late", "draw_placed", "draw_check", "draw_place", "draw_closes", "copy", "save",
			"earlier", "turn_at", "number",
			"check", "check_text", "check_record", "check_receipts", "check_start", "check_right", "check_wrong",
			"lost_expired", "lost_away", "lost_void", "form", "form_back", "push_on", "push_failed", "push_home":
		default:
			out[key] = message
		}
	}
	return out
}
