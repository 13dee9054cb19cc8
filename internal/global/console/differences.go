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

// differences lists what differs between two JSON values, by their keys.
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

// leaf returns a scalar as text, "" for null.
func leaf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

// member returns what tells a member of a list apart, and its other values: those of a rule, an event or a route.
func member(v any, i int) (name, text string) {
	m, ok := v.(map[string]any)
	if !ok {
		return strconv.Itoa(i + 1), leaf(v)
	}
	name = strconv.Itoa(i + 1)
	for _, key := range []string{"name", "expression", "host"} {
		if s, ok := m[key].(string); ok && s != "" {
			name = s
			break
		}
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if s := leaf(m[key]); s != "" && s != name && key != "id" && key != "version" {
			parts = append(parts, key+" "+s)
		}
	}
	return name, strings.Join(parts, ", ")
}
