package page

import (
	"errors"
	"fmt"
	"strings"

	"vestibule/internal/core/room"
)

// Custom parses the operator's page. A text with markup is a complete page: a Mustache template with Cloudflare's
// variable names and ours. A text without markup is CSS that brands the built-in page. The error lists what is
// wrong with it, of a style sheet the first ten faults.
func Custom(text []byte) (*Page, error) {
	if len(text) > MaxPage {
		return nil, fmt.Errorf("waiting page: must be at most %d bytes, got %d", MaxPage, len(text))
	}
	s := string(text)
	if !strings.Contains(s, "<") && !strings.Contains(s, "{{") {
		// like browsers before they compare hashes
		s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
		if err := checkStyle(s); err != nil {
			return nil, fmt.Errorf("waiting page: %w", err)
		}
		return branded(strings.TrimSpace(s)), nil
	}
	t, err := parseTemplate(s)
	if err != nil {
		return nil, fmt.Errorf("waiting page: %w", err)
	}
	return &Page{custom: t}, nil
}

// MaxPage bounds a custom page, in bytes.
const MaxPage = room.MaxPageBytes

// checkStyle returns the fault of a style sheet, or nil. It checks brackets, strings and comments; browsers
// tolerate other mistakes.
func checkStyle(s string) error {
	var errs []error
	var open []byte
	line, rules := 1, false
	fault := func(format string, args ...any) {
		if len(errs) == 10 {
			return
		}
		errs = append(errs, fmt.Errorf("line %d: "+format, append([]any{line}, args...)...))
	}
	closes := map[byte]byte{'}': '{', ')': '(', ']': '['}
	for i := 0; i < len(s); i++ {
		rest := strings.ToLower(s[i:min(len(s), i+12)])
		switch c := s[i]; {
		case c == '\n':
			line++
		case c == '\\':
			i++
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(s[i+2:], "*/")
			if end < 0 {
				fault("comment is not closed")
				return errors.Join(errs...)
			}
			line += strings.Count(s[i:i+2+end], "\n")
			i += end + 3
		case c == '"' || c == '\'':
			end := i + 1
			for end < len(s) && s[end] != c && s[end] != '\n' {
				if s[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(s) || s[end] != c {
				fault("text in quotes is not closed")
				return errors.Join(errs...)
			}
			i = end
		case c == '{' || c == '(' || c == '[':
			open = append(open, c)
			rules = rules || c == '{'
			if c == '(' && i >= 3 && strings.EqualFold(s[i-3:i], "url") &&
				!strings.HasPrefix(strings.TrimLeft(rest[1:], " '\""), "data:") {
				fault("url() must be a data: URL, the page fetches nothing")
			}
		case closes[c] != 0:
			if len(open) == 0 || open[len(open)-1] != closes[c] {
				fault("%q closes nothing", c)
				return errors.Join(errs...)
			}
			open = open[:len(open)-1]
		case strings.HasPrefix(rest, "@import"):
			fault("@import is not possible, the page fetches nothing")
		}
	}
	if len(open) > 0 {
		fault("%q is not closed", open[len(open)-1])
	}
	if !rules && strings.TrimSpace(s) != "" {
		fault("neither a page with markup nor CSS: there is no rule in it")
	}
	return errors.Join(errs...)
}
