package strictjson

import (
	"maps"
	"slices"
	"testing"
)

func TestDecode(t *testing.T) {
	for data, ok := range map[string]bool{
		`{"a":1}`: true, " {\"a\":1}\n": true, `{}`: true, `{"a":1,"b":2}`: false, `{"a":1}{}`: false, `{"a":1}]`: false,
		`{"a":1} x`: false, `{"a":"1"}`: false, ``: false, `{"a":1`: false,
	} {
		var v struct{ A int }
		if err := Decode([]byte(data), &v); (err == nil) != ok {
			t.Errorf("%q: %v", data, err)
		}
	}
}

func TestDecodeKeeping(t *testing.T) {
	for data, want := range map[string]string{
		`{"a":1}`: `{"a":1}`, `{"opt_b":{"c":[2]},"a":1,"opt_a":"x"}`: `{"a":1,"opt_a":"x","opt_b":{"c":[2]}}`,
		`{"opt_a":1}`: `{"opt_a":1}`, `{"a":1,"b":2}`: "", `{"b":2,"opt_a":1}`: "", `{"opt_a":1}{}`: "", `null`: `{}`, `[]`: "",
		`{"opt_a":}`: "",
	} {
		var v struct {
			A int `json:"a,omitzero"`
		}
		others, err := DecodeKeeping([]byte(data), &v)
		if (err == nil) != (want != "") {
			t.Errorf("%q: %v", data, err)
		}
		if err != nil {
			continue
		}
		if got, err := EncodeKeeping(&v, others); err != nil || string(got) != want {
			t.Errorf("%q with %v becomes %s, %v; want %s", data, slices.Sorted(maps.Keys(others)), got, err, want)
		}
	}
	if got, err := EncodeKeeping(7, Others{"opt_a": []byte("1")}); err == nil {
		t.Errorf("a number with fields becomes %s", got)
	}
}
