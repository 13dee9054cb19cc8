package pb

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Kind is an encoding of numbers.
type Kind uint8

// The kinds.
const (
	Varint  Kind = iota // uint32, uint64, int64, bool, enum
	Zigzag              // sint32, sint64
	Fixed32             // fixed32, float
	Fixed64             // fixed64, double
)

func (k Kind) wire() protowire.Type {
	switch k {
	case Fixed32:
		return protowire.Fixed32Type
	case Fixed64:
		return protowire.Fixed64Type
	default:
		return protowire.VarintType
	}
}

func (k Kind) append(b []byte, n uint64) []byte {
	switch k {
	case Fixed32:
		return protowire.AppendFixed32(b, uint32(n))
	case Fixed64:
		return protowire.AppendFixed64(b, n)
	case Zigzag:
		n = protowire.EncodeZigZag(int64(n))
	case Varint:
	}
	if n < 0x80 {
		return append(b, byte(n)) // most
	}
	return protowire.AppendVarint(b, n)
}

// consume returns the first number in data and its size, which is negative for an error.
func (k Kind) consume(data []byte) (n uint64, size int) {
	switch k {
	case Fixed32:
		short, size := protowire.ConsumeFixed32(data)
		return uint64(short), size
	case Fixed64:
		return protowire.ConsumeFixed64(data)
	case Varint, Zigzag:
	}
	if n, size = uint64(data[0]), 1; n >= 0x80 {
		n, size = protowire.ConsumeVarint(data)
	}
	if k == Zigzag {
		n = uint64(protowire.DecodeZigZag(n))
	}
	return n, size
}

// count returns how many numbers data has.
func (k Kind) count(data []byte) (n int) {
	switch k {
	case Fixed32:
		return len(data) / 4
	case Fixed64:
		return len(data) / 8
	default:
		for _, b := range data {
			if b < 0x80 {
				n++
			}
		}
		return n
	}
}

// Sized appends a field with the content that put appends.
func Sized(b []byte, number protowire.Number, put func([]byte) []byte) []byte {
	b = append(protowire.AppendTag(b, number, protowire.BytesType), 0)
	start := len(b)
	b = put(b)
	size := uint64(len(b) - start)
	if n := protowire.SizeVarint(size); n > 1 {
		b = slices.Grow(b, n-1)
		b = b[:len(b)+n-1]
		copy(b[start+n-1:], b[start:])
	}
	protowire.AppendVarint(b[:start-1], size)
	return b
}
