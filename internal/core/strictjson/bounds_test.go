package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
)

func TestBounds(t *testing.T) {
	b := Bounds{Depth: 3, Each: 4, Values: 8, Text: 5}
	for data, fault := range map[string]string{
		`{}`: "", `{"a":[{}]}`: "", `{"a":[{"b":[]}]}`: "3 levels", `[1,2,3,4]`: "", `[1,2,3,4,5]`: "4 values",
		`{"a":1,"a":1,"a":1,"a":1,"a":1}`: "4 values", `["12345"]`: "", `["123456"]`: "5 bytes", `["123\"5"]`: "5 bytes",
		`["[[[["]`: "", `["\"[[["]`: "", `[[1,2],[1,2],[1,2]]`: "8 values", `]]]]`: "", `"`: "", `"\`: "",
		strings.Repeat("[", 100): "3 levels", `{"123456":1}`: "5 bytes",
	} {
		err := b.Check([]byte(data))
		if (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %v, want %q", data, err, fault)
		}
	}
}

func TestMembers(t *testing.T) {
	for data, want := range map[string]string{
		`{}`: "", ` { } `: "", `[]`: "none", `"{"`: "none", ``: "none", `null`: "none",
		`{"a":1}`: "a=1;", " { \"a\" : 1 , \"a\":\"x,}\\\"\" ,\"b\":{\"c\":[1,{}] } } ": `a=1;a="x,}\"";b={"c":[1,{}] };`,
		`{"\u0061":null,"":[]}`: "a=null;=[];",
	} {
		all, ok := Members([]byte(data))
		got := ""
		if !ok {
			got = "none"
		} else {
			for k, v := range all {
				got += fmt.Sprintf("%s=%s;", k, v)
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", data, got, want)
		}
	}
}

// The members of any valid document are those of the standard library, and no input makes the scanners panic.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":[{"c":"\""}]}`, `{"a" : {} , "a":-1.5e3}`, `[`, `{"`, `{"a`, `{"a":`, `{"a":"\`, `{]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = Bounds{Depth: 4, Each: 9, Values: 99, Text: 9}.Check(data)
		got := map[string]json.RawMessage{}
		all, ok := Members(data)
		if ok {
			maps.Insert(got, all)
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(data, &want); err != nil || want == nil {
			return
		}
		if !ok || len(got) != len(want) {
			t.Fatalf("%q: %d members, want %d", data, len(got), len(want))
		}
		for k, v := range want {
			if !bytes.Equal(got[k], v) {
				t.Fatalf("%q: %q is %q, want %q", data, k, got[k], v)
			}
		}
	})
}
