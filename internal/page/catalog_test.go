package page

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/testkit"
)

// Every language has a file and every file a language; loading checks for missing messages, plural forms and
// placeholders.
func TestEveryLanguageHasACatalog(t *testing.T) {
	files := testkit.Must(filepath.Glob("messages/*.json"))(t)
	if len(files) != len(room.Languages) || len(catalogs) != len(files) {
		t.Errorf("%d files and %d catalogs for %d languages", len(files), len(catalogs), len(room.Languages))
	}
	for i, c := range catalogs {
		if c.code != room.Languages[i] || c.msg["language"] == "" {
			t.Errorf("catalog %d is %q, %q", i, c.code, c.msg["language"])
		}
		rtl := strings.Contains("ar-EG he-IL fa-IR", c.code)
		if (c.dir == "rtl") != rtl {
			t.Errorf("%s is written %s", c.code, c.dir)
		}
	}
}

// The compiler does not check the keys of messages.
func TestEveryMessageThatIsReadExists(t *testing.T) {
	read := regexp.MustCompile(`msg\["(\w+)"\]`)
	for _, file := range testkit.Must(filepath.Glob("*.go"))(t) {
		for _, m := range read.FindAllSubmatch(testkit.Must(os.ReadFile(file))(t), -1) {
			if key := string(m[1]); catalogs[English].msg[key] == "" {
				t.Errorf("%s: no message %q", file, key)
			}
		}
	}
}

// No translation is the unchanged English text.
func TestTranslationsAreTranslated(t *testing.T) {
	english := catalogs[English]
	for _, c := range catalogs[1:] {
		same := 0
		for key, text := range c.msg {
			if text == english.msg[key] {
				same++
			}
		}
		if same > 1 { // some languages share a word with English
			t.Errorf("%s: %d messages are the English ones", c.code, same)
		}
	}
}

// A language that says du, tú or je says so in every message.
func TestVisitorsAreAddressedInOneWay(t *testing.T) {
	for code, formal := range map[string]string{
		"de-DE": `[a-zäöüß,] Sie\b|\bSie (werden|sind|haben|stehen|können)\b|\bIhnen\b|\bIhre?[mnrs]?\b`,
		"es-ES": `(?i)\busted|\bsu (turno|lugar|visita|navegador)\b|\b(recibirá|espere) `,
		"nl-NL": `(?i)\buw?\b`,
		"it-IT": `\b(Lei|Suo|Sua|Riceverà)\b`,
	} {
		found, wrong := false, regexp.MustCompile(formal)
		for _, c := range catalogs {
			if c.code != code {
				continue
			}
			found = true
			for key, text := range c.msg {
				if wrong.MatchString(text) {
					t.Errorf("%s, %s is formal: %s", code, key, text)
				}
			}
		}
		if !found {
			t.Errorf("no catalog %s", code)
		}
	}
}

func TestWhatTranslatorsGetWrongIsNamed(t *testing.T) {
	data := testkit.Must(os.ReadFile("messages/pl-PL.json"))(t)
	for _, tc := range []struct{ old, new, want string }{
		{
			`"many": "{n} minut"`, `"other": "{n} minut"`,
			"minute.other: is no plural form of this language; it has few, many, one",
		},
		{`, "many": "{n} minut"`, "", "minute.many: is missing"},
		{`"{n} minut"`, `"{m} minut"`, "minute.many: has a placeholder that is not {n}"},
		{`"{n} minut"`, `"minut"`, "minute.many: must have {n} once"},
		{`"Twoja kolej"`, `""`, "entering: is missing"},
		{`"Twoja kolej"`, `" Twoja kolej"`, "entering: has blanks around it"},
		{`"Twoja kolej"`, `"<b>Twoja kolej</b>"`, "entering: has a character that a page would take for its own"},
		{`"Twoja kolej"`, `"Twoja {n} kolej"`, "entering: has a placeholder"},
		{`"entering"`, `"entring"`, `unknown field "entring"`},
		{"\n}", "\n}{}", "data after the document"},
	} {
		text := strings.Replace(string(data), tc.old, tc.new, 1)
		if _, err := newCatalog("pl-PL", []byte(text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s for %s: error %v, want %q", tc.new, tc.old, err, tc.want)
		}
	}
}

func TestNumbersAndDurations(t *testing.T) {
	for _, tc := range []struct {
		lang string
		n    uint64
		want string
	}{
		{"en-US", 0, "0"},
		{"en-US", 1234567, "1,234,567"},
		{"de-DE", 1234567, "1.234.567"},
		{"es-ES", 1234, "1234"},
		{"es-ES", 12345, "12.345"},
		{"fr-FR", 1234, "1\u202f234"},
		{"hi-IN", 1234567, "12,34,567"},
		{"ar-EG", 1234, "١٬٢٣٤"},
		{"fa-IR", 1234, "۱٬۲۳۴"},
		{"en-US", 18446744073709551615, "18446744073709551615"},
	} {
		if got := string(catalogs[LangOf(tc.lang)].appendNumber(nil, tc.n)); got != tc.want {
			t.Errorf("%s: %d is %q, want %q", tc.lang, tc.n, got, tc.want)
		}
	}
	for _, tc := range []struct {
		lang string
		d    time.Duration
		want string
	}{
		{"en-US", -time.Second, "0 seconds"},
		{"en-US", 59 * time.Second, "59 seconds"},
		{"en-US", 119 * time.Second, "1 minute"},
		{"en-US", 80 * time.Minute, "1 hour 20 minutes"},
		{"en-US", 2 * time.Hour, "2 hours"},
		{"en-US", 11*time.Hour + time.Minute, "11 hours"},
		{"en-US", 72 * time.Hour, "3 days"},
		{"pl-PL", 22 * time.Minute, "22 minuty"},
		{"pl-PL", 25 * time.Minute, "25 minut"},
		{"ru-RU", 21 * time.Minute, "21 минута"},
		{"lv-LV", 10 * time.Minute, "10 minūšu"},
		{"ro-RO", 20 * time.Minute, "20 de minute"},
		{"sl-SI", 2 * time.Minute, "2 minuti"},
		{"ar-EG", 2 * time.Minute, "دقيقتان"},
		{"ar-EG", 3 * time.Minute, "٣ دقائق"},
		{"he-IL", time.Hour, "שעה אחת"},
		{"ja-JP", 5 * time.Minute, "5分"},
	} {
		if got := string(catalogs[LangOf(tc.lang)].appendSpan(nil, tc.d)); got != tc.want {
			t.Errorf("%s: %v is %q, want %q", tc.lang, tc.d, got, tc.want)
		}
	}
	// A range that ends in a number in words is written in digits.
	if got := string(catalogs[LangOf("he-IL")].appendRange(nil, minutes, 1, 2)); got != "1–\u20602 דקות" {
		t.Errorf("a range of one to two minutes is %q", got)
	}
}
