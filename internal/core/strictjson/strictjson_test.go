package strictjson

import "testing"

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
