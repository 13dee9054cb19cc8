package console

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// difference is a setting that two states do not share. A missing value is "".
type difference struct{ Key, Before, After string }

// differences lists the differences between two JSON values, by their keys.
func differences(before, after any) (out []difference) {
	a, b := map[string]string{}, map[string]string{}
	flatten(a, "", before)
	flatten(b, "", after)
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if a[key] != b[key] {
			out = append(out, difference{key, a[key], b[key]})
		}
	}
	return out
}

// flatten writes the leaves of a JSON value by their keys. A member of a list is one leaf.
func flatten(out map[string]string, key string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if key != "" {
				name = key + "." + name
			}
			flatten(out, name, value)
		}
	case []any:
		for i, value := range v {
			name, text := member(value, i)
			out[key+" "+name] = text
		}
	default:
		if text := leaf(v); text != "" {
			out[key] = text
		}
	}
}

// leaf returns a value as text, "" for null. Of an object it leaves out fields without a meaning for people.
func leaf(v any) string {
	var parts []string
	switch v := v.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case []any:
		for _, x := range v {
			parts = append(parts, leaf(x))
		}
		return strings.Join(parts, ", ")
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if s := leaf(v[key]); s != "" && key != "id" && key != "version" {
				parts = append(parts, key+" "+s)
			}
		}
		return strings.Join(parts, ",\n")
	default:
		return fmt.Sprint(v)
	}
}

// member returns the key of a member of a list, and its other values: those of a rule, an event or a route.
func member(v any, i int) (name, text string) {
	m, ok := v.(map[string]any)
	if !ok {
		return strconv.Itoa(i + 1), leaf(v)
	}
	for _, key := range []string{"name", "expression", "host"} {
		if s, ok := m[key].(string); ok && s != "" {
			rest := maps.Clone(m)
			delete(rest, key)
			return s, leaf(rest)
		}
	}
	return strconv.Itoa(i + 1), leaf(m)
}
