// Package nodetest verifies a command's example configuration: it loads, names every key, and shows the defaults.
package nodetest

import (
	"bytes"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"vestibule/internal/node"
)

// Example checks the example file of a command. fresh returns the defaults; without names the keys without a
// default, for which the file shows an example.
func Example[C any, P interface {
	*C
	node.Config
}](t *testing.T, command, file string, fresh func() C, without ...string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	loaded, defaults := fresh(), fresh()
	var out bytes.Buffer
	if _, err := node.Load(command, P(&loaded), []string{"--config", file}, &out); err != nil {
		t.Fatalf("%s does not load: %v %s", file, err, &out)
	}
	have, want := valuesOf(P(&loaded)), valuesOf(P(&defaults))
	keys := slices.Sorted(maps.Keys(want))
	if got := slices.Sorted(maps.Keys(flatten(tree, ""))); !slices.Equal(got, keys) {
		t.Errorf("%s names the keys\n%v\nthe configuration has\n%v", file, got, keys)
	}
	for _, key := range keys {
		if !slices.Contains(without, key) && !equal(have[key], want[key]) {
			t.Errorf("%s: %s: shows %v, the default is %v", file, key, have[key], want[key])
		}
	}
	for i, line := range strings.Split(string(data), "\n") {
		if len(line) > 90 {
			t.Errorf("%s:%d: longer than a terminal is wide", file, i+1)
		}
	}
}

func valuesOf(cfg node.Config) map[string]any {
	out := map[string]any{}
	for _, s := range node.Settings(cfg) {
		out[s.Key] = s.Value
	}
	return out
}

// equal compares configuration values; nil and empty lists are equal.
func equal(a, b any) bool {
	if x, ok := a.([]string); ok && len(x) == 0 {
		y, ok := b.([]string)
		return ok && len(y) == 0
	}
	return reflect.DeepEqual(a, b)
}

func flatten(tree map[string]any, prefix string) map[string]any {
	out := map[string]any{}
	for k, v := range tree {
		if sub, ok := v.(map[string]any); ok {
			maps.Copy(out, flatten(sub, prefix+k+"."))
			continue
		}
		out[prefix+k] = v
	}
	return out
}
