package page

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// squeeze removes indentation and comment lines from a source.
func squeeze(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "// ") {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// squeezeScript also removes redundant blanks and trailing comments from a script. It handles only the style of the
// scripts here: no strings in ` or ', and regular expressions only after a bracket.
func squeezeScript(source string) string {
	source = squeeze(source)
	const apart = "{}()[];,:?=<>!&|*%+-\n"
	var b []byte
	for i := 0; i < len(source); i++ {
		c, last := source[i], byte('\n')
		if len(b) > 0 {
			last = b[len(b)-1]
		}
		switch {
		case c == '"' || c == '/' && last == '(':
			end := i + 1
			for source[end] != c {
				if source[end] == '\\' {
					end++
				}
				end++
			}
			b = append(b, source[i:end+1]...)
			i = end
		case c == ' ' && strings.HasPrefix(source[i:], " // "):
			i += strings.IndexByte(source[i:], '\n') - 1
		case c == ' ' && (last == '+' || last == '-') && source[i+1] == last:
			b = append(b, c)
		case c == ' ' && (last == '/' || source[i+1] == '/'): // a division
		case c == ' ' && (strings.IndexByte(apart, last) >= 0 || strings.IndexByte(apart, source[i+1]) >= 0):
		default:
			b = append(b, c)
		}
	}
	return lineEnds.Replace(lineEnds.Replace(string(b)))
}

// lineEnds removes redundant line and statement ends from a script; a second pass removes those uncovered by the
// first.
var lineEnds = strings.NewReplacer(";\n}", "}", "\n}", "}", ";}", "}", ";\n", ";", "{\n", "{", ",\n", ",")

// shortenNames shortens all names declared in a script, the most frequent most. It renames every token that is no
// property, so the script must not use a browser global with the name of one of its variables.
func shortenNames(source string) string {
	tokens := scriptTokens(source)
	taken, uses := map[string]bool{"do": true, "if": true, "in": true, "of": true}, map[string]int{}
	for _, t := range tokens {
		taken[t] = true
	}
	for _, name := range declared(tokens) {
		uses[name] = 0
	}
	rename(tokens, func(name string) string {
		if _, ok := uses[name]; ok {
			uses[name]++
		}
		return name
	})
	names := slices.SortedFunc(maps.Keys(uses), func(a, b string) int { return cmp.Or(uses[b]-uses[a], cmp.Compare(a, b)) })
	short, next := map[string]string{}, 0
	for _, name := range names {
		if len(name) == 1 {
			continue
		}
		to := ""
		for to == "" || taken[to] {
			to, next = nameOf(next), next+1
		}
		if len(to) < len(name) {
			short[name] = to
		}
	}
	return rename(tokens, func(name string) string { return cmp.Or(short[name], name) })
}

// nameOf returns the n-th name of one or two letters.
func nameOf(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if n < len(letters) {
		return letters[n : n+1]
	}
	n -= len(letters)
	return letters[n/len(letters)%len(letters):][:1] + letters[n%len(letters):][:1]
}

// scriptTokens splits a script, after squeezeScript, into names, numbers, strings and single characters.
func scriptTokens(source string) []string {
	var out []string
	for source != "" {
		n := 1
		switch c := source[0]; {
		case c == '"' || c == '/' && len(out) > 0 && out[len(out)-1] == "(":
			for ; source[n] != c; n++ {
				if source[n] == '\\' {
					n++
				}
			}
			n++
		case inName(c):
			for n < len(source) && (inName(source[n]) || source[n] == '.' && c <= '9' && c != '$') {
				n++
			}
		}
		out, source = append(out, source[:n]), source[n:]
	}
	return out
}

// inName reports whether a character can be part of a name or a number.
func inName(c byte) bool {
	return c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// isName reports whether a token is a name.
func isName(token string) bool { return inName(token[0]) && (token[0] > '9' || token[0] == '$') }

// declared returns the names of a script's functions, parameters and variables.
func declared(tokens []string) []string {
	var out []string
	for i, t := range tokens {
		switch rest := tokens[i+1:]; t {
		case "function":
			for _, t := range rest[:slices.Index(rest, ")")] {
				if isName(t) {
					out = append(out, t)
				}
			}
		case "var":
			depth, name := 0, true
			for _, t := range rest {
				switch t {
				case "(", "[", "{":
					depth++
				case ")", "]", "}":
					depth--
				case ",":
					name = depth == 0
				default:
					if name && isName(t) {
						out, name = append(out, t), false
					}
				}
				if depth < 0 || depth == 0 && (t == ";" || t == "\n") {
					break
				}
			}
		}
	}
	return out
}

// rename joins the tokens of a script, with other names for tokens that are no properties.
func rename(tokens []string, to func(name string) string) string {
	var b strings.Builder
	last := ""
	for i, t := range tokens {
		isKey := (last == "{" || last == ",") && i+1 < len(tokens) && tokens[i+1] == ":"
		if isName(t) && last != "." && !isKey {
			b.WriteString(to(t))
		} else {
			b.WriteString(t)
		}
		if t != "\n" && t != " " {
			last = t
		}
	}
	return b.String()
}
