package rules

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Networks is a set of addresses. It is immutable; its zero value is empty.
type Networks struct {
	v4 []numberRange // sorted, no overlaps
	v6 []wideRange   // sorted, no overlaps
}

// wide is an IPv6 address.
type wide struct{ high, low uint64 }

func (a wide) compare(b wide) int {
	if a.high != b.high {
		return cmp.Compare(a.high, b.high)
	}
	return cmp.Compare(a.low, b.low)
}

type wideRange = span[wide]

// NewNetworks returns the set of the networks. An address is its own network, and IPv4-mapped IPv6 is IPv4.
func NewNetworks(all []netip.Prefix) *Networks {
	ranges := make([]addrRange, 0, len(all))
	for _, p := range all {
		ranges = append(ranges, rangeOf(p))
	}
	return newNetworks(ranges)
}

// addrRange is an inclusive range of addresses of one family.
type addrRange = span[netip.Addr]

func rangeOf(p netip.Prefix) addrRange {
	a, bits := p.Addr().WithZone(""), p.Bits()
	if a.Is4In6() && bits >= 96 {
		a, bits = a.Unmap(), bits-96
	}
	from := netip.PrefixFrom(a, bits).Masked().Addr()
	to := from.AsSlice()
	for i := bits; i < len(to)*8; i++ {
		to[i/8] |= 1 << (7 - i%8)
	}
	last, _ := netip.AddrFromSlice(to)
	return addrRange{from, last}
}

func newNetworks(ranges []addrRange) *Networks {
	var v4 []numberRange
	var v6 []wideRange
	for _, r := range ranges {
		if r.from.Is4() {
			v4 = append(v4, numberRange{number4(r.from), number4(r.to)})
		} else {
			v6 = append(v6, wideRange{number6(r.from), number6(r.to)})
		}
	}
	return &Networks{merged(v4, cmp.Compare[int64]), merged(v6, wide.compare)}
}

func number4(a netip.Addr) int64 {
	b := a.As4()
	return int64(binary.BigEndian.Uint32(b[:]))
}

func number6(a netip.Addr) wide {
	b := a.As16()
	return wide{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// Has reports whether a is in the set. IPv4-mapped IPv6 is IPv4.
func (n *Networks) Has(a netip.Addr) bool {
	switch {
	case n == nil || !a.IsValid():
		return false
	case a.Is4() || a.Is4In6():
		return has(n.v4, number4(a))
	}
	v := number6(a)
	low, high := 0, len(n.v6)
	for low < high {
		if mid := (low + high) / 2; n.v6[mid].to.compare(v) < 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low < len(n.v6) && n.v6[low].from.compare(v) <= 0
}

// span is an inclusive range.
type span[T any] struct{ from, to T }

// merged returns the same values in sorted ranges without overlaps.
func merged[T any](all []span[T], compare func(a, b T) int) (out []span[T]) {
	slices.SortFunc(all, func(a, b span[T]) int { return compare(a.from, b.from) })
	for _, r := range all {
		if last := len(out) - 1; last >= 0 && compare(r.from, out[last].to) <= 0 {
			if compare(out[last].to, r.to) < 0 {
				out[last].to = r.to
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

// has reports whether v is in one of the sorted ranges.
func has(all []numberRange, v int64) bool {
	low, high := 0, len(all)
	for low < high {
		if mid := (low + high) / 2; all[mid].to < v {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low < len(all) && all[low].from <= v
}

// ParseNetworks returns the set of addresses and networks such as 10.0.0.0/8. The error names each invalid one.
func ParseNetworks(texts []string) (*Networks, error) {
	all := make([]netip.Prefix, 0, len(texts))
	var bad []string
	for _, t := range texts {
		p, err := netip.ParsePrefix(t)
		if a, aErr := netip.ParseAddr(t); aErr == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil || p.Masked() != p {
			bad = append(bad, fmt.Sprintf("%q", clip(t)))
			continue
		}
		all = append(all, p)
	}
	if len(bad) > 0 {
		return NewNetworks(nil), fmt.Errorf("must be addresses or networks without bits behind them, got %s",
			strings.Join(bad[:min(len(bad), 10)], ", "))
	}
	return NewNetworks(all), nil
}
