// Package pb encodes structs as messages of Protocol Buffers. A [Message] lists the fields of a struct once, for both
// directions. It replaces generated types, which would have to be copied from and to the structs that the code works
// with.
//
// As in proto3, a field with its zero value is left out, lists of numbers are packed, and unknown fields are skipped.
// Of a message that occurs twice in a field that is no list, the last occurrence counts.
package pb

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Codec encodes and decodes values of type T.
type Codec[T any] interface {
	// Append appends the encoded m to b.
	Append(b []byte, m *T) []byte
	// Decode decodes data into m, which is zero.
	Decode(m *T, data []byte) error
}

// Field is a field of the struct M.
type Field[M any] struct {
	number protowire.Number
	kind   Kind
	put    func(b []byte, m *M) []byte
	set    func(m *M, n uint64) error       // takes a number; nil for content
	take   func(m *M, content []byte) error // takes content or packed numbers; nil for a single number
}

// Message has the fields of the struct M in the order of their numbers.
type Message[M any] []Field[M]

// Append implements [Codec].
func (f Message[M]) Append(b []byte, m *M) []byte {
	for i := range f {
		b = f[i].put(b, m)
	}
	return b
}

// Decode implements [Codec].
func (f Message[M]) Decode(m *M, data []byte) error {
	next := 0
	for len(data) > 0 {
		number, wire, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, wire, data[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		field, value := data[:n+size], data[n:n+size]
		data = data[n+size:]
		at := f.find(number, wire, next)
		if at < 0 {
			continue
		}
		var err error
		switch next = at; {
		case number != f[at].number:
			err = f[at].take(m, field) // an unknown one
		case wire == protowire.BytesType:
			_, n := protowire.ConsumeVarint(value)
			err = f[at].take(m, value[n:])
		default:
			n, _ := f[at].kind.consume(value)
			err = f[at].set(m, n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// find returns the index of the field that takes a number of a wire type: for an unknown one that of [Unknown], or -1.
// Fields mostly arrive in order: the search begins at next.
func (f Message[M]) find(number protowire.Number, wire protowire.Type, next int) int {
	for i := range f {
		at := next + i
		if at >= len(f) {
			at -= len(f)
		}
		if f[at].number == number && f[at].accepts(wire) {
			return at
		}
	}
	if last := len(f) - 1; last >= 0 && f[last].number == unknown {
		return last
	}
	return -1
}

func (f *Field[M]) accepts(wire protowire.Type) bool {
	if wire == protowire.BytesType {
		return f.take != nil
	}
	return f.set != nil && f.kind.wire() == wire
}

// unknown is the number of the field of the unknown fields. No field on the wire has it.
const unknown = 0

// Unknown is the last field of a message that preserves the unknown fields.
func Unknown[M any](at func(*M) *[]byte) Field[M] {
	return Field[M]{
		number: unknown,
		put:    func(b []byte, m *M) []byte { return append(b, *at(m)...) },
		take: func(m *M, field []byte) error {
			*at(m) = append(*at(m), field...)
			return nil
		},
	}
}

// Number is a number that is not simply a field of M.
func Number[M any](number protowire.Number, k Kind, get func(*M) uint64, set func(*M, uint64) error) Field[M] {
	return Field[M]{
		number: number, kind: k,
		put: func(b []byte, m *M) []byte {
			if n := get(m); n != 0 {
				b = k.append(protowire.AppendTag(b, number, k.wire()), n)
			}
			return b
		},
		set: set,
	}
}

type integer interface {
	~uint8 | ~uint32 | ~int32 | ~uint64 | ~int64
}

func scalar[M any, T integer](number protowire.Number, k Kind, at func(*M) *T) Field[M] {
	tag := protowire.AppendTag(nil, number, k.wire())
	return Field[M]{
		number: number, kind: k,
		put: func(b []byte, m *M) []byte {
			if n := *at(m); n != 0 {
				b = k.append(append(b, tag...), uint64(n))
			}
			return b
		},
		set: func(m *M, n uint64) error {
			*at(m) = T(n)
			return nil
		},
	}
}

// Int is a uint32, uint64 or int64.
func Int[M any, T integer](number protowire.Number, at func(*M) *T) Field[M] {
	return scalar(number, Varint, at)
}

// Signed is a sint64.
func Signed[M any, T ~int64](number protowire.Number, at func(*M) *T) Field[M] {
	return scalar(number, Zigzag, at)
}

// Fixed is a fixed64.
func Fixed[M any, T ~uint64](number protowire.Number, at func(*M) *T) Field[M] {
	return scalar(number, Fixed64, at)
}

// Bool is a bool.
func Bool[M any](number protowire.Number, at func(*M) *bool) Field[M] {
	return Number(number, Varint, func(m *M) uint64 { return protowire.EncodeBool(*at(m)) }, func(m *M, n uint64) error {
		*at(m) = protowire.DecodeBool(n)
		return nil
	})
}

// Double is a double.
func Double[M any](number protowire.Number, at func(*M) *float64) Field[M] {
	return Number(number, Fixed64, func(m *M) uint64 { return math.Float64bits(*at(m)) }, func(m *M, n uint64) error {
		*at(m) = math.Float64frombits(n)
		return nil
	})
}

func list[M any, S ~[]T, T any](number protowire.Number, k Kind, at func(*M) *S, to func(T) uint64, from func(uint64) T,
) Field[M] {
	return Field[M]{
		number: number, kind: k,
		put: func(b []byte, m *M) []byte {
			all := *at(m)
			if len(all) == 0 {
				return b
			}
			return Sized(b, number, func(b []byte) []byte {
				for _, x := range all {
					b = k.append(b, to(x))
				}
				return b
			})
		},
		set: func(m *M, n uint64) error {
			*at(m) = append(*at(m), from(n))
			return nil
		},
		take: func(m *M, packed []byte) error {
			all := slices.Grow(*at(m), k.count(packed))
			for len(packed) > 0 {
				n, size := uint64(packed[0]), 1
				if n >= 0x80 || k != Varint { // most are short
					n, size = k.consume(packed)
				}
				if size < 0 {
					return protowire.ParseError(size)
				}
				all, packed = append(all, from(n)), packed[size:]
			}
			*at(m) = all
			return nil
		},
	}
}

// List is a list of numbers of the kind k.
func List[M any, S ~[]T, T integer](number protowire.Number, k Kind, at func(*M) *S) Field[M] {
	return list(number, k, at, func(x T) uint64 { return uint64(x) }, func(n uint64) T { return T(n) })
}

// Doubles is a list of doubles.
func Doubles[M any](number protowire.Number, at func(*M) *[]float64) Field[M] {
	return list(number, Fixed64, at, math.Float64bits, math.Float64frombits)
}

// Floats is a list of floats.
func Floats[M any](number protowire.Number, at func(*M) *[]float32) Field[M] {
	return list(number, Fixed32, at, func(x float32) uint64 { return uint64(math.Float32bits(x)) },
		func(n uint64) float32 { return math.Float32frombits(uint32(n)) })
}

var errUTF8 = errors.New("a string is not UTF-8")

// String is a string.
func String[M any](number protowire.Number, at func(*M) *string) Field[M] {
	return Custom(number, func(b []byte, m *M) []byte {
		if s := *at(m); s != "" {
			b = protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), s)
		}
		return b
	}, func(m *M, data []byte) error {
		if !utf8.Valid(data) {
			return errUTF8
		}
		*at(m) = string(data)
		return nil
	})
}

// Bytes is a byte slice.
func Bytes[M any](number protowire.Number, at func(*M) *[]byte) Field[M] {
	return Custom(number, func(b []byte, m *M) []byte {
		if data := *at(m); len(data) > 0 {
			b = protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), data)
		}
		return b
	}, func(m *M, data []byte) error {
		*at(m) = bytes.Clone(data)
		return nil
	})
}

// Custom is a field whose content put appends, with its tag, and get decodes.
func Custom[M any](number protowire.Number, put func([]byte, *M) []byte, get func(*M, []byte) error) Field[M] {
	return Field[M]{number: number, put: put, take: get}
}

// Sub is a message in M that is encoded if has is nil or reports true. Errors in it begin with its name, if it has one.
func Sub[M, T any](number protowire.Number, name string, c Codec[T], has func(*T) bool, at func(*M) *T) Field[M] {
	return Custom(number, func(b []byte, m *M) []byte {
		t := at(m)
		if has != nil && !has(t) {
			return b
		}
		return Sized(b, number, func(b []byte) []byte { return c.Append(b, t) })
	}, func(m *M, data []byte) error {
		var t T
		err := c.Decode(&t, data)
		*at(m) = t
		return within(name, err)
	})
}

// Pointer is a message that is encoded unless the pointer in M is nil.
func Pointer[M, T any](number protowire.Number, name string, c Codec[T], at func(*M) **T) Field[M] {
	return Custom(number, func(b []byte, m *M) []byte {
		if t := *at(m); t != nil {
			b = Sized(b, number, func(b []byte) []byte { return c.Append(b, t) })
		}
		return b
	}, func(m *M, data []byte) error {
		*at(m) = new(T)
		return within(name, c.Decode(*at(m), data))
	})
}

// Repeated is a list of at most limit messages.
func Repeated[M, T any](number protowire.Number, name string, limit int, c Codec[T], at func(*M) *[]T) Field[M] {
	return Custom(number, func(b []byte, m *M) []byte {
		all := *at(m)
		for i := range all {
			b = Sized(b, number, func(b []byte) []byte { return c.Append(b, &all[i]) })
		}
		return b
	}, func(m *M, data []byte) error {
		all := at(m)
		n := len(*all)
		if n == limit {
			return fmt.Errorf("%s: at most %d", name, limit)
		}
		var t T
		*all = append(*all, t)
		if err := c.Decode(&(*all)[n], data); err != nil {
			return fmt.Errorf("%s[%d]: %w", name, n, err)
		}
		return nil
	})
}

func within(name string, err error) error {
	if err == nil || name == "" {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// Convert returns a codec that encodes values of type T as c encodes the values of type W that pack returns.
func Convert[T, W any](c Codec[W], pack func(*T) W, unpack func(*W) (T, error)) Codec[T] {
	return converted[T, W]{c, pack, unpack}
}

type converted[T, W any] struct {
	as     Codec[W]
	pack   func(*T) W
	unpack func(*W) (T, error)
}

func (c converted[T, W]) Append(b []byte, m *T) []byte {
	w := c.pack(m)
	return c.as.Append(b, &w)
}

func (c converted[T, W]) Decode(m *T, data []byte) error {
	var w W
	err := c.as.Decode(&w, data)
	if err == nil {
		*m, err = c.unpack(&w)
	}
	return err
}

// Check returns c with a check of decoded values.
func Check[T any](c Codec[T], check func(*T) error) Codec[T] { return checked[T]{c, check} }

type checked[T any] struct {
	Codec[T]
	check func(*T) error
}

func (c checked[T]) Decode(m *T, data []byte) error {
	if err := c.Codec.Decode(m, data); err != nil {
		return err
	}
	return c.check(m)
}
