package rules

import "strings"

// masked replaces a literal. It is no literal itself, so that a masked expression is refused where it would be applied.
const masked = "***"

// Mask returns an expression without its texts, except names in brackets such as that of a header. The result is for
// display alone.
func Mask(expression string) string {
	var out strings.Builder
	for at := 0; at < len(expression); {
		from := at
		end := literalEnd(expression, at)
		if end < 0 {
			out.WriteByte(expression[at])
			at++
			continue
		}
		if at = end; strings.HasSuffix(strings.TrimRight(expression[:from], " \t\r\n"), "[") {
			out.WriteString(expression[from:end])
		} else {
			out.WriteString(masked)
		}
	}
	return out.String()
}

// literalEnd returns the end of the text that begins at an offset, quoted or raw, and -1 if none begins there. A text
// without an end takes the rest.
func literalEnd(s string, at int) int {
	if s[at] == '"' {
		for i := at + 1; i < len(s); i++ {
			switch s[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
		return len(s)
	}
	if s[at] != 'r' || at > 0 && wordAt(s[at-1:at]) != "" {
		return -1
	}
	hashes := len(s[at+1:]) - len(strings.TrimLeft(s[at+1:], "#"))
	body := at + 1 + hashes
	if body >= len(s) || s[body] != '"' {
		return -1
	}
	closing := "\"" + strings.Repeat("#", hashes)
	if i := strings.Index(s[body+1:], closing); i >= 0 {
		return body + 1 + i + len(closing)
	}
	return len(s)
}
