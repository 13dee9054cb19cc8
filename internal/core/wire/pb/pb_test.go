package pb

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
)

type inner struct{ A uint64 }

type outer struct {
	N       int64
	Text    string
	Packed  []uint32
	Singles []int64
	Fixed   []uint64
	Half    []float32
	Whole   []float64
	Inner   inner
	Pointer *inner
	Many    []inner
	Bytes   []byte
	Yes     bool
	Unknown []byte
}

var innerFields = Message[inner]{Int(1, func(m *inner) *uint64 { return &m.A })}

var outerFields = Message[outer]{
	Signed(1, func(m *outer) *int64 { return &m.N }),
	String(2, func(m *outer) *string { return &m.Text }),
	List(3, Varint, func(m *outer) *[]uint32 { return &m.Packed }),
	List(4, Zigzag, func(m *outer) *[]int64 { return &m.Singles }),
	List(5, Fixed64, func(m *outer) *[]uint64 { return &m.Fixed }),
	Floats(6, func(m *outer) *[]float32 { return &m.Half }),
	Doubles(7, func(m *outer) *[]float64 { return &m.Whole }),
	Sub(8, "inner", innerFields, func(m *inner) bool { return m.A != 0 }, func(m *outer) *inner { return &m.Inner }),
	Pointer(9, "pointer", innerFields, func(m *outer) **inner { return &m.Pointer }),
	Repeated(10, "many", 2, innerFields, func(m *outer) *[]inner { return &m.Many }),
	Bytes(11, func(m *outer) *[]byte { return &m.Bytes }),
	Bool(12, func(m *outer) *bool { return &m.Yes }),
	Unknown(func(m *outer) *[]byte { return &m.Unknown }),
}

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	long := make([]uint32, 20_000)
	for i := range long {
		long[i] = uint32(i)
	}
	news := protowire.AppendString(protowire.AppendTag(nil, 999, protowire.BytesType), "news")
	for _, want := range []outer{
		{},
		{
			N: math.MinInt64, Text: "é", Packed: long, Singles: []int64{-1, 0, math.MaxInt64}, Fixed: []uint64{math.MaxUint64},
			Half: []float32{-0.5}, Whole: []float64{0.1, 0}, Inner: inner{5}, Pointer: &inner{}, Many: []inner{{}, {7}},
			Bytes: []byte{0}, Yes: true, Unknown: news,
		},
	} {
		var got outer
		err := outerFields.Decode(&got, outerFields.Append(nil, &want))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	}
}

// Other encoders may put fields in any order, and numbers of a list one by one.
func TestOtherEncodings(t *testing.T) {
	tag := protowire.AppendTag
	data := protowire.AppendVarint(tag(nil, 12, protowire.VarintType), 1)
	data = protowire.AppendVarint(tag(data, 3, protowire.VarintType), 300)
	data = protowire.AppendVarint(tag(data, 3, protowire.VarintType), 4)
	data = protowire.AppendVarint(tag(data, 1, protowire.VarintType), protowire.EncodeZigZag(-9))
	odd := protowire.AppendFixed32(tag(nil, 1, protowire.Fixed32Type), 8) // a type that the field does not have
	var got outer
	err := outerFields.Decode(&got, append(data, odd...))
	want := outer{N: -9, Packed: []uint32{300, 4}, Yes: true, Unknown: odd}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestBadMessagesAreRefused(t *testing.T) {
	field := func(number protowire.Number, content ...byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
	}
	for want, data := range map[string][]byte{
		"unexpected EOF":     {0x08},
		"invalid field":      {0x00, 0x00},
		"not UTF-8":          field(2, 0xff),
		"inner: unexpected":  field(8, 0x08),
		"pointer: unexpecte": field(9, 0x08),
		"many[0]: unexpect":  field(10, 0x08),
		"many: at most 2":    bytes.Repeat(field(10), 3),
		"EOF":                field(3, 0x80),
	} {
		var m outer
		if err := outerFields.Decode(&m, data); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%x: %v, want %q", data, err, want)
		}
	}
}
