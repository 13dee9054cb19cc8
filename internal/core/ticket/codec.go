package ticket

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
)

// Reasons why a value is not a ticket. Except for ErrKey they differ for metrics only: the visitor counts as one
// without a ticket.
var (
	ErrMalformed = errors.New("ticket: malformed")   // wrong length, alphabet or version
	ErrKey       = errors.New("ticket: unknown key") // sealed under a key newer than this ring: see Codec.Behind
	ErrOldKey    = errors.New("ticket: dropped key") // sealed under a key that this ring has dropped
	ErrSeal      = errors.New("ticket: broken seal") // altered, or of another room or cookie
)

// Versions of the layout: without and with a place at the end, and with fields after the place.
const (
	plain    = 1 // the place is Joined
	placed   = 2 // six bytes at the end: the place of a waiting visitor
	extended = 3 // the place, or zeros, and fields
)

const (
	headSize  = 1 + 4 // version, key id
	nonceSize = 12
	tagSize   = 16
	headTotal = headSize + nonceSize
	rawSize   = headTotal + maxSize + tagSize
)

// ValueSize is the length of a ticket as a cookie value; PlacedSize that of a ticket with a place other than Joined,
// MaxValueSize that of a ticket with as many fields as there may be.
const (
	ValueSize    = ((headTotal+plainSize+tagSize)*8 + 5) / 6
	PlacedSize   = ((headTotal+placedSize+tagSize)*8 + 5) / 6
	MaxValueSize = (rawSize*8 + 5) / 6
)

// encoding of the sealed bytes. Strict: spellings that differ only in the padding bits of the last character are
// refused, except one.
var encoding = base64.RawURLEncoding.Strict()

// Codec seals and opens the tickets of one room and one cookie name. It is immutable and safe for concurrent use; each
// goroutine uses its own [Scratch].
type Codec struct {
	keys []roomKey // newest last
}

type roomKey struct {
	id       uint32
	sealFrom fleettime.Time
	aead     cipher.AEAD
	ad       [extended + 1][]byte // by version
}

// NewCodec derives the keys of the room from the ring. The codec of an empty ring opens nothing and cannot seal; see
// [Codec.Ready].
func NewCodec(ring Keyring, id room.ID, cookie string) (*Codec, error) {
	c := &Codec{}
	for _, k := range ring.Keys {
		secret, err := hkdf.Key(sha256.New, k.Secret[:], nil, fmt.Sprintf("vestibule ticket 1 room %016x", uint64(id)), 32)
		if err != nil {
			return nil, fmt.Errorf("derive key %d: %w", k.ID, err)
		}
		block, err := aes.NewCipher(secret)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", k.ID, err)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", k.ID, err)
		}
		key := roomKey{id: k.ID, sealFrom: k.SealFrom, aead: aead}
		for version := byte(plain); version <= extended; version++ {
			ad := binary.BigEndian.AppendUint64(nil, uint64(id))
			ad = binary.BigEndian.AppendUint32(ad, k.ID)
			ad = append(ad, version)
			key.ad[version] = append(ad, cookie...)
		}
		c.keys = append(c.keys, key)
	}
	return c, nil
}

// Ready reports whether the codec can seal at time now.
func (c *Codec) Ready(now fleettime.Time) bool { return c.sealer(now) != nil }

// Behind reports whether tickets may exist at time now under a key newer than the ring. None exist before the newest
// key comes into use, since the next key is only made then, and waits for one rotation.
func (c *Codec) Behind(now fleettime.Time) bool {
	for _, k := range slices.Backward(c.keys) {
		if k.sealFrom < opensOnly {
			return k.sealFrom <= now
		}
	}
	return false
}

// sealer returns the newest key that all nodes can be expected to have.
func (c *Codec) sealer(now fleettime.Time) *roomKey {
	for i := len(c.keys) - 1; i >= 0; i-- {
		if c.keys[i].sealFrom <= now {
			return &c.keys[i]
		}
	}
	return nil
}

// Scratch is the working memory of Seal and Open, so that neither allocates, and the source of nonces. It is not safe
// for concurrent use: keep one per goroutine, or a pool.
type Scratch struct {
	raw   [rawSize]byte
	plain [maxSize]byte
	rng   *rand.ChaCha8
}

// NewScratch returns working memory with nonces from a ChaCha8 stream of the given seed. A Scratch that seals with real
// keys needs its own seed from a cryptographic source: equal seeds would repeat nonces. With random 96-bit nonces a key
// is good for 2^32 seals.
func NewScratch(seed [32]byte) *Scratch { return &Scratch{rng: rand.NewChaCha8(seed)} }

// Seal appends the ticket to dst as a cookie value of ValueSize to MaxValueSize characters. It returns dst unchanged
// if the codec is not Ready.
func (c *Codec) Seal(dst []byte, now fleettime.Time, t *Ticket, s *Scratch) []byte {
	k := c.sealer(now)
	if k == nil {
		return dst
	}
	version, size := t.encode(&s.plain)
	s.raw[0] = version
	binary.BigEndian.PutUint32(s.raw[1:], k.id)
	nonce := s.raw[headSize:headTotal]
	binary.LittleEndian.PutUint64(nonce, s.rng.Uint64())
	binary.LittleEndian.PutUint32(nonce[8:], uint32(s.rng.Uint64()))
	k.aead.Seal(s.raw[:headTotal], nonce, s.plain[:size], k.ad[version])
	return encoding.AppendEncode(dst, s.raw[:headTotal+size+tagSize])
}

// Open reads a cookie value into t. It returns nil, ErrMalformed, ErrKey, ErrOldKey or ErrSeal; on an error t is the
// zero Ticket. It does not check the ticket's times or epoch, which is the engine's task.
func (c *Codec) Open(t *Ticket, value string, s *Scratch) error {
	*t = Ticket{}
	version := byte(extended)
	switch n := len(value); {
	case n == ValueSize:
		version = plain
	case n == PlacedSize:
		version = placed
	case n < PlacedSize || n > MaxValueSize:
		return ErrMalformed
	}
	n, err := encoding.Decode(s.raw[:], []byte(value))
	if err != nil || s.raw[0] != version {
		return ErrMalformed
	}
	size := n - headTotal - tagSize
	id := binary.BigEndian.Uint32(s.raw[1:])
	for i := len(c.keys) - 1; i >= 0; i-- {
		k := &c.keys[i]
		if k.id != id {
			continue
		}
		nonce := s.raw[headSize:headTotal]
		if _, err := k.aead.Open(s.plain[:0], nonce, s.raw[headTotal:headTotal+size+tagSize], k.ad[version]); err != nil {
			return ErrSeal
		}
		if !t.decode(version, s.plain[:size]) {
			*t = Ticket{}
			return ErrMalformed
		}
		return nil
	}
	if n := len(c.keys); n > 0 && id < c.keys[n-1].id {
		return ErrOldKey
	}
	return ErrKey
}
