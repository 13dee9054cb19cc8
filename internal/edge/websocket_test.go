package edge

import (
	"testing"
)

func TestFramesOfAClient(t *testing.T) {
	masked := func(opcode byte, payload string) string {
		head := string([]byte{0x80 | opcode, 0x80 | byte(len(payload))})
		if len(payload) > 125 {
			head = string([]byte{0x80 | opcode, 0x80 | 126, byte(len(payload) >> 8), byte(len(payload))})
		}
		return head + "\x01\x02\x03\x04" + payload
	}
	long := string(make([]byte, 300))
	for _, tc := range []struct {
		name, in string
		data     bool
	}{
		{"a text", masked(1, "hello"), true},
		{"an empty text", masked(1, ""), true},
		{"binary, long", masked(2, long), true},
		{"a continuation", masked(0, "x"), true},
		{"a ping that looks like a text", masked(9, masked(1, "hello")), false},
		{"a pong", masked(10, "\x81\x81"), false},
		{"a close", masked(8, "\x03\xe8"), false},
		{"pings around", masked(9, "a") + masked(10, "b") + masked(9, ""), false},
		{"a text behind pings", masked(9, "a") + masked(10, "b") + masked(1, "c"), true},
		{"64 bits", "\x8a\xff\x00\x00\x00\x00\x00\x00\x00\x02mask\x81\x81" + masked(9, "x"), false},
		{"unmasked", "\x8a\x02\x81\x81" + masked(10, "x"), false},
	} {
		for size := 1; size <= len(tc.in); size++ {
			var f clientFrames
			data := false
			for in := []byte(tc.in); len(in) > 0; {
				n := min(size, len(in))
				data = f.next(in[:n]) || data
				in = in[n:]
			}
			if data != tc.data || f.n != 0 || f.left != 0 {
				t.Errorf("%s in pieces of %d: data %v, %+v", tc.name, size, data, f)
			}
		}
	}
}

// FuzzFramesOfAClient: the same bytes in pieces are the same frames.
func FuzzFramesOfAClient(f *testing.F) {
	f.Add([]byte("\x81\x85maskhello\x89\x80mask"), uint8(3))
	f.Add([]byte("\x8a\xff\xff\xff\xff\xff\xff\xff\xff\xffmask"), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		var whole, pieces clientFrames
		want, got := whole.next(in), false
		for rest := in; len(rest) > 0; {
			n := min(int(size%16)+1, len(rest))
			got = pieces.next(rest[:n]) || got
			rest = rest[n:]
		}
		if got != want || whole != pieces {
			t.Errorf("%q: %v %+v, in pieces %v %+v", in, want, whole, got, pieces)
		}
	})
}
